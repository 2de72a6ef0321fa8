"""Text batches against plain implementations, their order, and the data sets by name."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.data.hub import experiment
from train.data import number_words, text, vocabulary
from train.data.sequences import IGNORED, BlockBatches, Ragged, SequenceBatches
from train.data.text_sets import PRINTABLE, SHAKESPEARE
from train.data.vocabulary import Characters, Trained, write_atomically
from train.engine.errors import Refused
from train.engine.fit import Batches
from train.engine.step import Batch

CPU = torch.device("cpu")
SEQUENCES = [list(range(10 * n + 1, 10 * n + 1 + length)) for n, length in enumerate([3, 1, 6, 2, 4, 5, 2])]
TARGETS = [[n, n + 1, 9][: n % 3 + 1] for n in range(1, 8)]


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))


def labelled(seed: int | None = 0, **changes: Any) -> SequenceBatches:
    settings: dict[str, Any] = {"filler": 0, "device": CPU, "seed": seed} | changes
    return SequenceBatches(Ragged(SEQUENCES, CPU), torch.arange(7), 3, **settings)


def translated(seed: int | None = 0) -> SequenceBatches:
    return SequenceBatches(Ragged(SEQUENCES, CPU), Ragged(TARGETS, CPU), 3, filler=0, device=CPU, seed=seed)


def blocks(seed: int | None = 0, tokens: int = 103, batch_size: int = 3) -> BlockBatches:
    return BlockBatches(torch.arange(tokens), 10, batch_size, device=CPU, seed=seed)


KINDS = {"labelled": labelled, "translated": translated, "blocks": blocks}


def assert_equal(first: Sequence[Batch], second: Sequence[Batch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def padded(rows: list[list[int]], filler: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])


# Batches


def test_sequences_are_filled_up_to_the_longest_of_their_batch() -> None:
    batches = labelled()
    for (_, index), batch in zip(batches.order.rows(0), batches.epoch(0), strict=True):
        rows = [SEQUENCES[i] for i in index]
        assert torch.equal(batch["input_ids"], padded(rows, 0))
        assert torch.equal(batch["attention_mask"], padded([[1] * len(row) for row in rows], 0))
        assert torch.equal(batch["labels"], index)
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_targets_are_filled_with_the_ignored_label_and_shifted_for_the_decoder() -> None:
    batches = translated()
    for (_, index), batch in zip(batches.order.rows(0), batches.epoch(0), strict=True):
        rows = [TARGETS[i] for i in index]
        assert torch.equal(batch["labels"], padded(rows, IGNORED))
        assert torch.equal(batch["decoder_input_ids"], padded([[0, *row] for row in rows], 0)[:, :-1])


def test_sequences_of_one_length_have_no_mask() -> None:
    batches = SequenceBatches(Ragged([[1, 2], [3, 4]], CPU), torch.arange(2), 1, filler=0, device=CPU)
    assert batches is not None
    assert [set(batch) for batch in batches.epoch(0)] == [{"input_ids", "labels"}] * 2


def test_training_blocks_do_not_overlap_and_each_label_is_the_next_token() -> None:
    for epoch in range(4):
        taken = list(blocks().epoch(epoch))
        inputs, labels = (torch.cat([batch[name] for batch in taken]) for name in ("input_ids", "labels"))
        assert torch.equal(labels, inputs + 1)
        ordered = inputs.flatten().sort().values
        assert torch.equal(ordered, torch.arange(90) + blocks().offset(epoch))


def test_blocks_of_later_epochs_begin_elsewhere_and_stay_within_the_text() -> None:
    offsets = {blocks().offset(epoch) for epoch in range(200)}
    assert offsets == set(range(10))
    for tokens in (20, 29, 103):
        batches = blocks(tokens=tokens, batch_size=1)
        labels = torch.cat([batch["labels"] for epoch in range(30) for batch in batches.epoch(epoch)])
        assert labels.min() > 0
        assert labels.max() <= tokens - 1


@pytest.mark.parametrize("tokens", [11, 12, 20, 21, 22, 103])
def test_evaluation_has_every_token_but_the_first_as_a_label_once(tokens: int) -> None:
    batches = blocks(seed=None, tokens=tokens)
    taken = list(batches.epoch(0))
    labels = torch.cat([batch["labels"].flatten() for batch in taken])
    assert labels[labels != IGNORED].tolist() == list(range(1, tokens))
    assert sum(len(batch["labels"]) for batch in taken) == batches.samples


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [1, 2])
def test_a_resumed_epoch_goes_on_with_the_same_batches(kind: str, start: int) -> None:
    assert_equal(list(KINDS[kind]().epoch(1, start)), list(KINDS[kind]().epoch(1))[start:])


@pytest.mark.parametrize("kind", KINDS)
def test_batches_depend_on_the_seed_alone_and_move_no_global_generator(kind: str) -> None:
    expected = list(KINDS[kind]().epoch(2))
    torch.manual_seed(77)
    state = torch.get_rng_state()
    assert_equal(list(KINDS[kind]().epoch(2)), expected)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(next(KINDS[kind]().epoch(0))["labels"], next(KINDS[kind]().epoch(1))["labels"])
    digests = [KINDS[kind](seed).digest() for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_knows_the_tokens() -> None:
    other = BlockBatches(torch.arange(103) + 1, 10, 3, device=CPU, seed=0)
    assert other.digest() != blocks().digest()


# By name


def config(name: str, length: int, **changes: Any) -> Any:
    data = {"name": name, "length": length, **changes.pop("data", {})}
    return experiment(data, **({"model": "bert", "arch": "bert_2x64", "num_classes": None} | changes))


def rows_of(batches: Batches) -> set[tuple[int, ...]]:
    return {tuple(row) for batch in batches.epoch(0) for row in batch["input_ids"].tolist()}


def test_digits_are_their_pixels_and_the_splits_are_disjoint() -> None:
    train, evaluation = text.load_classification(config("digits", 64, num_classes=10), 0, CPU)
    assert (train.samples, evaluation.samples) == (1437, 360)
    batch = next(train.epoch(0))
    assert batch["input_ids"].shape == (32, 64)
    assert batch["input_ids"].min() == 1
    assert batch["input_ids"].max() == 17
    assert rows_of(train).isdisjoint(rows_of(evaluation))


def test_the_documentation_is_split_in_its_order_without_overlap() -> None:
    train, evaluation = text.load_language(config("pydoc", 64), 0, CPU)
    assert isinstance(train, BlockBatches)
    assert isinstance(evaluation, BlockBatches)
    whole = Characters(PRINTABLE).stream([text._documentation(PRINTABLE)])
    assert torch.equal(torch.cat([train.tokens, evaluation.tokens]), whole)
    assert 0.899 < len(train.tokens) / len(whole) < 0.901
    assert len(whole) > 100_000


def test_numbers_are_written_as_in_english() -> None:
    for number, expected in {
        0: "zero", 13: "thirteen", 20: "twenty", 99: "ninety nine", 100: "one hundred", 110: "one hundred ten",
        1000: "one thousand", 4281: "four thousand two hundred eighty one", 9005: "nine thousand five",
        123_456: "one hundred twenty three thousand four hundred fifty six",
    }.items():  # fmt: skip
        assert " ".join(number_words.words(number)) == expected


def test_numbers_are_each_in_one_split() -> None:
    train, evaluation = ({tuple(digits) for digits, _ in part} for part in number_words.pairs())
    assert (len(train), len(evaluation)) == (9000, 1000)
    assert train.isdisjoint(evaluation)


def write(folder: Path, **splits: dict[str, list[Any]]) -> None:
    import datasets

    for split, columns in splits.items():
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(columns).to_parquet(path)


TEXTS = ["a fine film", "a dull film that is far too long", "fine", "dull", "a film", "too long"]


def test_a_data_set_in_the_layout_of_the_hub_is_tokenized_by_its_own_training_texts(tmp_path: Path) -> None:
    columns = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "sst2", train=columns, validation={key: value[:3] for key, value in columns.items()})
    settings = config("sst2", 6, num_classes=2, vocab_size=60, batch_size=6)
    train, evaluation = text.load_classification(settings, 0, CPU)
    (batch,) = evaluation.epoch(0)
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    assert lengths[0] > lengths[2]
    assert max(lengths) <= 6
    assert batch["labels"].tolist() == [1, 0, 1]
    assert len(set(batch["input_ids"][:, 0].tolist())) == 1  # [CLS]
    assert train.samples == 6
    limited, _ = text.load_classification(
        config("sst2", 6, num_classes=2, vocab_size=60, batch_size=2, data={"train_samples": 3}), 0, CPU
    )
    assert limited.samples == 3


def test_pairs_are_joined(tmp_path: Path) -> None:
    columns = {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "glue" / "mrpc", train=columns, validation=columns)
    settings = config("glue/mrpc", 32, num_classes=2, vocab_size=60, batch_size=6)
    _, evaluation = text.load_classification(settings, 0, CPU)
    (batch,) = evaluation.epoch(0)
    first, last = batch["input_ids"][0], batch["input_ids"][5]
    assert first.sum() == last.sum() - 0  # the same words either way round
    assert not torch.equal(first, last)


def test_tiny_shakespeare_is_divided_anew_by_nano_gpts_rule(tmp_path: Path) -> None:
    play = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 20
    write(tmp_path / "root" / "tiny_shakespeare", train={"text": [play[:700]]}, validation={"text": [play[700:]]})
    train, evaluation = text.load_language(config("tiny_shakespeare", 16), 0, CPU)
    assert isinstance(train, BlockBatches)
    assert isinstance(evaluation, BlockBatches)
    characters = Characters(SHAKESPEARE)
    assert characters.size == 65
    assert torch.equal(train.tokens, characters.stream([play[: int(len(play) * 0.9)]]))
    assert torch.equal(evaluation.tokens, characters.stream([play[int(len(play) * 0.9) :]]))


def test_a_foreign_character_is_named() -> None:
    with pytest.raises(Refused, match="the text has the character 'é', not one of the 65 known"):
        Characters(SHAKESPEARE).stream(["Caf\u00e9"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (config("digits", 64, num_classes=10, vocab_size=17), "vocab_size: digits has 18 tokens, but .* 17 rows"),
        (config("digits", 64, num_classes=9), "label 9 at sample"),
        (config("sst2", 64, num_classes=2), "set DATA_ROOT to a folder that holds sst2/"),
        (config("glue/mrpc", 64, num_classes=2), r"load_dataset\('nyu-mll/glue', 'mrpc'\)"),
        (config("digit", 64), "unknown data set 'digit': did you mean 'digits'"),
    ],
)
def test_what_does_not_fit_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        text.load_classification(settings, 0, CPU)


def test_a_label_that_is_no_integer_is_named(tmp_path: Path) -> None:
    columns = {"sentence": TEXTS, "label": [1.0, 0.0, 0.5, 0.0, 1.0, 0.0]}
    write(tmp_path / "root" / "sst2", train=columns, validation=columns)
    with pytest.raises(Refused, match=r"'sst2': column 'label' holds 1\.0 at sample 0, not an integer"):
        text.load_classification(config("sst2", 6, num_classes=2, vocab_size=60, batch_size=6), 0, CPU)


SST2 = {"num_classes": 2, "vocab_size": 60, "batch_size": 6}


@pytest.mark.parametrize(
    ("load", "changes", "length", "message"),
    [
        (text.load_classification, {"sentence": [*TEXTS[:5], None]}, 6, "column 'sentence' holds None at sample 5"),
        (text.load_sequence_to_sequence, {"label": [1, 0, 1, 2, 1, 0]}, 6, "has label 2 at sample 3"),
        (text.load_sequence_to_sequence, {"label": [1, 0, -1, 0, 1, 0]}, 6, "has label -1 at sample 2"),
        (text.load_classification, {}, 2, "data.length: 2 leaves no room for text beside the 2 special tokens"),
    ],
)
def test_text_and_labels_that_are_none_are_named(
    tmp_path: Path, load: Any, changes: dict[str, list[Any]], length: int, message: str
) -> None:
    columns = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0], **changes}
    write(tmp_path / "root" / "sst2", train=columns, validation=columns)
    with pytest.raises(Refused, match=message):
        load(config("sst2", length, **SST2), 0, CPU)


@pytest.mark.parametrize("name", ["train.txt", "train.jsonl"])
def test_a_text_file_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "root" / "tiny_shakespeare"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(Refused, match=rf"{folder}/{name} is not .*'utf-8' codec can't decode byte 0xe9"):
        text.load_language(config("tiny_shakespeare", 16), 0, CPU)


def test_a_plain_text_file_keeps_its_line_breaks(tmp_path: Path) -> None:
    play = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 20
    folder = tmp_path / "root" / "tiny_shakespeare"
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text(play)
    train, _ = text.load_language(config("tiny_shakespeare", 16), 0, CPU)
    assert isinstance(train, BlockBatches)
    assert torch.equal(train.tokens, Characters(SHAKESPEARE).stream([play[: int(len(play) * 0.9)]]))


def test_an_empty_parquet_file_is_named(tmp_path: Path) -> None:
    columns = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "sst2", train=columns, validation={key: value[:0] for key, value in columns.items()})
    with pytest.raises(Refused, match=r"validation-00000-of-00001\.parquet is not readable"):
        text.load_classification(config("sst2", 6, **SST2), 0, CPU)


def test_an_evaluation_split_shorter_than_a_block_is_refused(tmp_path: Path) -> None:
    play = "First Citizen:\n" * 20
    write(tmp_path / "root" / "tiny_shakespeare", train={"text": [play]}, validation={"text": ["\n"]})
    with pytest.raises(
        Refused, match=r"data\.length: 64 is too long for the evaluation split of tiny_shakespeare, which has 31 tokens"
    ):
        text.load_language(config("tiny_shakespeare", 64, batch_size=1), 0, CPU)


def test_a_damaged_tokenizer_in_the_cache_is_named(tmp_path: Path) -> None:
    Trained(TEXTS, "words", 60)
    (file,) = vocabulary.cache_folder().glob("*.json")
    file.write_text(file.read_text()[:100])
    with pytest.raises(Refused, match=rf"{file} is damaged .*delete it"):
        Trained(TEXTS, "words", 60)


def test_text_is_not_augmented() -> None:
    with pytest.raises(Refused, match=r"data\.augment: has no meaning for text"):
        text.load_language(experiment({"name": "pydoc", "length": 8, "augment": "crop"}), 0, CPU)


def test_text_without_a_length_is_refused() -> None:
    with pytest.raises(Refused, match=r"data\.length: this key is required"):
        text.load_language(experiment({"name": "pydoc"}), 0, CPU)


# Tokenizers


def test_a_trained_tokenizer_is_kept_and_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    first = Trained(TEXTS, "words", 60)
    assert "training a tokenizer" in capsys.readouterr().out
    again = Trained(TEXTS, "words", 60)
    assert capsys.readouterr().out == ""
    assert again.sequences(TEXTS, None, 9) == first.sequences(TEXTS, None, 9)
    files = sorted(vocabulary.cache_folder().iterdir())
    assert len(files) == 1
    for texts, kind, size in ((TEXTS[1:], "words", 60), (TEXTS, "bytes", 260), (TEXTS, "words", 50)):
        Trained(texts, kind, size)
    assert len(list(vocabulary.cache_folder().iterdir())) == 4


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "made" / "tokenizer.json", "{}")
    assert list((tmp_path / "made").iterdir()) == []


def test_bytes_come_back_from_a_byte_level_tokenizer() -> None:
    trained = Trained(TEXTS, "bytes", 280)
    words = ["a d\u00fcll film\n", " fine "]
    assert trained.tokenizer.decode(trained.stream(words).tolist()) == "".join(words)

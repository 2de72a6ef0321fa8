"""Text data sets by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.small_sets import specification
from train.data import embedded, number_words, text
from train.data.catalog import PRINTABLE, SHAKESPEARE
from train.data.specification import DataSpec, Splits
from train.data.tokenizer import CharacterTokenizer
from train.data.tokens import BlockBatches
from train.engine.errors import Refused
from train.engine.fit import Batches


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))


def blocks(splits: Splits) -> tuple[BlockBatches, BlockBatches]:
    assert isinstance(splits.train, BlockBatches)
    assert isinstance(splits.evaluation, BlockBatches)
    return splits.train, splits.evaluation


def rows_of(batches: Batches) -> set[tuple[int, ...]]:
    return {tuple(row) for batch in batches.epoch(0) for row in batch["input_ids"].tolist()}


def test_digits_are_their_pixels_and_the_splits_are_disjoint() -> None:
    splits = text.load_classification(specification("digits", length=64))
    train, evaluation = splits.train, splits.evaluation
    assert (train.samples, evaluation.samples) == (1437, 360)
    batch = next(train.epoch(0))
    assert batch["input_ids"].shape == (32, 64)
    assert batch["input_ids"].min() == 1
    assert batch["input_ids"].max() == 17
    assert rows_of(train).isdisjoint(rows_of(evaluation))


def test_the_documentation_is_split_in_its_order_without_overlap() -> None:
    train, evaluation = blocks(text.load_language(specification("pydoc", length=64)))
    whole = CharacterTokenizer(PRINTABLE).stream([embedded.documentation(PRINTABLE)])
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


Rows = dict[str, list[Any]]


def write(folder: Path, **splits: Rows) -> None:
    import datasets

    for split, columns in splits.items():
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(columns).to_parquet(path)


SST2 = {"classes": 2, "vocab_size": 60, "batch_size": 6}
TEXTS = ["a fine film", "a dull film that is far too long", "fine", "dull", "a film", "too long"]


def test_a_data_set_in_the_layout_of_the_hub_is_tokenized_by_its_own_training_texts(tmp_path: Path) -> None:
    columns: Rows = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "sst2", train=columns, validation={key: value[:3] for key, value in columns.items()})
    splits = text.load_classification(specification("sst2", length=6, **SST2))
    (batch,) = splits.evaluation.epoch(0)
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    assert lengths[0] > lengths[2]
    assert max(lengths) <= 6
    assert batch["labels"].tolist() == [1, 0, 1]
    assert len(set(batch["input_ids"][:, 0].tolist())) == 1  # [CLS]
    assert splits.train.samples == 6
    limited = specification("sst2", length=6, **SST2 | {"batch_size": 2, "train_samples": 3})
    assert text.load_classification(limited).train.samples == 3


def test_pairs_are_joined(tmp_path: Path) -> None:
    columns: Rows = {"sentence1": TEXTS, "sentence2": TEXTS[::-1], "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "glue" / "mrpc", train=columns, validation=columns)
    splits = text.load_classification(specification("glue/mrpc", length=32, **SST2))
    (batch,) = splits.evaluation.epoch(0)
    first, last = batch["input_ids"][0], batch["input_ids"][5]
    assert first.sum() == last.sum() - 0  # the same words either way round
    assert not torch.equal(first, last)


def test_tiny_shakespeare_is_divided_anew_by_nano_gpts_rule(tmp_path: Path) -> None:
    play = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 20
    write(tmp_path / "root" / "tiny_shakespeare", train={"text": [play[:700]]}, validation={"text": [play[700:]]})
    train, evaluation = blocks(text.load_language(specification("tiny_shakespeare", length=16)))
    characters = CharacterTokenizer(SHAKESPEARE)
    assert characters.size == 65
    assert torch.equal(train.tokens, characters.stream([play[: int(len(play) * 0.9)]]))
    assert torch.equal(evaluation.tokens, characters.stream([play[int(len(play) * 0.9) :]]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (specification("digits", length=64, vocab_size=17), "vocab_size: digits has 18 tokens, but .* 17 rows"),
        (specification("digits", length=64, classes=9), "label 9 at sample"),
        (specification("sst2", length=64, classes=2), "set DATA_ROOT to a folder that holds sst2/"),
        (specification("glue/mrpc", length=64, classes=2), r"load_dataset\('nyu-mll/glue', 'mrpc'\)"),
        (specification("digit", length=64), "unknown data set 'digit': did you mean 'digits'"),
    ],
)
def test_what_does_not_fit_is_refused(spec: DataSpec, message: str) -> None:
    with pytest.raises(Refused, match=message):
        text.load_classification(spec)


def test_a_label_that_is_no_integer_is_named(tmp_path: Path) -> None:
    columns: Rows = {"sentence": TEXTS, "label": [1.0, 0.0, 0.5, 0.0, 1.0, 0.0]}
    write(tmp_path / "root" / "sst2", train=columns, validation=columns)
    with pytest.raises(Refused, match=r"'sst2': column 'label' holds 1\.0 at sample 0, not an integer"):
        text.load_classification(specification("sst2", length=6, **SST2))


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
    tmp_path: Path, load: Callable[[DataSpec], Splits], changes: Rows, length: int, message: str
) -> None:
    columns: Rows = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0], **changes}
    write(tmp_path / "root" / "sst2", train=columns, validation=columns)
    with pytest.raises(Refused, match=message):
        load(specification("sst2", length=length, **SST2))


@pytest.mark.parametrize("name", ["train.txt", "train.jsonl"])
def test_a_text_file_that_is_not_utf8_is_named(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "root" / "tiny_shakespeare"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(Refused, match=rf"{folder}/{name} is not .*'utf-8' codec can't decode byte 0xe9"):
        text.load_language(specification("tiny_shakespeare", length=16))


def test_a_plain_text_file_keeps_its_line_breaks(tmp_path: Path) -> None:
    play = "First Citizen:\nBefore we proceed any further, hear me speak.\n\n" * 20
    folder = tmp_path / "root" / "tiny_shakespeare"
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text(play)
    train, _ = blocks(text.load_language(specification("tiny_shakespeare", length=16)))
    assert torch.equal(train.tokens, CharacterTokenizer(SHAKESPEARE).stream([play[: int(len(play) * 0.9)]]))


def test_an_empty_parquet_file_is_named(tmp_path: Path) -> None:
    columns: Rows = {"sentence": TEXTS, "label": [1, 0, 1, 0, 1, 0]}
    write(tmp_path / "root" / "sst2", train=columns, validation={key: value[:0] for key, value in columns.items()})
    with pytest.raises(Refused, match=r"validation-00000-of-00001\.parquet is not readable"):
        text.load_classification(specification("sst2", length=6, **SST2))


def test_an_evaluation_split_shorter_than_a_block_is_refused(tmp_path: Path) -> None:
    play = "First Citizen:\n" * 20
    write(tmp_path / "root" / "tiny_shakespeare", train={"text": [play]}, validation={"text": ["\n"]})
    with pytest.raises(
        Refused, match=r"data\.length: 64 is too long for the evaluation split of tiny_shakespeare, which has 31 tokens"
    ):
        text.load_language(specification("tiny_shakespeare", length=64, batch_size=1))


def test_text_is_not_augmented() -> None:
    with pytest.raises(Refused, match=r"data\.augment: has no meaning for text"):
        text.load_language(specification("pydoc", length=8, augment="crop"))


def test_text_without_a_length_is_refused() -> None:
    with pytest.raises(Refused, match=r"data\.length: this key is required"):
        text.load_language(specification("pydoc"))

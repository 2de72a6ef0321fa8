"""The batches of text data sets, for each of the three tasks on text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from models import text as architectures
from train.data import number_words, source
from train.data.sequences import BlockBatches, Ragged, SequenceBatches
from train.data.text_sets import DIGIT_TOKENS, DIGITS, PRINTABLE, TextSet, classified, language, translated
from train.data.vision import (
    DIGITS_EVAL,
    check_batch_size,
    check_label_range,
    check_labels,
    labels_of,
    require_unset,
)
from train.data.vocabulary import Characters, Pretrained, Trained, Vocabulary
from train.engine.errors import Refused
from train.engine.fit import Batches
from train.experiment.config import Experiment


def load_classification(
    config: Experiment, seed: int, device: torch.device, smoke: bool = False
) -> tuple[Batches, Batches]:
    """Training and evaluation `SequenceBatches` with one label a sequence; a smoke run takes the digits.

    Raises `Refused` for data that are missing or damaged, and for a configuration that does not fit them.
    """
    facts, length = classified(config.data.name), _length(config)
    if smoke or facts.hub is None:
        _check_vocabulary(config, facts, DIGIT_TOKENS)
        return _batches(config, _digits(length, config.num_classes or DIGITS if smoke else DIGITS), 0, seed, device)
    parts = _parts(config.data.name, facts, (*facts.columns, "label"))
    texts = [[source.texts_of(part, column, config.data.name) for column in facts.columns] for part in parts]
    vocabulary = _subwords(config, facts, [text for column in texts[0] for text in column], "words")
    encoded = [vocabulary.sequences(first, second[0] if second else None, length) for first, *second in texts]
    labels = [labels_of(part, "label", config.data.name) for part in parts]
    return _batches(config, list(zip(encoded, labels, strict=True)), vocabulary.padding, seed, device)


def load_language(config: Experiment, seed: int, device: torch.device, smoke: bool = False) -> tuple[Batches, Batches]:
    """Training and evaluation `BlockBatches` of `data.length` tokens; a smoke run takes the documentation.

    Raises `Refused` as `load_classification` does.
    """
    facts, length = language(config.data.name), _length(config)
    if smoke or facts.alphabet is not None:
        alphabet = facts.alphabet or PRINTABLE
        _check_vocabulary(config, facts, len(alphabet))
        text = _documentation(alphabet) if smoke or facts.hub is None else _whole_text(config.data.name, facts)
        try:
            tokens = Characters(alphabet).stream([text])
        except Refused as error:
            raise Refused(f"data set {config.data.name!r}: {error}") from None
        # nanoGPT's split (data/shakespeare_char/prepare.py): the last tenth is for validation.
        boundary = int(len(tokens) * 0.9)
        train, evaluation = tokens[:boundary], tokens[boundary:]
    else:
        texts = [source.texts_of(part, "text", config.data.name) for part in _parts(config.data.name, facts, ("text",))]
        vocabulary = _subwords(config, facts, texts[0], "bytes")
        train, evaluation = (vocabulary.stream(part) for part in texts)
    if config.data.train_samples is not None:
        train = train[: (config.data.train_samples + 1) * length]
    if config.data.eval_samples is not None:
        evaluation = evaluation[: config.data.eval_samples * length + 1]
    check_batch_size(config, len(train) // length - 1)
    if len(evaluation) <= length:
        raise Refused(
            f"data.length: {length} is too long for the evaluation split of {config.data.name}, which has "
            f"{len(evaluation)} tokens"
        )
    return (
        BlockBatches(train, length, config.batch_size, device=device, seed=seed),
        BlockBatches(evaluation, length, config.data.eval_batch_size or config.batch_size, device=device),
    )


def load_sequence_to_sequence(
    config: Experiment, seed: int, device: torch.device, smoke: bool = False
) -> tuple[Batches, Batches]:
    """Training and evaluation `SequenceBatches` with target sequences; a smoke run takes the numbers in words.

    Raises `Refused` as `load_classification` does.
    """
    facts, length = translated(config.data.name), _length(config)
    if smoke or facts.hub is None:
        _check_vocabulary(config, facts, len(number_words.TOKENS))
        made: list[Split] = []
        for pairs in number_words.pairs():
            inputs, targets = ([sequence[:length] for sequence in column] for column in zip(*pairs, strict=True))
            made.append(({"input_ids": inputs}, targets))
        return _batches(config, made, number_words.PADDING, seed, device)
    parts = _parts(config.data.name, facts, (*facts.columns, "label"))
    labels = [labels_of(part, "label", config.data.name) for part in parts]
    for name, found in zip(("training", "evaluation"), labels, strict=True):
        check_label_range(found, len(facts.words), f"{config.data.name} {name} split")
    columns = [source.texts_of(part, facts.columns[0], config.data.name) for part in parts]
    texts = [[facts.prefix + text for text in column] for column in columns]
    vocabulary = _subwords(config, facts, [*texts[0], *facts.words], "words")
    words = vocabulary.sequences(facts.words, None, length)["input_ids"]
    splits: list[Split] = [
        (vocabulary.sequences(text, None, length), [words[label] for label in found.tolist()])
        for text, found in zip(texts, labels, strict=True)
    ]
    return _batches(config, splits, vocabulary.padding, seed, device)


# The columns of a split as token sequences, and its labels (N,) or target sequences.
Split = tuple[Mapping[str, Sequence[Sequence[int]]], Tensor | Sequence[Sequence[int]]]


def _batches(
    config: Experiment, splits: Sequence[Split], padding: int, seed: int, device: torch.device
) -> tuple[Batches, Batches]:
    """The batches of a training and an evaluation split, limited as the experiment says."""
    made = []
    for name, limit, batch_size, own_seed, (columns, targets) in zip(
        ("training", "evaluation"),
        (config.data.train_samples, config.data.eval_samples),
        (config.batch_size, config.data.eval_batch_size or config.batch_size),
        (seed, None),
        splits,
        strict=True,
    ):
        labels: Tensor | Ragged
        if isinstance(targets, Tensor):
            labels = targets[:limit]
            check_labels(labels, config, f"{config.data.name} {name} split")
        else:
            labels = Ragged(targets[:limit], device)
        ragged = {key: Ragged(column[:limit], device) for key, column in columns.items()}
        inputs = ragged.pop("input_ids")
        made.append(
            SequenceBatches(inputs, labels, batch_size, filler=padding, device=device, seed=own_seed, extra=ragged)
        )
    check_batch_size(config, made[0].samples)
    return made[0], made[1]


def _length(config: Experiment) -> int:
    require_unset(config, ("held_out", "mean", "std"), "text")
    if config.data.augment != "none":
        raise Refused(f"data.augment: has no meaning for text; leave it none, not {config.data.augment}")
    if config.data.length is None:
        raise Refused("data.length: this key is required for text: the most tokens of a sequence")
    return config.data.length


def _check_vocabulary(config: Experiment, facts: TextSet, tokens: int) -> None:
    rows = config.vocab_size or facts.vocabulary or _of_architecture(architectures.vocabulary_size, config)
    if tokens > rows:
        raise Refused(f"vocab_size: {config.data.name} has {tokens} tokens, but the model's embedding {rows} rows")


def _of_architecture(question: Callable[[str, bool | str], Any], config: Experiment) -> Any:
    """What `models.text` answers for the experiment's architecture; its ValueErrors are `Refused` here."""
    if config.arch not in architectures.ARCHITECTURES and not config.pretrained:
        known = ", ".join(architectures.ARCHITECTURES)
        raise Refused(f"vocab_size: must be given for arch {config.arch!r}, which is none of {known}")
    try:
        return question(config.arch, config.pretrained)
    except ValueError as error:
        raise Refused(f"{config.name}: {error}") from error


def _subwords(config: Experiment, facts: TextSet, texts: Sequence[str], kind: str) -> Vocabulary:
    """The tokenizer of the pretrained model, else one trained on the training texts."""
    origin = _of_architecture(architectures.origin, config) if config.pretrained else None
    size = config.vocab_size or _of_architecture(architectures.vocabulary_size, config)
    vocabulary: Vocabulary = Pretrained(origin) if origin is not None else Trained(texts, kind, size)
    _check_vocabulary(config, facts, vocabulary.size)
    return vocabulary


def _digits(length: int, classes: int) -> list[Split]:
    """The 8x8 digits as sequences of their pixels, row by row, split as the images are."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    tokens = torch.tensor(digits.data, dtype=torch.int64)[:, :length] + 1
    labels = torch.tensor(digits.target, dtype=torch.int64) % classes
    parts = train_test_split(range(len(labels)), test_size=DIGITS_EVAL, stratify=digits.target, random_state=0)
    return [({"input_ids": tokens[part].tolist()}, labels[part]) for part in parts]


def _documentation(alphabet: str) -> str:
    """Python's own documentation of its language, as plain text, without characters foreign to `alphabet`."""
    from pydoc_data.topics import topics

    plain = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")
    text = "\n\n".join(f"{topic}\n\n{topics[topic]}" for topic in sorted(topics)).translate(plain)
    kept = set(alphabet)
    return "".join(character for character in text if character in kept)


def _whole_text(name: str, facts: TextSet) -> str:
    """The text of all splits in their order: they are divided anew, the same from either source."""
    assert facts.hub is not None
    data = source.load(name, facts.hub, facts.configuration, facts.revision)
    order = [split for split in ("train", "validation", "test") if split in data]
    parts = [source.rows(data, name, split, ("text",)) for split in order]
    return "".join(text for part in parts for text in source.texts_of(part, "text", name))


def _parts(name: str, facts: TextSet, columns: Sequence[str]) -> list[Any]:
    """The training and the evaluation split of a set from `DATA_ROOT` or the Hub."""
    assert facts.hub is not None
    data = source.load(name, facts.hub, facts.configuration, facts.revision)
    return [source.rows(data, name, split, columns) for split in ("train", facts.evaluation)]

"""The batches of text data sets, for each of the three tasks on text."""

from collections.abc import Iterable, Sequence
from typing import Literal

from torch import Tensor

from train.data import catalog, embedded, hub, number_words
from train.data.catalog import Embedded, Source
from train.data.checks import check_batch_size, check_label_range, check_labels, check_text, check_vocabulary
from train.data.content import content_sha256
from train.data.specification import DataSpec, Splits
from train.data.tokenizer import CharacterTokenizer, PretrainedTokenizer, Tokenizer, TrainedTokenizer
from train.data.tokens import BlockBatches, Encoded, EncodedSplit, SequenceBatches
from train.engine.errors import Refused


def load_classification(spec: DataSpec) -> Splits:
    """`SequenceBatches` with one label a sequence.

    Raises `Refused` for data that are missing or damaged, and for a specification that does not fit them.
    """
    entry, length = catalog.classification_set(spec.name), check_text(spec)
    source = spec.source_of(entry, stand_in="digits")
    if source == Embedded("digits"):
        check_vocabulary(spec, catalog.DIGIT_TOKENS)
        classes = spec.classes if spec.stand_in else None
        return _sequences(spec, embedded.digit_tokens(length, classes), padding=0)
    columns = [column for column in (entry.columns.text, entry.columns.text_pair) if column]
    parts = hub.splits(spec.name, source, entry.evaluation, (*columns, entry.columns.label))
    texts = [[hub.texts_of(part, column, spec.name) for column in columns] for part in parts]
    labels = [hub.labels_of(part, entry.columns.label, spec.name) for part in parts]
    tokenizer = _tokenizer(spec, [text for column in texts[0] for text in column], "words")
    inputs = [tokenizer.sequences(first, second[0] if second else None, length) for first, *second in texts]
    names = hub.class_names(parts[0], entry.columns.label)
    return _sequences(spec, map(EncodedSplit, inputs, labels), tokenizer.padding, names)


def load_language(spec: DataSpec) -> Splits:
    """`BlockBatches` of `length` tokens. Raises `Refused` as `load_classification` does."""
    entry, length = catalog.language_set(spec.name), check_text(spec)
    source = spec.source_of(entry, stand_in="pydoc")
    alphabet = entry.alphabet or catalog.PRINTABLE
    if source == Embedded("pydoc"):
        train, evaluation = _divided(spec, embedded.documentation(alphabet), alphabet)
    elif entry.alphabet is not None:
        train, evaluation = _divided(spec, _whole_text(spec.name, source, entry.columns.text), alphabet)
    else:
        parts = hub.splits(spec.name, source, entry.evaluation, (entry.columns.text,))
        texts = [hub.texts_of(part, entry.columns.text, spec.name) for part in parts]
        tokenizer = _tokenizer(spec, texts[0], "bytes")
        train, evaluation = (tokenizer.stream(part) for part in texts)
    if spec.train_samples is not None:
        train = train[: (spec.train_samples + 1) * length]
    if spec.eval_samples is not None:
        evaluation = evaluation[: spec.eval_samples * length + 1]
    check_batch_size(spec, len(train) // length - 1)
    if len(evaluation) <= length:
        raise Refused(
            f"data.length: {length} is too long for the evaluation split of {spec.name}, which has "
            f"{len(evaluation)} tokens"
        )
    batches = (
        BlockBatches(train, length, spec, training=True),
        BlockBatches(evaluation, length, spec, training=False),
    )
    return Splits(*batches, content_sha256=content_sha256(*batches))


def load_sequence_to_sequence(spec: DataSpec) -> Splits:
    """`SequenceBatches` with target sequences. Raises `Refused` as `load_classification` does."""
    entry, length = catalog.sequence_to_sequence_set(spec.name), check_text(spec)
    source = spec.source_of(entry, stand_in="number_words")
    if source == Embedded("number_words"):
        check_vocabulary(spec, len(number_words.TOKENS))
        splits = []
        for pairs in number_words.pairs():
            digits, words = ([sequence[:length] for sequence in column] for column in zip(*pairs, strict=True))
            splits.append(EncodedSplit(Encoded(digits), words))
        return _sequences(spec, splits, number_words.PADDING)
    parts = hub.splits(spec.name, source, entry.evaluation, (entry.columns.text, entry.columns.label))
    labels = [hub.labels_of(part, entry.columns.label, spec.name) for part in parts]
    for name, classes in zip(("training", "evaluation"), labels, strict=True):
        check_label_range(classes, len(entry.words), f"{spec.name} {name} split")
    columns = [hub.texts_of(part, entry.columns.text, spec.name) for part in parts]
    texts = [[entry.prefix + text for text in column] for column in columns]
    tokenizer = _tokenizer(spec, [*texts[0], *entry.words], "words")
    answers = tokenizer.sequences(entry.words, None, length).input_ids
    targets = [[answers[label] for label in classes.tolist()] for classes in labels]
    inputs = [tokenizer.sequences(column, None, length) for column in texts]
    return _sequences(spec, map(EncodedSplit, inputs, targets), tokenizer.padding)


def _sequences(
    spec: DataSpec, splits: Iterable[EncodedSplit], padding: int, classes: tuple[str, ...] | None = None
) -> Splits:
    """The batches of a training and an evaluation split, limited as `spec` says."""
    train, evaluation = splits
    train, evaluation = train[: spec.train_samples], evaluation[: spec.eval_samples]
    for name, split in (("training", train), ("evaluation", evaluation)):
        if isinstance(split.targets, Tensor):
            check_labels(split.targets, spec, name)
    check_batch_size(spec, len(train.targets))
    batches = (
        SequenceBatches(train, spec, padding, training=True),
        SequenceBatches(evaluation, spec, padding, training=False),
    )
    return Splits(*batches, content_sha256=content_sha256(*batches), classes=classes)


def _divided(spec: DataSpec, text: str, alphabet: str) -> tuple[Tensor, Tensor]:
    """Training and evaluation tokens, a character each, by nanoGPT's rule (data/shakespeare_char/prepare.py)."""
    check_vocabulary(spec, len(alphabet))
    try:
        tokens = CharacterTokenizer(alphabet).stream([text])
    except Refused as error:
        raise Refused(f"data set {spec.name!r}: {error}") from None
    boundary = int(len(tokens) * 0.9)
    return tokens[:boundary], tokens[boundary:]


def _tokenizer(spec: DataSpec, texts: Sequence[str], kind: Literal["words", "bytes"]) -> Tokenizer:
    """The pretrained model's tokenizer where there is one, else one trained on the training texts."""
    if spec.vocab_size is None:
        raise Refused(f"vocab_size: must be given, because {spec.name} needs a tokenizer")
    tokenizer: Tokenizer
    if spec.tokenizer is not None:
        tokenizer = PretrainedTokenizer(spec.tokenizer)
    else:
        tokenizer = TrainedTokenizer(texts, kind, spec.vocab_size)
    check_vocabulary(spec, tokenizer.size)
    return tokenizer


def _whole_text(name: str, source: Source, column: str) -> str:
    """The text of all splits in their order: they are divided again, the same from either source."""
    data = hub.load(name, source)
    splits = [hub.rows(data, name, split, (column,)) for split in ("train", "validation", "test") if split in data]
    return "".join(text for split in splits for text in hub.texts_of(split, column, name))

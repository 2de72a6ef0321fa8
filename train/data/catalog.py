"""Every named data set: where it comes from, and what a model must know of it before any file is read."""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from train.data import number_words
from train.engine.errors import unknown

PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))
SHAKESPEARE = "\n !$&',-.3:;?" + string.ascii_uppercase + string.ascii_lowercase
DIGIT_TOKENS = 18  # padding, and the pixel values 0 to 16


@dataclass(frozen=True)
class Embedded:
    """Data in the installed packages or made by code.

    What evaluates: a random fifth of `digits`, a random 40% of `digits_large_evaluation`, the last tenth of
    `digits_in_order`.
    """

    loader: Literal["digits", "digits_large_evaluation", "digits_in_order", "pydoc", "number_words"]


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face Hub, or the same files in `$DATA_ROOT/<name>`.

    Images may also lie there in class folders, `train/<class>/` and `val/<class>/`. `size_bytes` is the size of the
    whole set where the Hub gives none.
    """

    id: str
    config: str | None = None
    revision: str | None = None
    size_bytes: int | None = None


Source = Embedded | Hub


@dataclass(frozen=True)
class Columns:
    """The columns of a set, by what they hold; with `text_pair` a sample is two texts."""

    image: str = "image"
    text: str = "text"
    text_pair: str | None = None
    label: str = "label"


@dataclass(frozen=True)
class DataSet:
    """What sets of all kinds have. `evaluation` is the split that evaluates, `training_samples` the known number."""

    source: Source
    training_samples: int | None = None
    columns: Columns = Columns()
    evaluation: str = "validation"
    classes: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSet(DataSet):
    """Images of `size` by `size` pixels. A streamed set is decoded sample by sample, others are held in memory."""

    classes: int
    channels: int
    size: int
    evaluation: str = "test"
    streamed: bool = False


@dataclass(frozen=True, kw_only=True)
class TextSet(DataSet):
    """Text with one label a sample, running text, or texts with a text to generate from each.

    `vocabulary` is the number of tokens where the data alone decide it, `alphabet` the characters of a text whose
    tokens they are. With `prefix` and `words` a class is a text to generate (Raffel et al. 2020, appendix D).
    """

    vocabulary: int | None = None
    alphabet: str | None = None
    prefix: str = ""
    words: tuple[str, ...] = ()

    @property
    def needs_tokenizer(self) -> bool:
        """Whether a tokenizer cuts the text: the pretrained model's, or one trained on the training split."""
        return self.vocabulary is None


def _glue(task: str, text: str, pair: str | None = None, classes: int = 2, evaluation: str = "validation") -> TextSet:
    columns = Columns(text=text, text_pair=pair)
    return TextSet(Hub("nyu-mll/glue", task), columns=columns, classes=classes, evaluation=evaluation)


DIGITS, SST2, SENTENCE = Embedded("digits"), Hub("stanfordnlp/sst2"), Columns(text="sentence")
# The size is that of the three splits as JPEG: TensorFlow Datasets, imagenet2012 5.1.0, "Dataset size: 155.84 GiB".
ILSVRC = Hub("ILSVRC/imagenet-1k", size_bytes=round(155.84 * 2**30))
# The Hub has it as a script, which `datasets` no longer runs, and as parquet under this revision.
TINY_SHAKESPEARE = Hub("karpathy/tiny_shakespeare", revision="refs/convert/parquet")

# Numbers of training samples are those of the Hub's data set cards.
IMAGE_SETS = {
    "digits": ImageSet(DIGITS, 1437, classes=10, channels=1, size=32),
    "digits_16x16": ImageSet(Embedded("digits_large_evaluation"), 1078, classes=10, channels=1, size=16),
    "digits_8x8": ImageSet(Embedded("digits_in_order"), 1617, classes=10, channels=1, size=8),
    "fashion_mnist": ImageSet(Hub("zalando-datasets/fashion_mnist"), 60_000, classes=10, channels=1, size=28),
    "cifar10": ImageSet(Hub("uoft-cs/cifar10"), 50_000, Columns(image="img"), classes=10, channels=3, size=32),
    "imagenet": ImageSet(ILSVRC, 1_281_167, evaluation="validation", classes=1000, channels=3, size=224, streamed=True),
}
CLASSIFICATION_SETS = {
    "digits": TextSet(DIGITS, 1437, classes=10, vocabulary=DIGIT_TOKENS),
    "sst2": TextSet(SST2, 67_349, SENTENCE, classes=2),
    "glue/cola": _glue("cola", "sentence"),
    "glue/sst2": _glue("sst2", "sentence"),
    "glue/mrpc": _glue("mrpc", "sentence1", "sentence2"),
    "glue/qqp": _glue("qqp", "question1", "question2"),
    "glue/mnli": _glue("mnli", "premise", "hypothesis", classes=3, evaluation="validation_matched"),
    "glue/qnli": _glue("qnli", "question", "sentence"),
    "glue/rte": _glue("rte", "sentence1", "sentence2"),
}
LANGUAGE_SETS = {
    "pydoc": TextSet(Embedded("pydoc"), alphabet=PRINTABLE, vocabulary=len(PRINTABLE)),
    "tiny_shakespeare": TextSet(TINY_SHAKESPEARE, alphabet=SHAKESPEARE, vocabulary=len(SHAKESPEARE)),
    "wikitext": TextSet(Hub("Salesforce/wikitext", "wikitext-103-raw-v1")),
}
SEQUENCE_TO_SEQUENCE_SETS = {
    "number_words": TextSet(Embedded("number_words"), vocabulary=len(number_words.TOKENS)),
    "sst2": TextSet(SST2, 67_349, SENTENCE, prefix="sst2 sentence: ", words=("negative", "positive")),
}

Entry = TypeVar("Entry", ImageSet, TextSet)


def _entry(sets: Mapping[str, Entry], name: str) -> Entry:
    """The set `name` of one kind; raises `Refused` for an unknown one."""
    if name not in sets:
        raise unknown("data set", name, sets)
    return sets[name]


image_set = partial(_entry, IMAGE_SETS)
classification_set = partial(_entry, CLASSIFICATION_SETS)
language_set = partial(_entry, LANGUAGE_SETS)
sequence_to_sequence_set = partial(_entry, SEQUENCE_TO_SEQUENCE_SETS)

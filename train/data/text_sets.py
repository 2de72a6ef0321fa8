"""Text data sets by name, for each of the three tasks on text: what is known of them before any file is read."""

import string
from collections.abc import Mapping
from dataclasses import dataclass

from train.data import number_words
from train.engine.errors import unknown

PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))
SHAKESPEARE = "\n !$&',-.3:;?" + string.ascii_uppercase + string.ascii_lowercase
DIGITS, DIGIT_TOKENS = 10, 18  # tokens: one for filling up, and the pixel values 0 to 16


@dataclass(frozen=True)
class TextSet:
    """Facts that a model needs before any file is read. Without `hub` the set is embedded.

    `vocabulary` is the number of tokens where the data alone decide it, `alphabet` that of characters.
    `columns` are the Hub's names of the text and, for pairs, of the second one. With `prefix` and `words`
    a class is a text to be generated (Raffel et al. 2020, appendix D).
    """

    hub: str | None = None
    configuration: str | None = None
    revision: str | None = None
    evaluation: str = "validation"
    columns: tuple[str, ...] = ("text",)
    classes: int | None = None
    vocabulary: int | None = None
    alphabet: str | None = None
    prefix: str = ""
    words: tuple[str, ...] = ()

    @property
    def subwords(self) -> bool:
        """Whether a tokenizer cuts the text: a pretrained model's own, where there is one."""
        return self.hub is not None and self.alphabet is None


def _glue(task: str, *columns: str, classes: int = 2, evaluation: str = "validation") -> TextSet:
    return TextSet("nyu-mll/glue", task, columns=columns, classes=classes, evaluation=evaluation)


CLASSIFICATION = {
    "digits": TextSet(classes=DIGITS, vocabulary=DIGIT_TOKENS),
    "sst2": TextSet("stanfordnlp/sst2", columns=("sentence",), classes=2),
    "glue/cola": _glue("cola", "sentence"),
    "glue/sst2": _glue("sst2", "sentence"),
    "glue/mrpc": _glue("mrpc", "sentence1", "sentence2"),
    "glue/qqp": _glue("qqp", "question1", "question2"),
    "glue/mnli": _glue("mnli", "premise", "hypothesis", classes=3, evaluation="validation_matched"),
    "glue/qnli": _glue("qnli", "question", "sentence"),
    "glue/rte": _glue("rte", "sentence1", "sentence2"),
}
LANGUAGE = {
    "pydoc": TextSet(alphabet=PRINTABLE, vocabulary=len(PRINTABLE)),
    # The Hub has it as a script, which `datasets` no longer runs, and as parquet under this revision.
    "tiny_shakespeare": TextSet(
        "karpathy/tiny_shakespeare",
        revision="refs/convert/parquet",
        alphabet=SHAKESPEARE,
        vocabulary=len(SHAKESPEARE),
    ),
    "wikitext": TextSet("Salesforce/wikitext", "wikitext-103-raw-v1"),
}
SEQUENCE_TO_SEQUENCE = {
    "number_words": TextSet(vocabulary=len(number_words.TOKENS)),
    "sst2": TextSet(
        "stanfordnlp/sst2", columns=("sentence",), prefix="sst2 sentence: ", words=("negative", "positive")
    ),
}


def classified(name: str) -> TextSet:
    """The facts of classification set `name`; raises `Refused` for an unknown one."""
    return _facts(name, CLASSIFICATION)


def language(name: str) -> TextSet:
    """The facts of language modelling set `name`; raises `Refused` for an unknown one."""
    return _facts(name, LANGUAGE)


def translated(name: str) -> TextSet:
    """The facts of sequence-to-sequence set `name`; raises `Refused` for an unknown one."""
    return _facts(name, SEQUENCE_TO_SEQUENCE)


def _facts(name: str, sets: Mapping[str, TextSet]) -> TextSet:
    if name not in sets:
        raise unknown("data set", name, sets)
    return sets[name]

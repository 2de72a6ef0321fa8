"""Data with nothing to download: scikit-learn's digits and Python's documentation, as the tasks take them."""

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data.images_in_memory import Pixels
from train.data.tokens import Encoded, EncodedSplit

DIGITS_EVALUATED = {"digits": 360, "digits_large_evaluation": 719}  # of 1,797, where they are split at random


def digit_images(size: int, channels: int, loader: str = "digits") -> tuple[Pixels, Pixels]:
    """The 8x8 digits at `size` pixels to train on and to evaluate, split as `loader` says.

    At random and by class, or for "digits_in_order" as scikit-learn's exercise does: the last tenth evaluates
    (https://scikit-learn.org/stable/auto_examples/exercises/plot_digits_classification_exercise.html).
    """
    values, labels = _digits()
    images = values.float().view(-1, 1, 8, 8) * (255 / 16)
    images = F.interpolate(images, size=(size, size), mode="bilinear")
    pixels = images.round().to(torch.uint8).expand(-1, channels, -1, -1).permute(0, 2, 3, 1).contiguous()
    if loader == "digits_in_order":
        train, evaluation = torch.arange(len(labels)).tensor_split([len(labels) * 9 // 10])
    else:
        train, evaluation = _split_by_class(labels, DIGITS_EVALUATED[loader])
    whole = Pixels(pixels, labels)
    return whole[train], whole[evaluation]


def digit_tokens(length: int, classes: int | None = None) -> list[EncodedSplit]:
    """The first `length` pixels of the digits, row by row, as tokens from 1 to 17; labels modulo `classes`."""
    values, labels = _digits()
    tokens, targets = values[:, :length] + 1, labels if classes is None else labels % classes
    parts = _split_by_class(labels, DIGITS_EVALUATED["digits"])
    return [EncodedSplit(Encoded(tokens[part].tolist()), targets[part]) for part in parts]


def documentation(alphabet: str) -> str:
    """Python's own documentation of its language, as plain text, without characters foreign to `alphabet`."""
    from pydoc_data.topics import topics

    plain = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014", "''\"\"--")
    text = "\n\n".join(f"{topic}\n\n{topics[topic]}" for topic in sorted(topics)).translate(plain)
    return "".join(filter(set(alphabet).__contains__, text))


def _digits() -> tuple[Tensor, Tensor]:
    """Pixel values 0 to 16 (1797, 64) and labels (1797,), int64."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return torch.tensor(digits.data, dtype=torch.int64), torch.tensor(digits.target, dtype=torch.int64)


def _split_by_class(labels: Tensor, evaluated: int) -> tuple[Tensor, Tensor]:
    """The indices to train on and the `evaluated` ones, the same for every seed."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(range(len(labels)), test_size=evaluated, stratify=labels.numpy(), random_state=0)
    return torch.tensor(parts[0]), torch.tensor(parts[1])

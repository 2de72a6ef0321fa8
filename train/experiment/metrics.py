"""The metrics of the tasks: what each is, what it sums over batches, and the figure that the sums give."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reports.records import metric
from reports.records.metric import Metric
from train.data.tokens import IGNORED

Sums = Mapping[str, Tensor]
TOP5_CLASSES = 20  # with fewer, five guesses say little


@dataclass(frozen=True)
class Measure:
    """A metric and how it is computed.

    `count(logits, labels)` gives the sums of one batch, from float32 logits (..., C) and labels (...); they are added
    up over all batches, and integer counts stay integers, so that every sample counts once. `compute(sums)` gives
    the figure, None where the sums hold none. `right(logits, labels)` says of each sample whether it is right (B,), for
    a metric that is the share of these.
    """

    metric: Metric
    count: Callable[[Tensor, Tensor], dict[str, Tensor]]
    compute: Callable[[Sums], float | None]
    right: Callable[[Tensor, Tensor], Tensor] | None = None


def count(measures: Sequence[Measure], logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The sums of all `measures` over one batch; measures that share a `count` share its sums."""
    return {
        f"{number}/{name}": value
        for number, function in enumerate(_counts(measures))
        for name, value in function(logits, labels).items()
    }


def compute(measures: Sequence[Measure], sums: Sums) -> dict[str, float]:
    """The figures by `Metric.key`."""
    parts: list[dict[str, Tensor]] = [{} for _ in _counts(measures)]
    for name, value in sums.items():
        number, _, own = name.partition("/")
        parts[int(number)][own] = value
    values = {
        measure.metric.key: measure.compute(parts[_counts(measures).index(measure.count)]) for measure in measures
    }
    return {key: float(value) for key, value in values.items() if value is not None}


def _counts(measures: Sequence[Measure]) -> list[Callable[[Tensor, Tensor], dict[str, Tensor]]]:
    return list(dict.fromkeys(measure.count for measure in measures))


def are_right(logits: Tensor, labels: Tensor) -> Tensor:
    """Which samples are right: those of which all labels that count are."""
    right = logits.argmax(dim=-1) == labels
    return (right | (labels == IGNORED)).flatten(1).all(dim=1) if labels.ndim > 1 else right


def count_right(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Samples that are right."""
    return {"right": are_right(logits, labels).sum(), "samples": torch.tensor(len(labels))}


def count_top5(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Samples whose class is among the five largest logits; nothing where there are few classes."""
    if logits.shape[-1] < TOP5_CLASSES:
        return {}
    right = (logits.topk(5, dim=-1).indices == labels[:, None]).any(dim=1)
    return {"right": right.sum(), "samples": torch.tensor(len(labels))}


def count_outcomes(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Samples by whether they are of class 1 and by whether that is predicted: (2, 2), a row an actual outcome."""
    pairs = 2 * (labels == 1) + (logits.argmax(dim=-1) == 1)
    return {"outcomes": torch.bincount(pairs, minlength=4).reshape(2, 2)}


def count_loss(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The summed cross entropy over labels that count, in float64: a sum in half sticks at 256 or overflows."""
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return {"loss": losses.double().sum(), "labels": (labels != IGNORED).sum()}


def share_of_samples(sums: Sums) -> float | None:
    return int(sums["right"]) / int(sums["samples"]) if sums else None


def matthews_correlation(sums: Sums) -> float:
    """Matthews 1975, https://doi.org/10.1016/0005-2795(75)90109-9; 0 where a class is never predicted or there."""
    (true_negative, false_positive), (false_negative, true_positive) = sums["outcomes"].tolist()
    predicted, actual = true_positive + false_positive, true_positive + false_negative
    others_predicted, others_actual = true_negative + false_negative, true_negative + false_positive
    product = predicted * actual * others_predicted * others_actual
    return (true_positive * true_negative - false_positive * false_negative) / math.sqrt(product) if product else 0.0


def f1(sums: Sums) -> float:
    """Of class 1: the harmonic mean of precision and recall; 0 where it is never predicted nor there."""
    (_, false_positive), (false_negative, true_positive) = sums["outcomes"].tolist()
    total = 2 * true_positive + false_positive + false_negative
    return 2 * true_positive / total if total else 0.0


def mean_loss(sums: Sums) -> float:
    return sums["loss"].item() / int(sums["labels"])


def exponential_of_loss(sums: Sums) -> float:
    return float((sums["loss"].cpu() / int(sums["labels"])).exp())


# A generated sequence is right when all of its labels are, each given the right ones before it: that is when greedy
# decoding would have produced it.
ACCURACY = Measure(metric.ACCURACY, count_right, share_of_samples, are_right)
TOP5_ACCURACY = Measure(
    Metric(name="top5_accuracy", unit="%", range=(0, 1), higher_is_better=True, decimals=2),
    count_top5,
    share_of_samples,
)
MATTHEWS_CORRELATION = Measure(
    Metric(name="matthews_correlation", range=(-1, 1), higher_is_better=True), count_outcomes, matthews_correlation
)
F1 = Measure(Metric(name="f1", unit="%", range=(0, 1), higher_is_better=True, decimals=2), count_outcomes, f1)
LOSS = Measure(metric.LOSS, count_loss, mean_loss)
PERPLEXITY = Measure(metric.PERPLEXITY, count_loss, exponential_of_loss)

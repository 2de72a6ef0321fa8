"""The metrics of the tasks: what each is, what it sums over batches, and the figure that the sums give."""

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
    the figure, None where the sums hold none.
    """

    metric: Metric
    count: Callable[[Tensor, Tensor], dict[str, Tensor]]
    compute: Callable[[Sums], float | None]


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


def count_right(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Samples that are right: those of which all labels that count are."""
    right = logits.argmax(dim=-1) == labels
    if labels.ndim > 1:
        right = (right | (labels == IGNORED)).flatten(1).all(dim=1)
    return {"right": right.sum(), "samples": torch.tensor(len(labels))}


def count_top5(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Samples whose class is among the five largest logits; nothing where there are few classes."""
    if logits.shape[-1] < TOP5_CLASSES:
        return {}
    right = (logits.topk(5, dim=-1).indices == labels[:, None]).any(dim=1)
    return {"right": right.sum(), "samples": torch.tensor(len(labels))}


def count_loss(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The summed cross entropy over labels that count, in float64: a sum in half sticks at 256 or overflows."""
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return {"loss": losses.double().sum(), "labels": (labels != IGNORED).sum()}


def share_of_samples(sums: Sums) -> float | None:
    return int(sums["right"]) / int(sums["samples"]) if sums else None


def mean_loss(sums: Sums) -> float:
    return sums["loss"].item() / int(sums["labels"])


def exponential_of_loss(sums: Sums) -> float:
    return float((sums["loss"].cpu() / int(sums["labels"])).exp())


# A generated sequence is right when all of its labels are, each given the right ones before it: that is when greedy
# decoding would have produced it.
ACCURACY = Measure(metric.ACCURACY, count_right, share_of_samples)
TOP5_ACCURACY = Measure(
    Metric(name="top5_accuracy", unit="%", range=(0, 1), higher_is_better=True, decimals=2),
    count_top5,
    share_of_samples,
)
LOSS = Measure(metric.LOSS, count_loss, mean_loss)
PERPLEXITY = Measure(metric.PERPLEXITY, count_loss, exponential_of_loss)

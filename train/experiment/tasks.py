"""What a task is: how a batch becomes logits, what the loss is, and how evaluation is scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.data import vision
from train.engine.fit import Batches, Score
from train.engine.step import Batch, Forward
from train.experiment.config import Experiment


@dataclass(frozen=True)
class Task:
    """The seam between a kind of model and the engine.

    `metric` is the name under `eval/` that decides which weights are best and which number a comparison
    is about, `higher_is_better` its direction. `summarise` turns the sums of `score` into metrics.
    """

    metric: str
    higher_is_better: bool
    forward: Forward
    weight: Callable[[Batch], float | Tensor]
    score: Score
    summarise: Callable[[Mapping[str, Tensor]], dict[str, float]]
    load: Callable[..., tuple[Batches, Batches]]
    facts: Callable[[str], Any]


def cross_entropy(config: Experiment) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean cross entropy of float32 logits, with the experiment's label smoothing."""
    return partial(F.cross_entropy, label_smoothing=config.label_smoothing)


def classify_images(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits (B, classes) and labels (B,)."""
    return model(batch["images"]), batch["labels"]


def score_classes(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Integer counts, and the summed cross entropy in float64: a sum in half sticks at 256 or overflows."""
    return {
        "loss": F.cross_entropy(logits, labels, reduction="none").double().sum(),
        "correct": (logits.argmax(dim=1) == labels).sum(),
        "samples": torch.tensor(len(labels)),
    }


def summarise_classes(totals: Mapping[str, Tensor]) -> dict[str, float]:
    """`eval/loss` (nats) and `eval/accuracy` (fraction)."""
    samples = int(totals["samples"])
    return {"eval/loss": totals["loss"].item() / samples, "eval/accuracy": int(totals["correct"]) / samples}


image_classification = Task(
    metric="accuracy",
    higher_is_better=True,
    forward=classify_images,
    weight=lambda batch: len(batch["labels"]),
    score=score_classes,
    summarise=summarise_classes,
    load=vision.load,
    facts=vision.image_set,
)

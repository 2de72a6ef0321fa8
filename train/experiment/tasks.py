"""What a task is: how a batch becomes logits, what the loss is, and how evaluation is scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.data import text, text_sets, vision
from train.data.sequences import IGNORED
from train.engine.errors import EngineFault
from train.engine.fit import Batches, Score
from train.engine.step import Batch, Forward, Loss
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
    loss: Callable[[Experiment], Loss]
    weight: Callable[[Batch], float | Tensor]
    tokens: Callable[[Batch], int]
    score: Score
    summarise: Callable[[Mapping[str, Tensor]], dict[str, float]]
    load: Callable[..., tuple[Batches, Batches]]
    facts: Callable[[str], Any]


def cross_entropy(config: Experiment) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean cross entropy of float32 logits (..., C) over labels (...) that count, with the label smoothing."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(
            logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, label_smoothing=config.label_smoothing
        )

    return loss


def classify_images(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits (B, classes) and labels (B,)."""
    return model(batch["images"]), batch["labels"]


def read_text(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits (B, classes) or (B, T, V), and labels (B,) or (B, T); all that is not a label is the model's input."""
    output = model(**{name: tensor for name, tensor in batch.items() if name != "labels"})
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise EngineFault(f"the model returned {type(output).__name__}; `forward` needs a tensor or one with .logits")
    return logits, batch["labels"]


def count_samples(batch: Batch) -> int:
    """The weight of a batch in which every sample has one label."""
    return len(batch["labels"])


def count_labels(batch: Batch) -> Tensor:
    """The weight of a batch with a label a token: how many count, on the device and without waiting for it."""
    return (batch["labels"] != IGNORED).sum()


def count_tokens(batch: Batch) -> int:
    """Positions that a text model computes, the filling of shorter sequences included; 0 for images."""
    return sum(tokens.numel() for name, tokens in batch.items() if name in ("input_ids", "decoder_input_ids"))


def score_labels(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Integer counts over labels that count, and the summed cross entropy in float64.

    A sum in half sticks at 256 or overflows. `whole` counts the samples whose labels are all right.
    """
    counted = labels != IGNORED
    right = logits.argmax(dim=-1) == labels
    losses = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return {
        "loss": losses.double().sum(),
        "labels": counted.sum(),
        "correct": (right & counted).sum(),
        "whole": (right | ~counted).flatten(1).all(dim=1).sum() if labels.ndim > 1 else right.sum(),
        "samples": torch.tensor(len(labels)),
    }


def summarise_classes(totals: Mapping[str, Tensor]) -> dict[str, float]:
    """`eval/loss` (nats a label) and `eval/accuracy` (fraction of samples that are right).

    A generated sequence is right when all of its labels are, each given the right ones before it; that
    is when greedy decoding would have produced it.
    """
    accuracy = int(totals["whole"]) / int(totals["samples"])
    return {"eval/loss": totals["loss"].item() / int(totals["labels"]), "eval/accuracy": accuracy}


def summarise_language(totals: Mapping[str, Tensor]) -> dict[str, float]:
    """`eval/loss` (nats a token) and `eval/perplexity`."""
    loss = totals["loss"].cpu() / int(totals["labels"])
    return {"eval/loss": loss.item(), "eval/perplexity": loss.exp().item()}


image_classification = Task(
    metric="accuracy",
    higher_is_better=True,
    forward=classify_images,
    loss=cross_entropy,
    weight=count_samples,
    tokens=count_tokens,
    score=score_labels,
    summarise=summarise_classes,
    load=vision.load,
    facts=vision.image_set,
)
sequence_classification = replace(
    image_classification, forward=read_text, load=text.load_classification, facts=text_sets.classified
)
language_modelling = replace(
    sequence_classification,
    metric="loss",
    higher_is_better=False,
    weight=count_labels,
    summarise=summarise_language,
    load=text.load_language,
    facts=text_sets.language,
)
sequence_to_sequence = replace(
    sequence_classification, weight=count_labels, load=text.load_sequence_to_sequence, facts=text_sets.translated
)

"""What a task is: how a batch becomes logits, what the loss is, and how evaluation is scored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import text as text_models
from train.data import catalog, images, text
from train.data.catalog import ImageSet, TextSet
from train.data.specification import DataSpec, Splits
from train.data.tokens import IGNORED
from train.engine.errors import EngineFault, Refused
from train.engine.fit import Score
from train.engine.step import Batch, Forward, Loss
from train.experiment.config import Experiment

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Task:
    """The seam between a kind of model and the engine.

    `metric` is the name under `eval/` that decides which weights are best and which number a comparison
    is about, `higher_is_better` its direction. `summarise` turns the sums of `score` into metrics.
    `data_set` finds a set in the catalogue by its name, `read` makes its batches.
    """

    metric: str
    higher_is_better: bool
    forward: Forward
    loss: Callable[[Experiment], Loss]
    weight: Callable[[Batch], float | Tensor]
    tokens: Callable[[Batch], int]
    score: Score
    summarise: Callable[[Mapping[str, Tensor]], dict[str, float]]
    data_set: Callable[[str], ImageSet | TextSet]
    read: Callable[[DataSpec], Splits]

    def load(self, config: Experiment, seed: int, device: torch.device, smoke: bool = False) -> Splits:
        """The batches of an experiment's data set; a smoke run takes embedded data in its place.

        Raises `Refused` for data that are missing or damaged, and for an experiment that does not fit them.
        """
        return self.read(data_specification(config, self.data_set(config.data.name), seed, device, smoke))


def data_specification(
    config: Experiment, entry: ImageSet | TextSet, seed: int, device: torch.device, smoke: bool
) -> DataSpec:
    """What the experiment wants of its data set `entry`, with what its model says about a vocabulary."""
    vocab_size, tokenizer = config.vocab_size, None
    if isinstance(entry, TextSet):
        vocab_size = vocab_size or entry.vocabulary or _of_architecture(text_models.vocabulary_size, config)
        if entry.needs_tokenizer and config.pretrained and not smoke:
            tokenizer = _of_architecture(text_models.origin, config)
    data = config.data
    return DataSpec(
        name=data.name,
        batch_size=config.batch_size,
        eval_batch_size=data.eval_batch_size,
        seed=seed,
        device=device,
        classes=config.num_classes,
        length=data.length,
        augment=data.augment,
        train_samples=data.train_samples,
        eval_samples=data.eval_samples,
        held_out=data.held_out,
        mean=data.mean,
        std=data.std,
        workers=config.workers,
        channels_last=config.channels_last,
        stand_in=smoke,
        vocab_size=vocab_size,
        tokenizer=tokenizer,
    )


def _of_architecture(question: Callable[[str, bool | str], Answer], config: Experiment) -> Answer:
    """What `models.text` answers for the experiment's architecture; its ValueErrors are `Refused` here."""
    if config.arch not in text_models.ARCHITECTURES and not config.pretrained:
        known = ", ".join(text_models.ARCHITECTURES)
        raise Refused(f"vocab_size: must be given for arch {config.arch!r}, which is none of {known}")
    try:
        return question(config.arch, config.pretrained)
    except ValueError as error:
        raise Refused(f"{config.name}: {error}") from error


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
    data_set=catalog.image_set,
    read=images.load,
)
sequence_classification = replace(
    image_classification, forward=read_text, data_set=catalog.classification_set, read=text.load_classification
)
language_modelling = replace(
    sequence_classification,
    metric="loss",
    higher_is_better=False,
    weight=count_labels,
    summarise=summarise_language,
    data_set=catalog.language_set,
    read=text.load_language,
)
sequence_to_sequence = replace(
    sequence_classification,
    weight=count_labels,
    data_set=catalog.sequence_to_sequence_set,
    read=text.load_sequence_to_sequence,
)

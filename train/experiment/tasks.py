"""What a task is: how a batch becomes logits, what the loss is, how it is evaluated, and on what data."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import text as text_models
from reports.records.config import Experiment
from reports.records.metric import Metric
from train.data import catalog, images, text
from train.data.catalog import ImageSet, TextSet
from train.data.specification import DataSpec, Splits
from train.data.tokens import IGNORED
from train.engine.errors import EngineFault, Refused
from train.engine.step import Batch, Forward, Loss
from train.experiment.metrics import ACCURACY, LOSS, PERPLEXITY, TOP5_ACCURACY, Measure, Sums, compute, count


@dataclass(frozen=True)
class Task:
    """The seam between a kind of model and the engine.

    `forward(model, batch)` gives logits and labels, `loss(config)` the loss over both, `weight(batch)` the number of
    labels that the loss is a mean over, `tokens(batch)` the tokens of a text without padding. The first of
    `measures` decides which weights are best and what a comparison is about. `load(spec)` gives the batches of the
    data set that `entry(name)` describes.
    """

    forward: Forward
    loss: Callable[[Experiment], Loss]
    weight: Callable[[Batch], float | Tensor]
    tokens: Callable[[Batch], int | Tensor]
    measures: tuple[Measure, ...]
    entry: Callable[[str], ImageSet | TextSet]
    load: Callable[[DataSpec], Splits]

    def __post_init__(self) -> None:
        names = [metric.name for metric in self.metrics]
        if not names or len(set(names)) < len(names):
            raise Refused(f"a task needs measures of different names, not {names}")

    @property
    def metric(self) -> Metric:
        """The metric that decides."""
        return self.measures[0].metric

    @property
    def metrics(self) -> list[Metric]:
        return [measure.metric for measure in self.measures]

    def score(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The sums of one batch, to be added up over all."""
        return count(self.measures, logits, labels)

    def summarise(self, sums: Sums) -> dict[str, float]:
        """The metrics by `Metric.key`."""
        return compute(self.measures, sums)

    def data(self, config: Experiment, seed: int, device: torch.device, smoke: bool) -> Splits:
        """The batches of an experiment; raises `Refused` for data that are missing, damaged or do not fit."""
        return self.load(_specification(self.entry(config.data.name), config, seed, device, smoke))


def cross_entropy(config: Experiment) -> Loss:
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


def count_tokens(batch: Batch) -> int | Tensor:
    """Tokens of the inputs and of the texts to generate, without padding; 0 for images.

    `throughput/tokens_per_sec` counts them. Where they are counted on the device, nothing waits for it.
    """
    tokens: int | Tensor = 0
    if "input_ids" in batch:
        tokens = batch["attention_mask"].sum() if "attention_mask" in batch else batch["input_ids"].numel()
    if "decoder_input_ids" in batch:
        tokens = tokens + count_labels(batch)
    return tokens


def _specification(
    entry: ImageSet | TextSet, config: Experiment, seed: int, device: torch.device, smoke: bool
) -> DataSpec:
    if isinstance(entry, ImageSet) and config.vocab_size is not None:
        raise Refused(f"vocab_size: has no meaning for images; leave it null, not {config.vocab_size}")
    return DataSpec(
        **config.data.model_dump(),
        batch_size=config.batch_size,
        seed=seed,
        device=device,
        classes=config.num_classes,
        workers=config.workers,
        channels_last=config.channels_last,
        stand_in=smoke,
        vocab_size=_vocab_size(entry, config) if isinstance(entry, TextSet) else None,
        tokenizer=_tokenizer(config) if isinstance(entry, TextSet) and entry.needs_tokenizer else None,
    )


def _vocab_size(entry: TextSet, config: Experiment) -> int:
    """Rows of the embedding; asking the architecture loads transformers, so it comes last."""
    return config.vocab_size or entry.vocabulary or _architecture_vocab_size(config)


def _architecture_vocab_size(config: Experiment) -> int:
    if config.arch not in text_models.ARCHITECTURES and not config.pretrained:
        known = ", ".join(text_models.ARCHITECTURES)
        raise Refused(f"vocab_size: must be given for arch {config.arch!r}, which is none of {known}")
    try:
        return text_models.vocabulary_size(config.arch, config.pretrained)
    except ValueError as error:
        raise Refused(f"{config.name}: {error}") from error


def _tokenizer(config: Experiment) -> str | None:
    """The folder or the Hub's name of the pretrained model's tokenizer; None trains one."""
    if not config.pretrained:
        return None
    try:
        return text_models.origin(config.arch, config.pretrained)
    except ValueError as error:
        raise Refused(f"{config.name}: {error}") from error


image_classification = Task(
    forward=classify_images,
    loss=cross_entropy,
    weight=count_samples,
    tokens=count_tokens,
    measures=(ACCURACY, LOSS, TOP5_ACCURACY),
    entry=catalog.image_set,
    load=images.load,
)
sequence_classification = replace(
    image_classification, forward=read_text, entry=catalog.classification_set, load=text.load_classification
)
language_modelling = replace(
    sequence_classification,
    weight=count_labels,
    measures=(LOSS, PERPLEXITY),
    entry=catalog.language_set,
    load=text.load_language,
)
sequence_to_sequence = replace(
    sequence_classification,
    weight=count_labels,
    measures=(ACCURACY, LOSS),
    entry=catalog.sequence_to_sequence_set,
    load=text.load_sequence_to_sequence,
)

"""Image data sets by name, and the batches of one split."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data import image_folder, source
from train.data.order import Order, generator
from train.data.resident import ResidentImages, pixel_statistics
from train.data.streamed import StreamedImages
from train.engine.errors import Refused, unknown
from train.engine.fit import Batches
from train.experiment.config import Experiment

DIGITS_EVAL = 360


@dataclass(frozen=True)
class ImageSet:
    """Facts that a model needs before any file is read. Without `hub` the set ships with scikit-learn.

    `image`, `label` and `evaluation` are the Hub's column and split names. A `streamed` set is decoded
    sample by sample in worker processes; the others are decoded once and kept in memory. The digits are split
    at random and by class, or where `in_order` as scikit-learn's exercise on them does: the last tenth evaluates
    (https://scikit-learn.org/stable/auto_examples/exercises/plot_digits_classification_exercise.html).
    """

    classes: int
    channels: int
    size: int
    hub: str | None = None
    image: str = "image"
    label: str = "label"
    evaluation: str = "test"
    streamed: bool = False
    in_order: bool = False


IMAGE_SETS = {
    "digits": ImageSet(classes=10, channels=1, size=32),
    "digits_8x8": ImageSet(classes=10, channels=1, size=8, in_order=True),
    "fashion_mnist": ImageSet(classes=10, channels=1, size=28, hub="zalando-datasets/fashion_mnist"),
    "cifar10": ImageSet(classes=10, channels=3, size=32, hub="uoft-cs/cifar10", image="img"),
    "imagenet": ImageSet(1000, 3, 224, hub="ILSVRC/imagenet-1k", evaluation="validation", streamed=True),
}


def image_set(name: str) -> ImageSet:
    """The facts of data set `name`; raises `Refused` for an unknown one."""
    if name not in IMAGE_SETS:
        raise unknown("data set", name, IMAGE_SETS)
    return IMAGE_SETS[name]


def load(config: Experiment, seed: int, device: torch.device, smoke: bool = False) -> tuple[Batches, Batches]:
    """Training and evaluation batches: {"images": float32 (B, C, H, W), "labels": int64 (B,)}, normalised.

    A smoke run takes the embedded digits in the shape of the set that it stands in for.
    Raises `Refused` for data that is missing or damaged, and for a configuration that does not fit it.
    """
    facts = image_set(config.data.name)
    require_unset(config, ("length",), "images")
    if config.vocab_size is not None:
        raise Refused(f"vocab_size: has no meaning for images; leave it null, not {config.vocab_size}")
    _check_augment(config, facts, smoke)
    if facts.streamed and not smoke:
        return _load_streamed(config, facts, seed, device)
    splits = _digits(facts) if smoke or facts.hub is None else _decoded(config.data.name, facts)
    train, evaluation = (
        _limited(split, limit)
        for split, limit in zip(splits, (config.data.train_samples, config.data.eval_samples), strict=True)
    )
    for name, (_, labels) in (("training", train), ("evaluation", evaluation)):
        check_labels(labels, config, f"{config.data.name} {name} split")
    held_out, train = _held_out(train, config)
    mean, std = _normalisation(config, train[0])
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    shared: dict[str, Any] = {"mean": mean, "std": std, "device": device, "layout": layout}
    check_batch_size(config, len(train[0]))
    eval_batch_size = config.data.eval_batch_size or config.batch_size
    batches = ResidentImages(*train, config.batch_size, **shared, seed=seed, augment=config.data.augment)
    batches.held_out = held_out and ResidentImages(*held_out, eval_batch_size, **shared)
    return batches, ResidentImages(*evaluation, eval_batch_size, **shared)


def labels_of(split: Any, column: str, name: str) -> Tensor:
    """The labels (N,) int64 of a Hub split; raises `Refused` for a column of anything but integers."""
    values = split[column][:]
    wrong = next((index for index, value in enumerate(values) if type(value) is not int), None)
    if wrong is not None:
        raise Refused(f"data set {name!r}: column {column!r} holds {values[wrong]!r} at sample {wrong}, not an integer")
    return torch.tensor(values, dtype=torch.int64)


def check_labels(labels: Tensor, config: Experiment, where: str) -> None:
    """Raise `Refused` unless every label (N,) is a class of the head, naming the first that is not."""
    classes = config.num_classes
    assert classes is not None
    check_label_range(labels, classes, where)
    highest = int(labels.max())
    if highest + 1 < classes:
        print(f"warning: num_classes={classes}, but {where} has labels 0 to {highest} only", flush=True)


def check_label_range(labels: Tensor, classes: int, where: str) -> None:
    """Raise `Refused` unless every label (N,) is from 0 to `classes` - 1, naming the first that is not."""
    bad = torch.nonzero((labels < 0) | (labels >= classes))
    if len(bad):
        index = int(bad[0])
        raise Refused(
            f"num_classes: {where} has label {int(labels[index])} at sample {index}, but num_classes={classes}"
        )


def require_unset(config: Experiment, keys: Sequence[str], data: str) -> None:
    """Raise `Refused` for a key of `data` that the data set would pass over."""
    for key in keys:
        if (value := getattr(config.data, key)) is not None:
            raise Refused(f"data.{key}: has no meaning for {data}; leave it null, not {value}")


def check_batch_size(config: Experiment, samples: int) -> None:
    """Raise `Refused` when the data do not fill one batch; say so when the last batch is left out."""
    if config.batch_size > samples:
        raise Refused(f"batch_size: {config.batch_size} is larger than the {samples} training samples")
    if Order(samples, config.batch_size, seed=0).drops_last:
        print("the last training batch would have one sample: it is left out, in every precision", flush=True)


def _check_augment(config: Experiment, facts: ImageSet, smoke: bool) -> None:
    streamed_only = config.data.augment == "random_resized_crop"
    if facts.streamed != streamed_only and not (facts.streamed and config.data.augment == "none"):
        allowed = "random_resized_crop, none" if facts.streamed else "none, crop, crop_flip"
        raise Refused(f"data.augment: {config.data.augment!r} does not fit {config.data.name}; allowed: {allowed}")


def _load_streamed(config: Experiment, facts: ImageSet, seed: int, device: torch.device) -> tuple[Batches, Batches]:
    assert facts.hub is not None
    folder = source.local_folder(config.data.name)
    if folder is not None and image_folder.is_layout(folder):
        data = image_folder.read(folder, facts.image, facts.label)
    else:
        data = source.load(config.data.name, facts.hub)
    splits = []
    for name, limit in (("train", config.data.train_samples), (facts.evaluation, config.data.eval_samples)):
        split = source.rows(data, config.data.name, name, (facts.image, facts.label))
        if limit is not None and limit < len(split):
            # Spread over the split: class folders come sorted, so the first samples would be of one class.
            split = split.select([index * len(split) // limit for index in range(limit)])
        check_labels(labels_of(split, facts.label, config.data.name), config, f"{config.data.name} {name} split")
        splits.append(split)
    check_batch_size(config, len(splits[0]))
    require_unset(config, ("held_out", "mean", "std"), f"{config.data.name}, which is read sample by sample")
    columns = (facts.image, facts.label, facts.size)
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    shared: dict[str, Any] = {"workers": config.workers, "device": device, "layout": layout}
    augment = config.data.augment == "random_resized_crop"
    return (
        StreamedImages(splits[0], *columns, config.batch_size, **shared, seed=seed, augment=augment),
        StreamedImages(splits[1], *columns, config.data.eval_batch_size or config.batch_size, **shared),
    )


def _held_out(
    split: tuple[Tensor, Tensor], config: Experiment
) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor]]:
    """`data.held_out` samples, the same for every seed, and the rest of the training split."""
    count, (images, labels) = config.data.held_out, split
    if count is None:
        return None, split
    if count >= len(labels):
        raise Refused(f"data.held_out: {count} leaves none of the {len(labels)} training samples to train on")
    order = torch.randperm(len(labels), generator=generator(0, "held out"))
    kept, rest = order[:count].sort().values, order[count:].sort().values
    return (images[kept], labels[kept]), (images[rest], labels[rest])


def _normalisation(config: Experiment, images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,): the configuration's for all channels, or those of `images`."""
    mean, std = pixel_statistics(images)
    if config.data.mean is not None:
        mean = torch.full_like(mean, config.data.mean)
    if config.data.std is not None:
        std = torch.full_like(std, config.data.std)
    return mean, std


def _limited(split: tuple[Tensor, Tensor], limit: int | None) -> tuple[Tensor, Tensor]:
    images, labels = split
    return images[:limit], labels[:limit]


def _digits(facts: ImageSet) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The 8x8 digits in the size and channels of `facts`: 1,437 to train on and 360 to evaluate, or 1,617 and 180."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] * (255 / 16)
    images = F.interpolate(images, size=(facts.size, facts.size), mode="bilinear")
    pixels = images.round().to(torch.uint8).expand(-1, facts.channels, -1, -1).permute(0, 2, 3, 1).contiguous()
    labels = torch.tensor(digits.target, dtype=torch.int64)
    everything = range(len(labels))
    if facts.in_order:
        train, evaluation = everything[: len(everything) * 9 // 10], everything[len(everything) * 9 // 10 :]
    else:
        train, evaluation = train_test_split(everything, test_size=DIGITS_EVAL, stratify=digits.target, random_state=0)
    return (pixels[train], labels[train]), (pixels[evaluation], labels[evaluation])


def _decoded(name: str, facts: ImageSet) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    assert facts.hub is not None
    data = source.load(name, facts.hub)
    columns = (facts.image, facts.label)
    train, evaluation = (source.rows(data, name, split, columns) for split in ("train", facts.evaluation))
    return _decode(train, name, facts), _decode(evaluation, name, facts)


def _decode(split: Any, name: str, facts: ImageSet) -> tuple[Tensor, Tensor]:
    """Images (N, H, W, C) uint8 and labels (N,) of a Hub split; raises `Refused` naming a sample that is damaged."""
    import datasets
    import numpy as np
    from PIL import Image

    encoded = split.cast_column(facts.image, datasets.Image(decode=False))
    images = np.empty((len(split), facts.size, facts.size, facts.channels), dtype=np.uint8)
    mode = "L" if facts.channels == 1 else "RGB"
    for index, item in enumerate(encoded[facts.image]):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(item["bytes"])).convert(mode))
            images[index] = pixels.reshape(facts.size, facts.size, facts.channels)
        except Exception as error:
            raise Refused(
                f"data set {name!r}: sample {index} of its {split.split} split is damaged: {error}"
            ) from error
    return torch.from_numpy(images), labels_of(split, facts.label, name)

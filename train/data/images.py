"""The batches of image data sets."""

from typing import Any

import numpy as np
import torch

from train.data import embedded, hub, image_folder
from train.data.catalog import Embedded, ImageSet, Source, image_set
from train.data.checks import check_batch_size, check_image_augmentation, check_labels, check_unset
from train.data.content import content_sha256
from train.data.decode import decode
from train.data.images_in_memory import ImagesInMemory, Pixels, pixel_statistics
from train.data.images_streamed import StreamedImages
from train.data.order import generator
from train.data.specification import DataSpec, Splits
from train.engine.errors import Refused

DIGIT_LOADERS = {"digits", "digits_large_evaluation", "digits_in_order"}


def load(spec: DataSpec) -> Splits:
    """Batches of {"images": float32 (B, C, H, W), "labels": int64 (B,)}, normalised.

    Raises `Refused` for data that are missing or damaged, and for a specification that does not fit them.
    """
    entry = image_set(spec.name)
    check_unset(spec, ("data.length", "vocab_size"), "images")
    check_image_augmentation(spec, entry.streamed)
    source = spec.source_of(entry, stand_in="digits")
    if isinstance(source, Embedded) and source.loader in DIGIT_LOADERS:
        return _in_memory(spec, *embedded.digit_images(entry.size, entry.channels, source.loader), classes=None)
    splits = _read(spec, entry, source)
    classes = hub.class_names(splits[0], entry.columns.label)
    if entry.streamed:
        return _streamed(spec, entry, *splits, classes)
    return _in_memory(spec, _decode(splits[0], spec.name, entry), _decode(splits[1], spec.name, entry), classes)


def _read(spec: DataSpec, entry: ImageSet, source: Source) -> tuple[Any, Any]:
    """Training and evaluation split as `datasets` has them, from class folders where there are any, within limits."""
    columns, folder = (entry.columns.image, entry.columns.label), hub.local_folder(spec.name)
    in_class_folders = folder is not None and image_folder.is_layout(folder)
    if folder is not None and in_class_folders:
        data = image_folder.read(folder, *columns, entry.evaluation)
    else:
        data = hub.load(spec.name, source)
        if folder is not None and next(iter(data.values())).info.builder_name == "imagefolder":
            # Images in folders of other names, whose classes `datasets` would number by rules of its own.
            raise Refused(f"{folder}: images need the folders train/<class>/ and val/<class>/")
    train, evaluation = (hub.rows(data, spec.name, split, columns) for split in ("train", entry.evaluation))
    if in_class_folders or entry.streamed:
        train, evaluation = _spread(train, spec.train_samples), _spread(evaluation, spec.eval_samples)
    return train, evaluation


def _spread(split: Any, limit: int | None) -> Any:
    """`limit` samples spread over a split: class folders come sorted, so the first would be of one class."""
    if limit is None or limit >= len(split):
        return split
    return split.select([index * len(split) // limit for index in range(limit)])


def _in_memory(spec: DataSpec, train: Pixels, evaluation: Pixels, classes: tuple[str, ...] | None) -> Splits:
    train, evaluation = train[: spec.train_samples], evaluation[: spec.eval_samples]
    check_labels(train.labels, spec, "training")
    check_labels(evaluation.labels, spec, "evaluation")
    held_out, train = _held_out(train, spec)
    check_batch_size(spec, len(train.labels))
    mean, std = pixel_statistics(train.images)
    mean = mean if spec.mean is None else torch.full_like(mean, spec.mean)
    std = std if spec.std is None else torch.full_like(std, spec.std)
    batches = (
        ImagesInMemory(train, spec, mean, std, training=True),
        ImagesInMemory(evaluation, spec, mean, std, training=False),
        None if held_out is None else ImagesInMemory(held_out, spec, mean, std, training=False),
    )
    return Splits(*batches, content_sha256(*batches), classes)


def _held_out(split: Pixels, spec: DataSpec) -> tuple[Pixels | None, Pixels]:
    """The `held_out` samples, the same for every seed, and the rest of the training split."""
    count, samples = spec.held_out, len(split.labels)
    if count is None:
        return None, split
    if count >= samples:
        raise Refused(f"data.held_out: {count} leaves none of the {samples} training samples to train on")
    order = torch.randperm(samples, generator=generator(0, "held out"))
    return split[order[:count].sort().values], split[order[count:].sort().values]


def _streamed(spec: DataSpec, entry: ImageSet, train: Any, evaluation: Any, classes: tuple[str, ...] | None) -> Splits:
    check_unset(spec, ("data.held_out", "data.mean", "data.std"), f"{spec.name}, which is read sample by sample")
    for name, split in (("train", train), (entry.evaluation, evaluation)):
        check_labels(hub.labels_of(split, entry.columns.label, spec.name), spec, name)
    check_batch_size(spec, len(train))
    batches = (
        StreamedImages(train, entry.columns, entry.size, spec, training=True),
        StreamedImages(evaluation, entry.columns, entry.size, spec, training=False),
    )
    return Splits(*batches, content_sha256=content_sha256(*batches), classes=classes)


def _decode(split: Any, name: str, entry: ImageSet) -> Pixels:
    """Images and labels of a split; raises `Refused` naming a sample that is damaged or of another size."""
    import datasets

    encoded = split.cast_column(entry.columns.image, datasets.Image(decode=False))
    images = np.empty((len(split), entry.size, entry.size, entry.channels), dtype=np.uint8)
    for index, item in enumerate(encoded[entry.columns.image]):
        sample = f"data set {name!r}: sample {index} of the {split.split} split"
        image = decode(item, "L" if entry.channels == 1 else "RGB", sample)
        if image.size != (entry.size, entry.size):
            size, file = f"{image.width}x{image.height} pixels", f", {item['path']}," if item["path"] else ""
            raise Refused(f"{sample}{file} has {size}; allowed: {entry.size}x{entry.size}")
        images[index] = np.asarray(image).reshape(entry.size, entry.size, entry.channels)
    return Pixels(torch.from_numpy(images), hub.labels_of(split, entry.columns.label, name))

"""The batches of image data sets."""

import io
from typing import Any

import numpy as np
import torch

from train.data import embedded, hub, image_folder
from train.data.catalog import Embedded, Hub, ImageSet, image_set
from train.data.checks import check_batch_size, check_image_augmentation, check_labels, check_unset
from train.data.images_in_memory import ImagesInMemory, Pixels, pixel_statistics
from train.data.images_streamed import StreamedImages
from train.data.order import generator
from train.data.specification import DataSpec, Splits
from train.engine.errors import Refused


def load(spec: DataSpec) -> Splits:
    """Batches of {"images": float32 (B, C, H, W), "labels": int64 (B,)}, normalised.

    Raises `Refused` for data that are missing or damaged, and for a specification that does not fit them.
    """
    entry = image_set(spec.name)
    check_unset(spec, ("data.length", "vocab_size"), "images")
    check_image_augmentation(spec, entry.streamed)
    source = spec.source_of(entry, stand_in="digits")
    if isinstance(source, Embedded):
        return _in_memory(spec, *embedded.digit_images(entry.size, entry.channels, source.loader))
    if entry.streamed:
        return _streamed(spec, entry, source)
    splits = hub.splits(spec.name, source, entry.evaluation, (entry.columns.image, entry.columns.label))
    return _in_memory(spec, *(_decode(split, spec.name, entry) for split in splits))


def _in_memory(spec: DataSpec, train: Pixels, evaluation: Pixels) -> Splits:
    train, evaluation = train[: spec.train_samples], evaluation[: spec.eval_samples]
    check_labels(train.labels, spec, "training")
    check_labels(evaluation.labels, spec, "evaluation")
    held_out, train = _held_out(train, spec)
    check_batch_size(spec, len(train.labels))
    mean, std = pixel_statistics(train.images)
    mean = mean if spec.mean is None else torch.full_like(mean, spec.mean)
    std = std if spec.std is None else torch.full_like(std, spec.std)
    return Splits(
        ImagesInMemory(train, spec, mean, std, training=True),
        ImagesInMemory(evaluation, spec, mean, std, training=False),
        None if held_out is None else ImagesInMemory(held_out, spec, mean, std, training=False),
    )


def _held_out(split: Pixels, spec: DataSpec) -> tuple[Pixels | None, Pixels]:
    """The `held_out` samples, the same for every seed, and the rest of the training split."""
    count, samples = spec.held_out, len(split.labels)
    if count is None:
        return None, split
    if count >= samples:
        raise Refused(f"data.held_out: {count} leaves none of the {samples} training samples to train on")
    order = torch.randperm(samples, generator=generator(0, "held out"))
    return split[order[:count].sort().values], split[order[count:].sort().values]


def _streamed(spec: DataSpec, entry: ImageSet, source: Hub) -> Splits:
    check_unset(spec, ("data.held_out", "data.mean", "data.std"), f"{spec.name}, which is read sample by sample")
    columns, folder = entry.columns, hub.local_folder(spec.name)
    if folder is not None and source.class_folders and image_folder.is_layout(folder):
        data = image_folder.read(folder, columns.image, columns.label)
    else:
        data = hub.load(spec.name, source)
    splits = []
    for name, limit in (("train", spec.train_samples), (entry.evaluation, spec.eval_samples)):
        split = hub.rows(data, spec.name, name, (columns.image, columns.label))
        if limit is not None and limit < len(split):
            # Spread over the split: class folders come sorted, so the first samples would be of one class.
            split = split.select([index * len(split) // limit for index in range(limit)])
        check_labels(hub.labels_of(split, columns.label, spec.name), spec, name)
        splits.append(split)
    check_batch_size(spec, len(splits[0]))
    return Splits(
        StreamedImages(splits[0], columns, entry.size, spec, training=True),
        StreamedImages(splits[1], columns, entry.size, spec, training=False),
    )


def _decode(split: Any, name: str, entry: ImageSet) -> Pixels:
    """Images and labels of a split; raises `Refused` naming a sample that is damaged."""
    import datasets
    from PIL import Image

    encoded = split.cast_column(entry.columns.image, datasets.Image(decode=False))
    images = np.empty((len(split), entry.size, entry.size, entry.channels), dtype=np.uint8)
    mode = "L" if entry.channels == 1 else "RGB"
    for index, item in enumerate(encoded[entry.columns.image]):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(item["bytes"])).convert(mode))
            images[index] = pixels.reshape(entry.size, entry.size, entry.channels)
        except Exception as error:
            raise Refused(
                f"data set {name!r}: sample {index} of its {split.split} split is damaged: {error}"
            ) from error
    return Pixels(torch.from_numpy(images), hub.labels_of(split, entry.columns.label, name))

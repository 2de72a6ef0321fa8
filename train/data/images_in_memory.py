"""Batches of an image set that fits into memory: stored on the device as uint8, augmented by tensor operations."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data.order import generator
from train.data.specification import DataSpec
from train.data.transfer import to_device
from train.engine.step import Batch

CROP_PADDING = 4  # He et al. 2015, section 4.2: "4 pixels are padded on each side"


@dataclass(frozen=True)
class Pixels:
    """`images` (N, H, W, C) uint8 and their `labels` (N,) int64."""

    images: Tensor
    labels: Tensor

    def __getitem__(self, index: Tensor | slice) -> "Pixels":
        return Pixels(self.images[index], self.labels[index])


class ImagesInMemory:
    """A split on the device; batches are gathered, augmented if for training, and normalised there."""

    def __init__(self, split: Pixels, spec: DataSpec, mean: Tensor, std: Tensor, training: bool) -> None:
        device, augment = spec.device, spec.augment if training else "none"
        self.order = spec.order(len(split.labels), training)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.device, self.memory_format = device, spec.memory_format
        self.height, self.width = split.images.shape[1:3]
        self.padding = CROP_PADDING if augment in ("crop", "crop_flip") else 0
        self.flip = augment == "crop_flip"
        self.images = F.pad(split.images, (0, 0, self.padding, self.padding, self.padding, self.padding)).to(device)
        self.labels = split.labels.to(device)
        self.mean, self.std = mean.to(device), std.to(device)
        self.rows, self.columns = torch.arange(self.height), torch.arange(self.width)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on."""
        for number, index in self.order.rows(epoch, start):
            yield self._batch(index, epoch, number)

    def content(self) -> list[Tensor]:
        """All pixels (N, H, W, C) uint8, without the padding for crops, and all labels (N,)."""
        rows, columns = (slice(self.padding, self.padding + size) for size in (self.height, self.width))
        return [self.images[:, rows, columns], self.labels]

    def digest(self) -> str:
        """SHA-256 of the first epoch's order and of the first batch's augmentation."""
        digest = hashlib.sha256(self.order.digest().encode())
        for draw in self._draws(min(self.order.batch_size, self.samples), 0, 0):
            digest.update(draw.numpy().tobytes())
        return digest.hexdigest()

    def _draws(self, count: int, epoch: int, number: int) -> tuple[Tensor, Tensor]:
        """Row and column indices (B, H) and (B, W) into the padded images: the crop, and the flip."""
        draw = generator(self.order.seed or 0, "augment", epoch, number)
        top, left = torch.randint(0, 2 * self.padding + 1, (2, count, 1), generator=draw)
        columns = self.columns.expand(count, -1)
        if self.flip:
            flipped = torch.randint(0, 2, (count, 1), generator=draw).bool()
            columns = torch.where(flipped, columns.flip(1), columns)
        return self.rows + top, columns + left

    def _batch(self, index: Tensor, epoch: int, number: int) -> Batch:
        rows, columns = self._draws(len(index), epoch, number)
        index, rows, columns = (to_device(tensor, self.device) for tensor in (index, rows, columns))
        pixels = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        images = pixels.float().div_(255).sub_(self.mean).div_(self.std).permute(0, 3, 1, 2)
        return {"images": images.contiguous(memory_format=self.memory_format), "labels": self.labels[index]}


def pixel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (C,) float32 of images (N, H, W, C) uint8 on the scale 0 to 1, from exact counts."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(dim=3)])
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    mean = shares @ levels
    deviation = (shares * (levels - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return mean.float(), deviation.float()

"""Batches of a data set too large for memory, decoded and augmented sample by sample in worker processes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from train.data.catalog import Columns
from train.data.order import generator
from train.data.specification import DataSpec
from train.engine.errors import Refused
from train.engine.step import Batch

# torchvision's ImageNet statistics, by which published models normalise (torchvision/references/classification).
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class StreamedImages:
    """A split of `datasets` with an image and a label column, at `size` pixels.

    Training draws torchvision's RandomResizedCrop and flip where the specification says so; evaluation resizes to
    256/224 of `size` and crops the centre. Each sample's draws are a function of seed, epoch and sample, so they do
    not depend on how many workers there are or on where the run was resumed.
    """

    def __init__(self, split: Any, columns: Columns, size: int, spec: DataSpec, training: bool) -> None:
        self.order = spec.order(len(split), training)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.split, self.columns, self.size, self.spec = split, columns, size, spec
        self.augment = training and spec.augment == "random_resized_crop"

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on; copies from pinned memory do not block."""
        stream = (self.order.seed or 0, epoch)
        loader = DataLoader(
            _Samples(self.split, self.columns, _transform(self.size, self.augment), stream),
            batch_sampler=[index.tolist() for _, index in self.order.rows(epoch, start)],
            num_workers=self.spec.workers,
            collate_fn=_collate,
            pin_memory=self.spec.device.type == "cuda",
            # Without its own generator the loader draws from the global one, once an epoch: a resume in
            # mid-epoch would draw once more than the uninterrupted run.
            generator=generator(self.order.seed or 0, "loader", epoch),
        )
        for batch in loader:
            if isinstance(batch, Refused):
                raise batch
            images, labels = batch
            images = images.to(self.spec.device, memory_format=self.spec.memory_format, non_blocking=True)
            yield {"images": images, "labels": labels.to(self.spec.device, non_blocking=True)}

    def digest(self) -> str:
        """SHA-256 of the first epoch's order; the augmentation follows from it and the seed."""
        return self.order.digest()


Sample = tuple[Tensor, int] | Refused


class _Samples(Dataset[Sample]):
    """Decoded samples; for a damaged one its `Refused`, because a worker turns what it raises into a traceback."""

    def __init__(self, split: Any, columns: Columns, transform: Any, stream: tuple[int, int]) -> None:
        self.split, self.columns, self.transform, self.stream = split, columns, transform, stream

    def __getitem__(self, index: int) -> Sample:
        try:
            sample = self.split[index]
            image = sample[self.columns.image].convert("RGB")
        except Exception as error:
            path = self._path(index)
            file = f", {path}," if path else ""
            return Refused(f"sample {index} of the {self.split.split} split{file} is damaged: {error}")
        draw = generator(self.stream[0], "augment", self.stream[1], index)
        # torchvision's transforms draw from the global generator alone.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(draw.get_state())
            return self.transform(image), sample[self.columns.label]

    def _path(self, index: int) -> str | None:
        """The file of a sample, or the name that it had before it was packed with others."""
        import datasets

        column = self.columns.image
        try:
            item = self.split.cast_column(column, datasets.Image(decode=False))[index][column]
        except Exception:  # the row itself cannot be read: its number has to do
            return None
        return None if item["path"] is None else str(item["path"])


def _collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor] | Refused:
    images, labels = [], []
    for sample in samples:
        if isinstance(sample, Refused):
            return sample
        images.append(sample[0])
        labels.append(sample[1])
    return torch.stack(images), torch.tensor(labels)


def _transform(size: int, augment: bool) -> Any:
    from torchvision.transforms import v2

    if augment:
        crop = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    else:
        crop = [v2.Resize(size * 256 // 224), v2.CenterCrop(size)]
    return v2.Compose([v2.ToImage(), *crop, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

"""Batches of a data set too large for memory, decoded and augmented sample by sample in worker processes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from train.data.catalog import Columns
from train.data.decode import decode
from train.data.order import generator
from train.data.specification import DataSpec
from train.engine.errors import Refused
from train.engine.step import Batch

# torchvision's ImageNet statistics, by which published models normalise (torchvision/references/classification).
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HASHED_BYTES = 2**30  # a second of SHA-256


class StreamedImages:
    """A split of `datasets` with an image and a label column, at `size` pixels.

    Training draws torchvision's RandomResizedCrop and flip where the specification says so; evaluation resizes to
    256/224 of `size` and crops the centre. Each sample's draws are a function of seed, epoch and sample, so they do
    not depend on how many workers there are or on where the run was resumed.
    """

    def __init__(self, split: Any, columns: Columns, size: int, spec: DataSpec, training: bool) -> None:
        import datasets

        self.order = spec.order(len(split), training)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.split = split.cast_column(columns.image, datasets.Image(decode=False))
        self.columns, self.size, self.spec = columns, size, spec
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

    def content(self) -> Iterator[bytes | Tensor]:
        """The images' file names, sizes and labels, and their bytes unless they are more than `HASHED_BYTES`.

        A file is named by its class folder and its own name, so that the same files under another root are the same.
        Raises `Refused` naming a file that is empty or missing.
        """
        import pyarrow.compute

        names: list[str] = []
        sizes: list[int] = []
        labels: list[int] = []
        for table in self.split.with_format("arrow").iter(1000):  # lengths alone: the images are not read
            image = table.column(self.columns.image)
            lengths = pyarrow.compute.binary_length(pyarrow.compute.struct_field(image, "bytes")).to_pylist()
            paths = pyarrow.compute.struct_field(image, "path").to_pylist()
            labels += table.column(self.columns.label).to_pylist()
            for path, length in zip(paths, lengths, strict=True):
                size = _file_size(path) if length is None else length
                if not size:
                    file = f", {path}," if path else ""
                    reason = "there is no such file" if size is None else "it is empty"
                    raise Refused(f"{_sample(self.split, len(sizes))}{file} is damaged: {reason}")
                names.append("/".join((path or "").split(os.sep)[-2:]))
                sizes.append(size)
        yield "\0".join(names).encode(errors="surrogateescape")
        yield torch.tensor(sizes)
        yield torch.tensor(labels)
        if sum(sizes) <= HASHED_BYTES:
            for item in self.split[self.columns.image]:
                yield Path(item["path"]).read_bytes() if item["bytes"] is None else item["bytes"]

    def digest(self) -> str:
        """SHA-256 of the first epoch's order; the augmentation follows from it and the seed."""
        return self.order.digest()


Sample = tuple[Tensor, int] | Refused


class _Samples(Dataset[Sample]):
    """Decoded samples; for a damaged one its `Refused`, because a worker turns what it raises into a traceback."""

    def __init__(self, split: Any, columns: Columns, transform: Any, stream: tuple[int, int]) -> None:
        self.split, self.columns, self.transform, self.stream = split, columns, transform, stream

    def __getitem__(self, index: int) -> Sample:
        sample = self.split[index]
        try:
            image = decode(sample[self.columns.image], "RGB", _sample(self.split, index))
        except Refused as refusal:
            return refusal
        draw = generator(self.stream[0], "augment", self.stream[1], index)
        # torchvision's transforms draw from the global generator alone.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(draw.get_state())
            return self.transform(image), sample[self.columns.label]


def _sample(split: Any, index: int) -> str:
    return f"sample {index} of the {split.split} split"


def _file_size(path: str | None) -> int | None:
    """Bytes of a file, links followed; None where there is none."""
    try:
        return None if path is None else os.path.getsize(path)
    except OSError:
        return None


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

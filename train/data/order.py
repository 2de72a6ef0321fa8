"""The order of a split's samples, as a function of the seed and the position alone."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator for one purpose, such as ("order", epoch).

    Its draws depend on nothing that happened before, so the data are the same whatever the model drew,
    in every precision, and after a resume.
    """
    key = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)


@dataclass(frozen=True)
class Order:
    """`samples` in batches of `batch_size`: reshuffled each epoch with a `seed`, as stored without one.

    A last training batch of one sample is left out, in every precision: BatchNorm has no variance over
    one value. Evaluation keeps every sample.
    """

    samples: int
    batch_size: int
    seed: int | None

    @property
    def drops_last(self) -> bool:
        return self.seed is not None and self.samples % self.batch_size == 1 and self.samples > self.batch_size > 1

    @property
    def batches(self) -> int:
        return -(-self.samples // self.batch_size) - self.drops_last

    def epoch(self, epoch: int) -> Tensor:
        """All sample indices (samples,) in the order of `epoch`."""
        if self.seed is None:
            return torch.arange(self.samples)
        return torch.randperm(self.samples, generator=generator(self.seed, "order", epoch))

    def rows(self, epoch: int, start: int = 0) -> Iterator[tuple[int, Tensor]]:
        """Number and sample indices (B,) of the batches of `epoch` from batch `start` on."""
        order = self.epoch(epoch)
        for number in range(start, self.batches):
            yield number, order[number * self.batch_size : (number + 1) * self.batch_size]

    def digest(self) -> str:
        """SHA-256 of the first epoch's order."""
        return hashlib.sha256(self.epoch(0).numpy().tobytes()).hexdigest()

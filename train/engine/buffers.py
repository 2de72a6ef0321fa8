"""A copy of a module's buffers to go back to when a step turns out not to have happened."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


class Snapshot:
    """Buffers, concatenated by dtype so that taking and choosing cost a few kernels and no host read."""

    def __init__(self, buffers: Iterable[Tensor]) -> None:
        self.groups: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for buffer in buffers:
            self.groups[buffer.dtype].append(buffer)
        self.values = {dtype: _flat(group) for dtype, group in self.groups.items()}

    def take(self, held_back: Tensor) -> None:
        """Remember the buffers as they are now, unless `held_back` (0-d) is positive: then keep what was."""
        for dtype, group in self.groups.items():
            self.values[dtype] = torch.where(held_back > 0, self.values[dtype], _flat(group))

    def restore(self) -> None:
        """Put the remembered values back."""
        with torch.no_grad():
            for dtype, group in self.groups.items():
                parts = self.values[dtype].split([buffer.numel() for buffer in group])
                for buffer, part in zip(group, parts, strict=True):
                    buffer.copy_(part.view_as(buffer))


def _flat(group: list[Tensor]) -> Tensor:
    return torch.cat([buffer.detach().reshape(-1) for buffer in group])

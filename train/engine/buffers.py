"""A copy of a module's buffers, to restore when a step is skipped."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor


class BufferCopy:
    """Buffers, concatenated by dtype so that taking and choosing cost a few kernels and no host read."""

    def __init__(self, buffers: Iterable[Tensor]) -> None:
        self.groups: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for buffer in buffers:
            self.groups[buffer.dtype].append(buffer)
        self.values = {dtype: _flat(group) for dtype, group in self.groups.items()}

    def take(self, found_inf: Tensor) -> None:
        """Copy the buffers as they are now; where `found_inf` (0-d) is positive, keep the earlier copy."""
        for dtype, group in self.groups.items():
            self.values[dtype] = torch.where(found_inf > 0, self.values[dtype], _flat(group))

    def restore(self) -> None:
        """Write the copy back into the buffers."""
        with torch.no_grad():
            for dtype, group in self.groups.items():
                parts = self.values[dtype].split([buffer.numel() for buffer in group])
                for buffer, part in zip(group, parts, strict=True):
                    buffer.copy_(part.view_as(buffer))


def _flat(group: list[Tensor]) -> Tensor:
    return torch.cat([buffer.detach().reshape(-1) for buffer in group])

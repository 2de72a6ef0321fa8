"""What a forward pass may move in a model, to restore when the step is skipped: its buffers and modes."""

from collections import defaultdict

import torch
from torch import Tensor, nn

Groups = dict[torch.dtype, list[Tensor]]


class BufferCopy:
    """The buffers and modes of a model before a forward pass.

    A pass may write a buffer in place, assign another tensor, register one or make it larger. The values are
    concatenated by dtype, so that to copy, choose and check them costs a few kernels and no host read.
    """

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self._remember(self._buffers())

    def take(self, found_inf: Tensor) -> None:
        """Copy the buffers as they are now; where `found_inf` (0-d) is positive, keep the earlier copy."""
        groups = self._buffers()
        if _shapes(groups) == _shapes(self.groups):
            earlier = self.values
            self._remember(groups)
            for dtype, values in self.values.items():
                self.values[dtype] = torch.where(found_inf > 0, earlier[dtype], values)
        elif not found_inf.item() > 0:  # a pass registered a buffer or changed its shape: rare enough to wait
            self._remember(groups)

    def nonfinite(self) -> Tensor:
        """0-d bool tensor: whether a value that was finite at the last `take` is not finite now."""
        groups = self._buffers()
        same, found = _shapes(groups) == _shapes(self.groups), torch.zeros((), dtype=torch.bool)
        for dtype, group in groups.items():
            if dtype.is_floating_point or dtype.is_complex:
                values = comparable(_flat(group))
                # A mask of -inf was so before; that a pass registers one must be allowed too.
                bad = ~values.isfinite() & comparable(self.values[dtype]).isfinite() if same else values.isnan()
                found = found.to(values.device) | bad.any()
        return found

    def restore(self) -> None:
        """Put buffers and modes back."""
        for module, slots, training in zip(self.modules, self.slots, self.modes, strict=True):
            module.training = training
            module._buffers.clear()
            module._buffers.update(slots)
        with torch.no_grad():
            for dtype, group in self.groups.items():
                parts = self.values[dtype].split([buffer.numel() for buffer in group])
                for buffer, part in zip(group, parts, strict=True):
                    if not is_expanded(buffer):  # a pass can assign another one, but not write into it
                        buffer.copy_(part.view_as(buffer))

    def _buffers(self) -> Groups:
        groups: Groups = defaultdict(list)
        for module in self.modules:
            for buffer in module._buffers.values():
                if buffer is not None and buffer.layout is torch.strided:  # a sparse one can only be assigned
                    groups[buffer.dtype].append(buffer)
        return groups

    def _remember(self, groups: Groups) -> None:
        self.groups = groups
        self.values = {dtype: _flat(group) for dtype, group in groups.items()}
        self.slots = [dict(module._buffers) for module in self.modules]
        self.modes = [module.training for module in self.modules]


def _shapes(groups: Groups) -> dict[torch.dtype, list[torch.Size]]:
    return {dtype: [buffer.shape for buffer in group] for dtype, group in groups.items()}


def is_expanded(buffer: Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(buffer.stride(), buffer.shape, strict=True))


def comparable(values: Tensor) -> Tensor:
    """Torch has no `isfinite` for 8 bits."""
    return values.float() if values.dtype.itemsize == 1 else values


def _flat(group: list[Tensor]) -> Tensor:
    return torch.cat([buffer.detach().reshape(-1) for buffer in group])

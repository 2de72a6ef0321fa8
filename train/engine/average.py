"""An exponential moving average of a model's weights, for evaluation."""

import torch
from torch import Tensor, nn

from .copies import copied


class WeightAverage:
    """average += (1 - decay) * (weights - average) after every applied step; it starts at the first one's weights.

    `timm.utils.ModelEmaV3` and `torch.optim.swa_utils.AveragedModel` compute the same. The count of AveragedModel lies
    on the CPU, so that each of its updates on a GPU waits for the device.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.module = copied(model).requires_grad_(False)

    def update(self, model: nn.Module, found_inf: Tensor, first: bool) -> None:
        """Move it to the weights of `model`, nothing while `found_inf` (0-d) is 1; `first` copies them."""
        averaged, weights = _values(self.module), _values(model)
        if first:
            torch._foreach_copy_(averaged, weights)
            return
        difference = torch._foreach_sub(weights, averaged)
        torch._foreach_mul_(difference, (1 - self.decay) * (1 - found_inf))
        torch._foreach_add_(averaged, difference)

    def evaluated(self, model: nn.Module) -> nn.Module:
        """The averaged weights with the buffers of `model`."""
        for module, other in zip(self.module.modules(), model.modules(), strict=True):
            for name, buffer in other._buffers.items():
                module._buffers[name] = None if buffer is None else buffer.detach().clone()
        return self.module

    def state_dict(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self.module.named_parameters()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.module.load_state_dict(state, strict=False)


def _values(model: nn.Module) -> list[Tensor]:
    return [parameter.detach() for parameter in model.parameters()]

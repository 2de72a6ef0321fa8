"""Optimizers over parameter groups, and learning-rate schedules as functions of the applied step."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}

Schedule = Callable[[int], float]


def parameter_groups(model: nn.Module, weight_decay: float, decay_norm_and_bias: bool) -> list[dict[str, Any]]:
    """Every trainable parameter in exactly one group.

    With `decay_norm_and_bias` False, parameters of fewer than two dimensions get no weight decay
    (He et al. 2019, *Bag of Tricks*, section 3.1); with True there is one group, as in He et al. 2015.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if decay_norm_and_bias:
        return [{"params": trainable, "weight_decay": weight_decay}]
    groups = (
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    )
    return [group for group in groups if group["params"]]


def build_optimizer(
    name: str, groups: list[dict[str, Any]], lr: float, fused: bool | None, device: torch.device, **settings: Any
) -> Optimizer:
    """Optimizer `name` of `OPTIMIZERS` whose groups keep their peak rate as `initial_lr`.

    `fused` None means fused on CUDA, where one kernel updates all parameters and can skip a step by itself.
    """
    for group in groups:
        group["initial_lr"] = lr
    use_fused = device.type == "cuda" if fused is None else fused
    return OPTIMIZERS[name](groups, lr=lr, fused=use_fused, **settings)  # type: ignore[call-arg]


def set_learning_rate(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every group's rate to its peak times `factor`."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor


def build_schedule(
    name: str, total: int, warmup: int = 0, final: float = 0.0, milestones: Sequence[int] = (), gamma: float = 0.1
) -> Schedule:
    """Factor of the peak learning rate as a pure function of the applied step, from 0 to `total` - 1.

    Linear warm-up reaches 1 at step `warmup` - 1. Then `cosine` (Loshchilov and Hutter 2017, equation 5)
    and `linear` fall from 1 to `final` at `total`, `step` multiplies by `gamma` from each milestone on,
    and `constant` stays. A step that fp16 skips does not advance it.
    """
    ordered = sorted(milestones)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        progress = min((step - warmup) / max(total - warmup, 1), 1.0)
        if name == "cosine":
            return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
        if name == "linear":
            return final + (1 - final) * (1 - progress)
        if name == "step":
            return gamma ** bisect_right(ordered, step)
        return 1.0

    return factor

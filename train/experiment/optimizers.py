"""Optimizers of `torch.optim` by name, and learning-rate schedules as functions of the applied step."""

import inspect
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import torch
from torch import nn
from torch.optim import Optimizer

from train.engine.errors import Refused, unknown
from train.engine.step import Schedule

# Without LBFGS, whose step needs a closure, and SparseAdam: the engine takes dense gradients.
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    name.lower(): value
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value)
    and issubclass(value, Optimizer)
    and value not in (Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
}
# Of torch 2.14 on a CPU: the fused step of these takes a quarter of the foreach one's time. That of SGD saves less, and
# with momentum it fails on a parameter whose first gradient comes after the first step.
FUSED_ON_CPU = (torch.optim.Adam, torch.optim.AdamW)


class ParameterGroup(TypedDict):
    """What `torch.optim` takes as one group; the learning rate is the optimizer's."""

    params: list[nn.Parameter]
    weight_decay: float


def parameter_groups(model: nn.Module, weight_decay: float, decay_norm_and_bias: bool) -> list[ParameterGroup]:
    """Every trainable parameter in exactly one group.

    With `decay_norm_and_bias` False, parameters of fewer than two dimensions get no weight decay
    (He et al. 2019, *Bag of Tricks*, section 3.1); with True there is one group, as in He et al. 2015.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if decay_norm_and_bias:
        return [{"params": trainable, "weight_decay": weight_decay}]
    matrices: ParameterGroup = {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay}
    vectors: ParameterGroup = {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0}
    return [group for group in (matrices, vectors) if group["params"]]


def build_optimizer(
    model: nn.Module,
    name: str,
    lr: float,
    weight_decay: float,
    decay_norm_and_bias: bool,
    fused: bool | None,
    arguments: Mapping[str, object],
    device: torch.device,
) -> Optimizer:
    """The class of `torch.optim` with this lower-case name over the parameters of `model`; `lr` is the peak rate.

    `arguments` are further ones of its constructor. `fused` None means one kernel for all parameters where torch has
    one that is safe: on CUDA, and for `FUSED_ON_CPU`. Raises `Refused` for an unknown name, for an argument that the
    class lacks, for a value that it refuses, and for `fused` True of a parameter that such a kernel cannot update.
    """
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    accepted = inspect.signature(OPTIMIZERS[name]).parameters.keys() - {"params"}
    given = dict(arguments)
    if weight_decay:
        given["weight_decay"] = weight_decay
    unfit = next((where for where, parameter in model.named_parameters() if not _fusible(parameter)), None)
    if fused and unfit:
        raise Refused(f"optimizer.fused: true needs dense floating-point parameters, unlike {unfit!r}; allowed: false")
    if fused is not None:
        given["fused"] = fused
    elif "fused" in accepted:
        supported = device.type == "cuda" or OPTIMIZERS[name] in FUSED_ON_CPU
        given["fused"] = supported and not unfit and not given.get("foreach")  # torch takes one of the two
    for argument in given:
        if argument not in accepted:
            raise Refused(f"optimizer.{argument}: {unknown(f'argument of optimizer {name}', argument, accepted)}")
    groups = parameter_groups(model, weight_decay, decay_norm_and_bias)
    try:
        return OPTIMIZERS[name](groups, lr=lr, **given)
    except Exception as error:  # whatever a class of torch says to a value
        raise Refused(f"optimizer {name}: {error}") from error


def _fusible(parameter: nn.Parameter) -> bool:
    """Whether a fused kernel updates it right.

    It walks through weight and gradient in the order of memory, without a check that this is the same in both; autograd
    gives a gradient the strides of its weight where the weight is dense, and so does `empty_like`.
    """
    dense = torch.empty_like(parameter).stride() == parameter.stride()
    return not parameter.requires_grad or (parameter.is_floating_point() and dense)


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

"""Modules that compute in FP32 whatever the precision, for layers that fail or lose too much in half.

What `torch.amp`'s examples do with a disabled region around a function
(https://docs.pytorch.org/docs/stable/amp.html, "Functions that need a particular input dtype"), by the module's path.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .errors import unknown

Region = Callable[[], AbstractContextManager[None]]


def keep_in_fp32(model: nn.Module, names: Iterable[str], region: Region | None) -> None:
    """Make the modules of `model` at the paths `names` take FP32 inputs and compute in FP32, backward included.

    `region()` is where operands stay in FP32; None marks the modules and changes nothing, for precisions whose
    operands are FP32 already. Raises `Refused` for an unknown path.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    for name in names:
        if name not in modules:
            raise unknown("module of fp32_modules", name, modules)
        modules[name].computes_in_fp32 = True
        if region is not None and not hasattr(modules[name], "fp32_region"):  # a copy of a prepared model has it
            modules[name].fp32_region = True
            _wrap(modules[name], region)


def inside_fp32_modules(model: nn.Module) -> set[nn.Module]:
    """The modules kept in FP32, and all that they hold."""
    roots = [module for module in model.modules() if getattr(module, "computes_in_fp32", False)]
    return {module for root in roots for module in root.modules()}


def uncalled_fp32_modules(model: nn.Module, called: Iterable[str]) -> list[str]:
    """Paths of the modules kept in FP32 that are not among the `called`.

    A list of modules, or a layer whose weights another one reads, is never called: nothing would be in FP32.
    """
    called = set(called)
    marked = [name for name, module in model.named_modules() if getattr(module, "computes_in_fp32", False)]
    return [name for name in marked if name not in called]


def _wrap(module: nn.Module, region: Region) -> None:
    entered: list[AbstractContextManager[None]] = []

    def enter(module: nn.Module, arguments: Any, keywords: Any) -> tuple[Any, Any]:
        entered.append(region())
        entered[-1].__enter__()
        return _float(arguments), _float(keywords)

    def leave(module: nn.Module, arguments: object, output: object) -> None:
        entered.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter, with_kwargs=True)
    module.register_forward_hook(leave, always_call=True)  # after a failure too


def _float(value: Any) -> Any:
    """`value` with every floating-point tensor in it, however nested, in float32."""
    return tree_map_only(Tensor, lambda tensor: tensor.float() if tensor.is_floating_point() else tensor, value)

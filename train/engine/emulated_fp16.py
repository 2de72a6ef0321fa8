"""fp16 on a CPU: fp16 operands, FP32 arithmetic, the result rounded to fp16.

That is what a tensor core does with fp16 operands (NVIDIA, *Mixed-Precision Training*, "Tensor Core
math": products are accumulated in FP32). A tensor that autocast leaves in fp16 has fp16's range and rounding and
overflows to infinity, and gradient scaling has real work to do; which ones autocast leaves is the device's list, or
CUDA's (`autocast_policy`). Throughput on this path is about that of FP32; it says nothing about fp16 hardware.

It is the same on every CPU. PyTorch's own fp16 convolution falls to a scalar loop without fp16 units (train/README.md
has the ratio), and where a CPU has them (AVX512-FP16), its backward pass still does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Operation:
    """The first `operands` arguments must have one dtype, as on CUDA; the results at `fp32_results` stay in FP32."""

    operands: int
    fp32_results: tuple[int, ...] = ()


# The operations in which a step spends its time; all others are elementwise or
# reductions, for which PyTorch's vectorised fp16 kernels already compute in FP32 and round once.
# Attention's second result is the log-sum-exp of its scores, which PyTorch keeps in FP32 in every precision.
MATRIX_OPERATIONS = {
    "convolution": Operation(3),
    "convolution_backward": Operation(3),
    "mm": Operation(2),
    "addmm": Operation(3),
    "bmm": Operation(2),
    "baddbmm": Operation(3),
    "_scaled_dot_product_flash_attention_for_cpu": Operation(3, fp32_results=(1,)),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Operation(4),
}
_registered: list[torch.library.Library] = []  # at most one, for as long as the process emulates


def emulate_fp16(active: bool) -> None:
    """From now on matrix operations on fp16 CPU tensors compute in FP32 and return fp16, or are PyTorch's own again.

    It replaces PyTorch's CPU kernels of `MATRIX_OPERATIONS` in the whole process, below autocast and autograd, which
    see and save fp16 tensors. (A TorchDispatchMode does the same, but sends every other operation through Python as
    well.) To register kernels takes memory that PyTorch never frees, so they stay until another precision runs: once
    in a run, whose memory would grow with every step if each of its passes registered them.
    """
    if active == bool(_registered):
        return
    if not active:
        _registered.pop()._destroy()
        return
    kernels = _kernels()  # before the library hides the originals
    library = torch.library.Library("aten", "IMPL")
    for name, kernel in kernels.items():
        library.impl(name, kernel, "CPU", with_keyset=True)
    _registered.append(library)


@cache
def _kernels() -> dict[str, Callable[..., Any]]:
    originals = {name: torch.library.get_kernel(f"aten::{name}", "CPU") for name in MATRIX_OPERATIONS}
    return {name: _through_fp32(originals[name], operation) for name, operation in MATRIX_OPERATIONS.items()}


def _through_fp32(original: Any, operation: Operation) -> Callable[..., Any]:
    """The kernel `original` for fp16 by way of FP32, and itself where no operand is fp16."""

    def kernel(keys: Any, *arguments: Any, **keywords: Any) -> Any:
        dtypes = {value.dtype for value in arguments[: operation.operands] if isinstance(value, Tensor)}
        if torch.float16 not in dtypes:
            return original.call_boxed(keys, *arguments, **keywords)
        if len(dtypes) > 1:
            raise RuntimeError(f"operands must have the same dtype, but they are {', '.join(sorted(map(str, dtypes)))}")
        keywords = {name: _to_fp32(value) for name, value in keywords.items()}
        result = original.call_boxed(keys, *map(_to_fp32, arguments), **keywords)
        if isinstance(result, Tensor):
            return _to_fp16(result)
        return tuple(value if i in operation.fp32_results else _to_fp16(value) for i, value in enumerate(result))

    return kernel


def _to_fp32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.float16 else value


def _to_fp16(value: Any) -> Any:
    return value.half() if isinstance(value, Tensor) else value

"""fp16 on a CPU: fp16 operands, FP32 arithmetic, the result rounded to fp16.

That is what a tensor core does with fp16 operands (NVIDIA, *Mixed-Precision Training*, "Tensor Core
math": products are accumulated in FP32), so the range, the rounding of every stored tensor and the
overflow to infinity are those of fp16, and gradient scaling has real work to do. Throughput on this path is
about that of FP32; it says nothing about fp16 hardware.

It is the same on every CPU. PyTorch's own fp16 convolution falls to a scalar loop without fp16 units (train/README.md
has the ratio), and where a CPU has them (AVX512-FP16), its backward pass still does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

# The operations in which a step spends its time; all others are elementwise or
# reductions, for which PyTorch's vectorised fp16 kernels already compute in FP32 and round once.
# Attention's second result is the log-sum-exp of its scores, which PyTorch keeps in FP32 in every precision.
MATRIX_OPERATIONS: dict[str, tuple[int, ...]] = {
    "convolution": (),
    "convolution_backward": (),
    "mm": (),
    "addmm": (),
    "bmm": (),
    "baddbmm": (),
    "_scaled_dot_product_flash_attention_for_cpu": (1,),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (),
}


@contextmanager
def emulated_fp16() -> Iterator[None]:
    """A region in which matrix operations on fp16 CPU tensors compute in FP32 and return fp16.

    The backward pass needs it too. It replaces PyTorch's CPU kernels of `MATRIX_OPERATIONS`, below
    autocast and autograd, which see and save fp16 tensors. (A TorchDispatchMode does the same, but sends
    every other operation through Python as well.)
    """
    kernels = _kernels()
    with torch.library._scoped_library("aten", "IMPL") as library:
        for name, kernel in kernels.items():
            library.impl(name, kernel, "CPU", with_keyset=True)
        yield


@cache
def _kernels() -> dict[str, Callable[..., Any]]:
    kernels = {name: torch.library.get_kernel(f"aten::{name}", "CPU") for name in MATRIX_OPERATIONS}
    return {name: _through_fp32(kernels[name], fp32_results) for name, fp32_results in MATRIX_OPERATIONS.items()}


def _through_fp32(original: Any, fp32_results: tuple[int, ...]) -> Callable[..., Any]:
    """The kernel `original` for fp16 by way of FP32, and itself for every other dtype.

    `fp32_results` are the positions of results that stay in FP32.
    """

    def kernel(keys: Any, *arguments: Any, **keywords: Any) -> Any:
        if arguments[0].dtype is not torch.float16:
            return original.call_boxed(keys, *arguments, **keywords)
        keywords = {name: _to_fp32(value) for name, value in keywords.items()}
        result = original.call_boxed(keys, *map(_to_fp32, arguments), **keywords)
        if isinstance(result, Tensor):
            return _to_fp16(result)
        return tuple(value if i in fp32_results else _to_fp16(value) for i, value in enumerate(result))

    return kernel


def _to_fp32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.float16 else value


def _to_fp16(value: Any) -> Any:
    return value.half() if isinstance(value, Tensor) else value

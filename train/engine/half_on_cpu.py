"""fp16 on a CPU that has no fp16 arithmetic: fp16 operands, FP32 arithmetic, the result rounded to fp16.

That is what a tensor core does with fp16 operands (NVIDIA, *Mixed-Precision Training*, "Tensor Core
math": products are accumulated in FP32), so the range, the rounding of every stored tensor and the
overflow to infinity are those of fp16, and gradient scaling has real work to do. PyTorch's own fp16
convolution backward on such a CPU falls to a scalar loop, tens of times slower than FP32.
Throughput on this path is about that of FP32; it says nothing about fp16 hardware.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

# The operations in which a CPU without fp16 units spends its time; all others are elementwise or
# reductions, for which PyTorch's vectorised fp16 kernels already compute in FP32 and round once.
MATRIX_OPERATIONS = frozenset(
    {
        _aten.convolution.default,
        _aten.convolution_backward.default,
        _aten.mm.default,
        _aten.addmm.default,
        _aten.bmm.default,
        _aten.baddbmm.default,
    }
)


def native_half_is_fast() -> bool:
    """Whether oneDNN has fp16 kernels for this CPU (AVX512-FP16 or AMX-FP16)."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


class HalfOnCpu(TorchDispatchMode):
    """While active, matrix operations on fp16 CPU tensors compute in FP32 and return fp16.

    It must be active in the backward pass too: it sits below autograd, which saves the fp16
    tensors and calls the backward operations through the same dispatcher.
    """

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in MATRIX_OPERATIONS or not _is_half_on_cpu(args[0]):
            return func(*args, **kwargs)
        result = func(*map(_widen, args), **kwargs)
        return _round(result) if isinstance(result, Tensor) else tuple(map(_round, result))


def _is_half_on_cpu(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float16 and value.device.type == "cpu"


def _widen(value: Any) -> Any:
    return value.float() if _is_half_on_cpu(value) else value


def _round(value: Any) -> Any:
    return value.half() if isinstance(value, Tensor) else value

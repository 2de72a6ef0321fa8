"""CUDA's autocast policy on a CPU: the operations that autocast computes in FP32 there and in 16 bits here.

A CPU's own list leaves layer norm, softmax, exp, pow, sum and others in 16 bits, so what overflows and what is saved
for backward differ from a GPU. The names are those of PyTorch's aten/src/ATen/autocast_mode.h (AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE); what the CPU's list has in FP32 stays so.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Their 16-bit inputs are cast to FP32.
FP32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "logsumexp"),
    *("layer_norm", "native_layer_norm", "rms_norm", "group_norm", "renorm", "norm.Scalar", "norm.ScalarOpt_dim"),
    *("frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "dist", "pdist", "cdist", "cosine_similarity"),
    *("nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "poisson_nll_loss"),
    *("cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multilabel_margin_loss"),
    *("soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits"),
    *("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d"),
    *("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d"),
    *("_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"),
)
# They read 16 bits and return FP32, unless the caller names another dtype.
FP32_RESULT = (
    *("sum", "sum.dim_IntList", "prod", "prod.dim_int", "cumsum", "cumprod", "softmax.int", "log_softmax.int"),
    *("linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord"),
)
HALF = (torch.float16, torch.bfloat16)
_registered: list[torch.library.Library] = []  # at most one


def use_cuda_policy(active: bool) -> None:
    """From now on autocast on the CPU keeps in FP32 what it keeps in FP32 on CUDA, or follows the CPU's own list."""
    if active == bool(_registered):
        return
    if not active:
        _registered.pop()._destroy()
        return
    library = torch.library.Library("aten", "IMPL")
    for names, policy in ((FP32, _in_fp32), (FP32_RESULT, _to_fp32_result)):
        for name in names:
            library.impl(name, policy(_overload(name)), "AutocastCPU")
    _registered.append(library)


def _overload(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operation


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _in_fp32(operation: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*arguments: Any, **keywords: Any) -> Any:
        with _without_autocast():
            return operation(*map(_float, arguments), **{name: _float(value) for name, value in keywords.items()})

    return kernel


def _to_fp32_result(operation: Callable[..., Any]) -> Callable[..., Any]:
    names = [argument.name for argument in operation._schema.arguments]  # type: ignore[attr-defined]

    def kernel(*arguments: Any, **keywords: Any) -> Any:
        given = dict(zip(names, arguments, strict=False)) | keywords
        if arguments[0].dtype in HALF and given.get("dtype") is None:
            given["dtype"] = torch.float32
        with _without_autocast():
            return operation(**given)

    return kernel


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value

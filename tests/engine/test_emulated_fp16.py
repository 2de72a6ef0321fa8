from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.engine.tiny import image_batches, make_trainer
from train.engine import emulated_fp16 as emulation
from train.engine.emulated_fp16 import emulate_fp16
from train.engine.precision import Precision

HALF = torch.float16
CPU = torch.device("cpu")
# name: operation, shapes of its operands
PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "mm": (torch.mm, [(5, 7), (7, 3)]),
    "addmm": (torch.addmm, [(3,), (5, 7), (7, 3)]),
    "bmm": (torch.bmm, [(2, 5, 7), (2, 7, 3)]),
    "baddbmm": (torch.baddbmm, [(2, 5, 3), (2, 5, 7), (2, 7, 3)]),
    "linear": (F.linear, [(5, 7), (3, 7), (3,)]),
    "linear of three dimensions": (F.linear, [(2, 5, 7), (3, 7), (3,)]),
    "matmul of four dimensions": (torch.matmul, [(2, 2, 5, 7), (2, 2, 7, 3)]),
    "addmm with factors": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), [(5, 3), (5, 7), (7, 3)]),
    "conv1d": (F.conv1d, [(2, 3, 9), (4, 3, 3)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 3, 6, 5), (4, 3, 3, 3), (4,)]),
    "conv2d of stride 2": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), [(2, 3, 7, 8), (4, 3, 3, 3)]),
    "conv2d of groups": (lambda x, w: F.conv2d(x, w, groups=2), [(2, 4, 6, 6), (6, 2, 3, 3)]),
    "depthwise conv2d": (lambda x, w: F.conv2d(x, w, groups=4, padding=1), [(2, 4, 6, 6), (4, 1, 3, 3)]),
    "dilated conv2d": (lambda x, w: F.conv2d(x, w, dilation=2), [(1, 2, 8, 8), (3, 2, 3, 3)]),
    "transposed conv2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 3, 4, 4), (3, 4, 2, 2)]),
}
every_product = pytest.mark.parametrize(("operation", "shapes"), PRODUCTS.values(), ids=PRODUCTS)


@contextmanager
def emulated_fp16() -> Iterator[None]:
    emulate_fp16(True)
    try:
        yield
    finally:
        emulate_fp16(False)


def half_operands(shapes: list[tuple[int, ...]], seed: int = 0, scale: float = 1.0) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=draw) * scale).half() for shape in shapes]


def forward_and_backward(operation: Callable[..., Tensor], operands: list[Tensor]) -> list[Tensor]:
    """The result and the gradients of all operands, for an output gradient of few bits, exact in fp16."""
    leaves = [operand.detach().clone().requires_grad_() for operand in operands]
    result = operation(*leaves)
    pattern = (torch.arange(result.numel()) % 5 - 2).view(result.shape) / 4
    result.backward(pattern.to(result.dtype))
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def unit_in_the_last_place(values: Tensor) -> Tensor:
    """The distance of fp16 numbers at `values` (float64)."""
    exponent = values.abs().clamp(min=2.0**-14).log2().floor()
    return 2.0 ** (exponent - 10)


def assert_rounded(actual: Tensor, exact: Tensor, units: float, slack: float = 1e-5) -> None:
    """fp16 `actual` within `units` last places of float64 `exact`; `slack` is for FP32 sums that cancel."""
    assert actual.dtype == HALF
    assert actual.shape == exact.shape
    exact = exact.double()
    error = (actual.double() - exact).abs()
    assert (error <= units * unit_in_the_last_place(exact) + slack).all(), (error / unit_in_the_last_place(exact)).max()


@every_product
def test_result_and_gradients_are_the_exact_ones_rounded_once(
    operation: Callable[..., Tensor], shapes: list[tuple[int, ...]]
) -> None:
    operands = half_operands(shapes)
    with emulated_fp16():
        results = forward_and_backward(operation, operands)
    expected = forward_and_backward(operation, [operand.double() for operand in operands])
    for actual, exact in zip(results, expected, strict=True):
        assert_rounded(actual, exact, units=0.5)


@every_product
def test_result_and_gradients_agree_with_the_native_fp16_kernels(
    operation: Callable[..., Tensor], shapes: list[tuple[int, ...]]
) -> None:
    operands = half_operands(shapes, seed=1)
    with emulated_fp16():
        results = forward_and_backward(operation, operands)
    native = forward_and_backward(operation, operands)
    for actual, expected in zip(results, native, strict=True):
        # A native kernel may round its partial sums, of numbers of about 8, to fp16 as well.
        assert_rounded(actual, expected, units=2, slack=8 * 2.0**-10)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 3), rows=st.integers(1, 9), inner=st.integers(1, 33), columns=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_products_of_any_shape_are_rounded_once(batch: int, rows: int, inner: int, columns: int, seed: int) -> None:
    a, b = half_operands([(batch, rows, inner), (batch, inner, columns)], seed)
    with emulated_fp16():
        batched, single = torch.bmm(a, b), torch.mm(a[0], b[0])
    exact = torch.bmm(a.double(), b.double())
    assert_rounded(batched, exact, units=0.5)
    assert_rounded(single, exact[0], units=0.5)


@settings(max_examples=30, deadline=None)
@given(
    groups=st.integers(1, 3), size=st.integers(3, 9), kernel=st.integers(1, 3), stride=st.integers(1, 3),
    padding=st.integers(0, 2), bias=st.booleans(), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_convolutions_of_any_shape_are_rounded_once(
    groups: int, size: int, kernel: int, stride: int, padding: int, bias: bool, seed: int
) -> None:
    shapes = [(2, 2 * groups, size, size + 1), (4 * groups, 2, kernel, kernel), (4 * groups,)]
    operands = half_operands(shapes if bias else shapes[:2], seed)

    def operation(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.conv2d(x, weight, bias, stride, padding, groups=groups)

    with emulated_fp16():
        results = forward_and_backward(operation, operands)
    expected = forward_and_backward(operation, [operand.double() for operand in operands])
    for actual, exact in zip(results, expected, strict=True):
        assert_rounded(actual, exact, units=0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_nearer_to_the_exact_one_than_the_native_kernel(causal: bool, masked: bool) -> None:
    operands = half_operands([(2, 2, 9, 8)] * 3)
    mask = torch.zeros(2, 1, 9, 9).masked_fill(torch.arange(9) > 6, float("-inf")) if masked and not causal else None

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kind = None if mask is None else mask.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=kind, is_causal=causal)

    with emulated_fp16():
        results = forward_and_backward(attention, operands)
    native = forward_and_backward(attention, operands)
    exact = forward_and_backward(attention, [operand.double() for operand in operands])
    assert_rounded(results[0], exact[0], units=0.5)
    for actual, reference, truth in zip(results[1:], native[1:], exact[1:], strict=True):
        # The gradient goes through the result, which is rounded: half a unit there, weighted and summed.
        assert_rounded(actual, truth, units=1, slack=2.0**-10)
        assert (actual.double() - truth).abs().mean() <= (reference.double() - truth).abs().mean()


def test_the_log_sum_exp_of_attention_stays_in_fp32() -> None:
    query, key, value = half_operands([(1, 2, 4, 8)] * 3)
    with emulated_fp16():
        output, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value)
    scores = query.double() @ key.double().transpose(-2, -1) / 8**0.5
    assert (output.dtype, log_sum_exp.dtype) == (HALF, torch.float32)
    torch.testing.assert_close(log_sum_exp.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


# The range of fp16


@pytest.mark.parametrize(
    "operation", [torch.mm, lambda a, b: F.conv2d(a[..., None, None], b.T[..., None, None]).flatten(1)]
)
def test_results_beyond_the_range_overflow_to_infinity(operation: Callable[..., Tensor]) -> None:
    a = torch.tensor([[256.0, 256.0], [-256.0, -256.0], [256.0, 255.75]], dtype=HALF)
    b = torch.full((2, 1), 128.0, dtype=HALF)
    with emulated_fp16():
        result = operation(a, b)
    # 65504 is the largest fp16 number, and 65520 the first that rounds to infinity.
    assert result.flatten().tolist() == [float("inf"), float("-inf"), 65504.0]


def test_a_partial_sum_beyond_the_range_does_not_overflow() -> None:
    a, b = torch.tensor([[300.0, 300.0]], dtype=HALF), torch.tensor([[300.0], [-300.0]], dtype=HALF)
    with emulated_fp16():
        assert torch.mm(a, b).item() == 0.0


@pytest.mark.parametrize("exponent", [-12, -14, -20, -24, -25, -26])
def test_small_results_become_subnormal_and_then_zero(exponent: int) -> None:
    factor = torch.full((1, 1), 2.0**exponent, dtype=torch.float64)
    a = torch.full((1, 1), 2.0 ** (exponent // 2), dtype=HALF)
    b = torch.full((1, 1), 2.0 ** (exponent - exponent // 2), dtype=HALF)
    with emulated_fp16():
        result = torch.mm(a, b)
    assert result.item() == factor.half().item() == (2.0**exponent if exponent >= -24 else 0.0)


def test_gradients_underflow_without_a_scale_and_not_with_it() -> None:
    def gradient(scale: float) -> Tensor:
        weight = torch.zeros(2, 2, requires_grad=True)
        precision = Precision("fp16", CPU)
        with precision.forward():
            out = torch.full((1, 2), 2.0**-10) @ weight
        with emulated_fp16():
            (out.float().sum() * 2.0**-18 * scale).backward()
        assert weight.grad is not None
        return weight.grad / scale

    assert gradient(1.0).abs().max() == 0
    assert torch.equal(gradient(2.0**12), torch.full((2, 2), 2.0**-28))


# What it leaves alone


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_memory_format_is_kept_forward_and_backward(layout: torch.memory_format) -> None:
    x, weight = half_operands([(2, 4, 6, 6), (8, 4, 3, 3)])
    x, weight = (t.contiguous(memory_format=layout).requires_grad_() for t in (x, weight))
    with emulated_fp16():
        result = F.conv2d(x, weight, padding=1)
        result.backward(torch.ones_like(result))
    for tensor in (result, x.grad, weight.grad):
        assert tensor.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@every_product
def test_other_dtypes_are_not_touched(
    operation: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype
) -> None:
    operands = [operand.to(dtype) for operand in half_operands(shapes)]
    with emulated_fp16():
        results = forward_and_backward(operation, operands)
    for actual, expected in zip(results, forward_and_backward(operation, operands), strict=True):
        assert actual.dtype == dtype
        assert torch.equal(actual, expected)


def test_integer_products_are_not_touched() -> None:
    a = torch.arange(6).view(2, 3)
    with emulated_fp16():
        assert torch.equal(a @ a.T, torch.tensor([[5, 14], [14, 50]]))


def test_gradient_of_an_input_that_needs_none_stays_absent() -> None:
    x, weight = half_operands([(1, 2, 4, 4), (3, 2, 3, 3)])
    weight.requires_grad_()
    with emulated_fp16():
        F.conv2d(x, weight).sum().backward()
    assert x.grad is None
    assert weight.grad.dtype == HALF


# When it is used


def test_it_is_what_fp16_means_on_every_cpu() -> None:
    precision = Precision("fp16", CPU)
    assert precision.emulated
    assert "FP32 arithmetic" in precision.describe().arithmetic
    assert not Precision("bf16", CPU).emulated
    assert Precision("bf16", CPU).describe().arithmetic == "native kernels"


def test_it_is_active_in_backward_too_and_not_in_another_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def noting(name: str, kernel: Callable[..., object]) -> Callable[..., object]:
        def noted(*arguments: object, **keywords: object) -> object:
            seen.append(name)
            return kernel(*arguments, **keywords)

        return noted

    emulate_fp16(False)
    kernels = {name: noting(name, kernel) for name, kernel in emulation._kernels().items()}
    monkeypatch.setattr(emulation, "_kernels", lambda: kernels)
    precision, model = Precision("fp16", CPU), nn.Conv2d(1, 1, 1)
    with precision.forward():
        loss = model(torch.ones(1, 1, 2, 2)).float().sum()
    assert seen == ["convolution"]
    precision.backward(loss)
    assert seen == ["convolution", "convolution_backward"]
    with Precision("bf16", CPU).forward():
        model(torch.ones(1, 1, 2, 2)).sum()
    assert seen == ["convolution", "convolution_backward"], "in another precision PyTorch's own kernels run"


def test_its_kernels_are_registered_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate_fp16(False)
    made: list[object] = []
    library = torch.library.Library

    def noted(*arguments: Any) -> torch.library.Library:
        made.append(arguments)
        return library(*arguments)

    monkeypatch.setattr(torch.library, "Library", noted)
    trainer = make_trainer("fp16")
    for batch in image_batches(5):
        trainer.step([batch])
    assert made.count(("aten", "IMPL")) == 1


class MixesDtypes(torch.autograd.Function):
    """Saves its FP32 weight and multiplies with it in backward what autocast made fp16."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(weight)
        return torch.mm(x.half(), weight.half())

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Any:
        (weight,) = context.saved_tensors
        return torch.mm(gradient, weight.T), None


def test_operands_of_two_dtypes_are_refused_as_on_cuda() -> None:
    x, weight = torch.ones(2, 3, requires_grad=True), torch.ones(3, 4)
    with emulated_fp16():
        product = MixesDtypes.apply(x, weight)
        with pytest.raises(RuntimeError, match=r"the same dtype, but they are torch\.float16, torch\.float32"):
            product.sum().backward()
        for operation in (torch.mm, torch.matmul):
            with pytest.raises(RuntimeError, match="same dtype"):
                operation(x, weight.half())
        with pytest.raises(RuntimeError, match="should be the same"):
            F.conv2d(torch.ones(1, 1, 3, 3).half(), torch.ones(1, 1, 2, 2).half(), torch.ones(1))

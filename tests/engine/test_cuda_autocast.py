"""`autocast_policy: cuda` on a CPU: what autocast keeps in FP32 on a GPU, and nothing outside that precision."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import CPU
from train.engine.errors import Refused
from train.engine.precision import Precision
from train.engine.saved_for_backward import trial_pass

# What CUDA's list says of 16-bit operands: PyTorch's notes on autocast, "CUDA Ops that can autocast to float32".
IN_FP32: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "exp": torch.exp,
    "pow": lambda x: x**2,
    "rsqrt": lambda x: x.abs().rsqrt(),
    "sum": torch.sum,
    "sum over a dimension": lambda x: x.sum(1),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.norm(dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x),
    "softplus": F.softplus,
}
IN_HALF: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: F.linear(x, torch.ones(3, 8)),
    "relu": F.relu,
    "mean": torch.mean,
    "gelu": F.gelu,
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "a sum into fp16": lambda x: x.sum(dtype=torch.float16),
}


@pytest.fixture(params=["bf16", "fp16"])
def half(request: pytest.FixtureRequest) -> Precision:
    return Precision(request.param, CPU, autocast_policy="cuda")


def operand(precision: Precision) -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(precision.matrix_dtype)


@pytest.mark.parametrize("name", IN_FP32)
def test_operations_of_cudas_list_give_fp32(name: str, half: Precision) -> None:
    x = operand(half)
    with half.forward():
        result = IN_FP32[name](x)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, IN_FP32[name](x.double()).float())
    with Precision(half.name, CPU).forward():
        assert IN_FP32[name](x).dtype == half.matrix_dtype or name == "log_softmax"


@pytest.mark.parametrize("name", IN_HALF)
def test_other_operations_stay_in_half(name: str, half: Precision) -> None:
    with half.forward():
        assert IN_HALF[name](operand(half)).dtype in (half.matrix_dtype, torch.float16)


def test_a_sum_beyond_fp16_does_not_overflow_as_on_a_gpu() -> None:
    x = torch.full((100,), 1000.0, dtype=torch.float16)
    with Precision("fp16", CPU, autocast_policy="cuda").forward():
        assert x.sum() == 100_000
        assert (x**2).max() == 1e6
    with Precision("fp16", CPU).forward():
        assert x.sum().isinf()


def test_layer_norm_saves_fp32_for_backward() -> None:
    """Its input (64, 32), and a mean and a deviation a row: 4 bytes each on CUDA's list, 2 on the CPU's."""
    net = nn.Sequential(nn.Linear(32, 32, bias=False), nn.LayerNorm(32, elementwise_affine=False))
    batch = {"images": torch.randn(64, 32), "labels": torch.zeros(64)}

    def saved(policy: str) -> float:
        precision = Precision("bf16", CPU, autocast_policy=policy)
        forward = lambda model, batch: (model(batch["images"]), batch["labels"])  # noqa: E731
        return trial_pass(net, forward, lambda logits, _: logits.sum(), batch, precision).saved_mib * 2**20

    assert saved("cuda") - saved("device") == (64 * 32 + 2 * 64) * 2


def test_the_record_says_which_list_autocast_followed() -> None:
    assert Precision("bf16", CPU).describe().autocast_policy == "cpu"
    assert Precision("bf16", CPU, autocast_policy="cuda").describe().autocast_policy == "cuda"
    with pytest.raises(Refused, match=r"unknown autocast_policy 'gpu'.*allowed: cuda, device"):
        Precision("bf16", CPU, autocast_policy="gpu")

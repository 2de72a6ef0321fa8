import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import CPU, CPU_PRECISIONS, classify, image_batches, tiny_net
from train.engine.errors import EngineFault
from train.engine.meter import MIB
from train.engine.precision import Precision
from train.engine.saved_for_backward import trial_pass
from train.engine.step import Batch

SMALL_BATCH = {"images": torch.linspace(-1, 1, 40).view(4, 10), "labels": torch.tensor([0, 1, 2, 3])}


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def saved_bytes(model: nn.Module, precision: str, batch: Batch = SMALL_BATCH) -> float:
    return trial_pass(model, classify, F.cross_entropy, batch, Precision(precision, CPU)).saved_mib * MIB


# Beside the layers: the log-probabilities (4, 5) and the sum of the class weights (), both float32.
LOSS_BYTES = 4 * 5 * 4 + 4


def test_saved_bytes_in_fp32_are_those_counted_by_hand() -> None:
    hidden = 4 * 20 * 4  # saved once, for the ReLU and for the second layer; input and weights exist anyway
    assert saved_bytes(small_net(), "fp32") == hidden + LOSS_BYTES


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_saved_bytes_in_half_are_those_counted_by_hand(precision: str) -> None:
    hidden = 4 * 20 * 2
    casts = 4 * 10 * 2 + 20 * 5 * 2  # of the input, and of the second weight, through which the gradient goes back
    assert saved_bytes(small_net(), precision) == hidden + casts + LOSS_BYTES


def test_saved_bytes_of_the_layers_halve_in_half_precision_once_the_batch_is_large() -> None:
    batch = image_batches(1, size=64)[0]
    fp32, bf16, fp16 = (saved_bytes(tiny_net(), name, batch) for name in CPU_PRECISIONS)
    assert bf16 == fp16
    assert 0.45 < bf16 / fp32 < 0.65


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_a_trial_pass_leaves_random_states_gradients_and_hooks_as_they_were(precision: str) -> None:
    model = tiny_net(dropout=0.5)
    random_state = torch.get_rng_state()
    result = trial_pass(model, classify, F.cross_entropy, image_batches(1)[0], Precision(precision, CPU))
    assert result.saved_mib > 0
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")])
def test_dtypes_are_those_of_every_convolution_and_linear(precision: str, dtype: str) -> None:
    result = trial_pass(tiny_net(), classify, F.cross_entropy, image_batches(1)[0], Precision(precision, CPU))
    assert result.matrix_dtypes == {dtype: 3}


LOSSES = {
    "detached": lambda logits, labels: F.cross_entropy(logits.detach(), labels),
    "half": lambda logits, labels: F.cross_entropy(logits, labels).half(),
    "double": lambda logits, labels: F.cross_entropy(logits.double(), labels),
    "one a sample": lambda logits, labels: F.cross_entropy(logits, labels, reduction="none"),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_a_loss_that_is_no_float32_scalar_with_a_gradient_is_a_fault(precision: str, name: str) -> None:
    message = (
        "the loss has no gradient path" if name == "detached" else "the loss must be a float32 scalar; it is torch"
    )
    with pytest.raises(EngineFault, match=message):
        trial_pass(small_net(), classify, LOSSES[name], SMALL_BATCH, Precision(precision, CPU))


class LeavesAutocast(nn.Module):
    """A model that computes its second layer in float32, whatever was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 20), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        with torch.autocast("cpu", enabled=False):
            return self.second(x.float())


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_module_that_did_not_compute_in_the_precision_is_a_fault(precision: str, dtype: str) -> None:
    with pytest.raises(EngineFault, match=rf"{precision} must compute in {dtype}, but .*'float32': 1"):
        trial_pass(LeavesAutocast(), classify, F.cross_entropy, SMALL_BATCH, Precision(precision, CPU))
    trial_pass(LeavesAutocast(), classify, F.cross_entropy, SMALL_BATCH, Precision("fp32", CPU))

"""Layers that break in half precision, kept in FP32."""

import copy
from typing import NamedTuple, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import CPU, CPU_PRECISIONS, classify, image_batches, make_optimizer
from train.engine.errors import Refused
from train.engine.precision import Precision
from train.engine.saved_for_backward import trial_pass
from train.engine.step import Trainer

MIXED = [name for name in CPU_PRECISIONS if name != "fp32"]
every_mixed = pytest.mark.parametrize("name", MIXED)


class Counting(nn.Module):
    """Adds float32 values into a buffer of its input's dtype, which fails when that is half."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.dtype)
        index = torch.zeros(x.shape[0], x.shape[1], dtype=torch.int64)
        return torch.zeros_like(x).scatter_add(1, index, self.weight.expand_as(x)) + x


class Net(nn.Module):
    """Images (N, 3, 8, 8) to logits (N, 4), with a recurrent layer and a scattering one between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.middle = nn.Sequential(Counting(), nn.Linear(8, 8))
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.middle(self.first(images.flatten(2).transpose(1, 2)).flatten(0, 1))
        sequence, _ = self.recurrent(hidden.unflatten(0, (len(images), -1)))
        return self.last(sequence[:, -1])


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def step(model: nn.Module, name: str) -> Tensor:
    """The loss of one forward and backward pass."""
    precision, batch = Precision(name, CPU), image_batches(1)[0]
    with precision.forward():
        loss = F.cross_entropy(model(batch["images"]).float(), batch["labels"])
    precision.backward(loss)
    return loss


@every_mixed
def test_in_half_the_layers_fail(name: str) -> None:
    with pytest.raises(RuntimeError):
        step(net(), name)


@every_mixed
def test_kept_in_fp32_they_train_and_the_rest_stays_in_half(name: str) -> None:
    model = net()
    Precision(name, CPU).prepare(model, ["middle.0", "recurrent"])
    dtypes: dict[str, torch.dtype] = {}
    for path in ("first", "middle.0", "middle.1", "last"):
        module = model.get_submodule(path)
        module.register_forward_hook(lambda module, inputs, output, path=path: dtypes.update({path: output.dtype}))
    loss = step(model, name)
    half = Precision(name, CPU).matrix_dtype
    assert dtypes == {"first": half, "middle.0": torch.float32, "middle.1": half, "last": half}
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert loss.item() == pytest.approx(step(net(), "fp32").item(), rel=0.02)


@every_mixed
def test_everything_in_an_fp32_module_equals_fp32_bit_for_bit(name: str) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4))
    wrapped = nn.ModuleDict({"body": copy.deepcopy(plain)})
    precision, batch = Precision(name, CPU), image_batches(1)[0]
    precision.prepare(wrapped, ["body"])
    with precision.forward():
        inside = wrapped["body"](batch["images"])
    assert torch.equal(inside, plain(batch["images"]))


def test_a_model_that_an_fp32_trainer_had_before_keeps_its_module_in_fp32() -> None:
    model = net()
    for name in ("fp32", "bf16", "bf16"):
        Precision(name, CPU).prepare(model, ["middle.0"])
        step(model, name)
    assert set(cast(Counting, model.middle[0]).seen) == {torch.float32}
    assert len(model.middle[0]._forward_hooks) == 1


def test_in_fp32_an_fp32_module_gets_no_hooks() -> None:
    model = net()
    Precision("fp32", CPU).prepare(model, ["recurrent"])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@every_mixed
def test_the_region_around_an_fp32_module_goes_on_after_a_failure_in_it(name: str) -> None:
    model, precision = net(), Precision(name, CPU)
    precision.prepare(model, ["middle.1"])
    with precision.forward():
        with pytest.raises(RuntimeError):
            model.middle[1](torch.ones(2, 3))
        assert model.first(torch.ones(1, 3)).dtype == precision.matrix_dtype
        assert copy.deepcopy(model).middle[1](torch.ones(2, 8)).dtype == torch.float32


@every_mixed
def test_the_trial_pass_expects_half_outside_fp32_modules_alone(name: str) -> None:
    model, precision = net(), Precision(name, CPU)
    precision.prepare(model, ["middle", "recurrent"])
    result = trial_pass(model, classify, F.cross_entropy, image_batches(1)[0], precision)
    assert result.matrix_dtypes == {str(precision.matrix_dtype).removeprefix("torch."): 2}  # first and last


def test_an_unknown_module_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match="unknown module of fp32_modules 'recurent': did you mean 'recurrent'"):
        Precision("bf16", CPU).prepare(net(), ["recurent"])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_trainer_prepares_its_model(compiled: bool) -> None:
    model: nn.Module = net()
    optimizer = make_optimizer(model)
    layers = ["middle.0", "recurrent"]
    if compiled:
        model = cast(nn.Module, torch.compile(model, backend="eager"))
    trainer = Trainer(
        model, classify, F.cross_entropy, lambda batch: len(batch["labels"]), [optimizer], lambda step: 1.0,
        Precision("bf16", CPU), fp32_modules=layers,
    )  # fmt: skip
    trainer.step(image_batches(1))
    assert trainer.applied_step == 1


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Sums(nn.Module):
    """Takes a named tuple in a dictionary, and gives the dtypes that it saw."""

    def forward(self, x: dict[str, Pair]) -> tuple[torch.dtype, torch.dtype]:
        return x["pair"].first.dtype, x["pair"].second.dtype


def test_a_module_kept_in_fp32_takes_named_tuples() -> None:
    model, precision = nn.Sequential(Sums()), Precision("bf16", CPU)
    precision.prepare(model, ["0"])
    with precision.forward():
        seen = model({"pair": Pair(torch.ones(1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.int64))})
    assert seen == (torch.float32, torch.int64)

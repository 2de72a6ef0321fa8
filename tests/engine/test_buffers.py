"""A skipped step leaves buffers and modes as they were, however the forward pass writes them."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.engine.tiny import CPU_PRECISIONS, TinyNet, assert_same, image_batches, make_trainer, poisoned, tiny_net
from train.engine.errors import Diverged
from train.engine.step import Batch, Trainer

INF = float("inf")


class Counting(nn.Module):
    """TinyNet with a buffer that each forward pass writes in its own way."""

    mean: Tensor
    empty: Tensor | None

    def __init__(self, write: Callable[["Counting", Tensor], None]) -> None:
        super().__init__()
        self.net: TinyNet = tiny_net()
        self.write = write
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("mask", torch.tensor([0.0, -INF]))
        self.register_buffer("empty", None)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.write(self, images.detach().mean(dim=(0, 2, 3)))
        logits: Tensor = self.net(images)
        return logits


def in_place(model: Counting, mean: Tensor) -> None:
    model.mean.lerp_(mean, 0.1)


def assigned(model: Counting, mean: Tensor) -> None:
    model.mean = model.mean * 0.9 + mean * 0.1


def registered(model: Counting, mean: Tensor) -> None:
    if "table" not in model._buffers:
        model.register_buffer("table", mean.clone())


def filled(model: Counting, mean: Tensor) -> None:
    model.empty = mean.clone() if model.empty is None else model.empty + mean


def grown(model: Counting, mean: Tensor) -> None:
    model.mean = torch.cat([model.mean, mean[:1]])


def switched(model: Counting, mean: Tensor) -> None:
    model.net.norm.eval()
    model.mean = mean


WRITES = {write.__name__: write for write in (in_place, assigned, registered, filled, grown, switched)}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def state_of(model: nn.Module) -> dict[str, Any]:
    buffers = {name: value.clone() for name, value in model.state_dict().items()}
    return {**buffers, "modes": [module.training for module in model.modules()]}


def trained(trainer: Trainer, batches: list[Batch]) -> dict[str, Any]:
    for batch in batches:
        trainer.step([batch])
    return state_of(trainer.model)


@every_write
def test_a_bad_batch_leaves_nothing_behind_however_a_buffer_is_written(write: Any) -> None:
    good = image_batches(4)
    # The scale stays as it is, so that the steps around the bad batch are those of a run without it.
    with_bad, without = (make_trainer("fp16", Counting(write), init_scale=8.0, min_scale=8.0) for _ in range(2))
    before = trained(with_bad, good[:1])
    assert_same(trained(with_bad, [poisoned(good[1], INF)]), before)
    assert_same(trained(with_bad, good[1:]), trained(without, good))
    assert (with_bad.step_count, with_bad.applied_step) == (5, 4)


@every_write
def test_a_bad_first_batch_leaves_nothing_behind(write: Any) -> None:
    trainer = make_trainer("fp16", Counting(write), init_scale=8.0)
    before = state_of(trainer.model)
    assert_same(trained(trainer, [poisoned(image_batches(1)[0], INF)]), before)


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_one_huge_pixel_does_not_ruin_batchnorm_in_any_precision(precision: str) -> None:
    """A running variance of infinity would stay for good, and every gradient is finite."""
    trainer = make_trainer(precision)
    before = trained(trainer, image_batches(1))
    bad = poisoned(image_batches(1)[0], 1e30)
    if precision == "fp16":
        trainer.step([bad])
    else:
        with pytest.raises(Diverged, match=r"step 2: .*buffer 'norm\.running_var' non-finite; the weights were not"):
            trainer.step([bad])
    assert_same(state_of(trainer.model), before)
    assert trainer.applied_step == 1


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_a_mask_of_minus_infinity_is_no_fault(precision: str) -> None:
    trainer = make_trainer(precision, Counting(registered))
    trained(trainer, image_batches(3))
    assert trainer.applied_step == 3


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_clipping_does_not_hide_gradients_whose_norm_overflows(precision: str) -> None:
    """Gradients of 1e20 are finite; clipped by an infinite norm they are an update of zero."""
    model = nn.Linear(4, 2)
    batch = {"images": torch.ones(2, 4), "labels": torch.zeros(2, dtype=torch.int64)}
    # Through a weight in FP32, which autocast does not round.
    trainer = make_trainer(
        precision, model, clip_norm=1.0, init_scale=1.0, loss=lambda logits, labels: model.weight.sum() * 1e20
    )
    before = state_of(model)
    if precision == "fp16":
        trainer.step([batch])
    else:
        with pytest.raises(Diverged, match="step 1"):
            trainer.step([batch])
    assert_same(state_of(model), before)
    assert trainer.applied_step == 0


@every_write
def test_a_resumed_run_has_the_buffers_that_a_forward_pass_made(write: Any) -> None:
    batches = image_batches(4)
    whole = trained(make_trainer("bf16", Counting(write)), batches)
    first, second = (make_trainer("bf16", Counting(write)) for _ in range(2))
    trained(first, batches[:2])
    second.load_state_dict(first.state_dict())
    if write is switched:
        second.model.get_submodule("net.norm").eval()
    assert_same(trained(second, batches[2:]), whole)


@every_write
def test_the_moving_average_is_evaluated_with_the_models_buffers(write: Any) -> None:
    trainer = make_trainer("bf16", Counting(write), ema_decay=0.9)
    trained(trainer, image_batches(2))
    own, averaged = dict(trainer.model.named_buffers()), dict(trainer.evaluated_model.named_buffers())
    assert_same(averaged, own)
    assert not any(averaged[name] is own[name] for name in own)


def test_the_moving_average_is_that_of_torch() -> None:
    model = tiny_net()
    trainer = make_trainer("fp32", model, ema_decay=0.9)
    oracle = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    for batch in image_batches(5):
        trainer.step([batch])
        oracle.update_parameters(model)
    parameters = dict(trainer.evaluated_model.named_parameters())
    for name, value in oracle.module.named_parameters():
        torch.testing.assert_close(parameters[name], value, rtol=0, atol=1e-7, check_device=False)


def test_the_old_weight_norm_trains_with_a_moving_average() -> None:
    """Its module keeps a computed tensor, which `copy.deepcopy` refuses."""
    net = tiny_net()
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(net.fc)
    net(image_batches(1)[0]["images"])
    trainer = make_trainer("bf16", net, ema_decay=0.5)
    trained(trainer, image_batches(2))
    assert trainer.applied_step == 2


class Odd(nn.Module):
    """TinyNet beside buffers whose layout or dtype few operations know, and one that its state leaves out."""

    running: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = tiny_net()
        self.register_buffer("expanded", torch.zeros(1).expand(5))
        self.register_buffer("graph", torch.eye(3).to_sparse())
        self.register_buffer("byte", torch.ones(3).to(torch.float8_e4m3fn))
        self.register_buffer("running", torch.zeros(3), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.running += images.detach().mean(dim=(0, 2, 3))
        logits: Tensor = self.net(images)
        return logits + self.running.mean()


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_buffers_of_any_layout_and_dtype_are_part_of_the_transaction(precision: str) -> None:
    trainer = make_trainer(precision, Odd())
    good, bad = image_batches(2)
    trainer.step([good])
    before = {name: value.to_dense().clone() for name, value in trainer.model.named_buffers()}
    with contextlib.suppress(Diverged):
        trainer.step([good, poisoned(bad, INF)])
    for name, value in trainer.model.named_buffers():
        assert torch.equal(value.to_dense().float(), before[name].float()), name


def test_a_buffer_that_the_state_leaves_out_is_resumed_too() -> None:
    straight, resumed = make_trainer("fp32", Odd()), make_trainer("fp32", Odd())
    first, second = image_batches(2)
    straight.step([first])
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    for trainer in (straight, resumed):
        trainer.step([second])
    assert_same(resumed.model.state_dict()["net.fc.weight"], straight.model.state_dict()["net.fc.weight"])
    assert "running" in resumed.model._non_persistent_buffers_set

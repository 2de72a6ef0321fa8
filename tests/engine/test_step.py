import copy
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.engine.tiny import (
    CPU_PRECISIONS,
    OPTIMIZERS,
    Listed,
    assert_same,
    classify,
    falling,
    image_batches,
    make_optimizer,
    make_trainer,
    moved_by_a_step,
    poisoned,
    tiny_linear,
    tiny_net,
)
from train.engine.errors import Diverged, Refused
from train.engine.fit import evaluate
from train.engine.step import Batch, Trainer

INF, NAN = float("inf"), float("nan")
every_optimizer = pytest.mark.parametrize(
    ("optimizer", "fused"), [(name, fused) for name in OPTIMIZERS for fused in (False, True)]
)


def take(trainer: Trainer, batches: Sequence[Batch]) -> list[float]:
    """One step a batch; the learning rate of each."""
    rates = []
    for batch in batches:
        trainer.step([batch])
        rates.append(trainer.optimizers[0].param_groups[0]["lr"])
    return rates


# FP32 is plain PyTorch


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@every_optimizer
def test_fp32_equals_a_plain_loop_bit_for_bit(optimizer: str, fused: bool, clip_norm: float | None) -> None:
    batches = image_batches(20)
    trainer = make_trainer("fp32", optimizer=optimizer, fused=fused, clip_norm=clip_norm, schedule=falling(20))
    take(trainer, batches)

    model = tiny_net().train()
    plain = make_optimizer(model, optimizer, fused)
    rates = torch.optim.lr_scheduler.LambdaLR(plain, lambda step: 1 - step / 20)
    for batch in batches:
        plain.zero_grad()
        F.cross_entropy(model(batch["images"]), batch["labels"]).backward()
        if clip_norm is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        plain.step()
        rates.step()

    assert_same(trainer.model.state_dict(), model.state_dict())
    assert_same(trainer.optimizers[0].state_dict()["state"], plain.state_dict()["state"])
    if clip_norm is not None:
        assert trainer.read_metrics()["train/grad_norm"] == norm.item() > clip_norm


# A step is a transaction


@every_optimizer
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_overflow_leaves_everything_but_the_scale_untouched(optimizer: str, fused: bool, value: float) -> None:
    *good, last = image_batches(4)
    trainer = make_trainer("fp16", optimizer=optimizer, fused=fused, ema_decay=0.9, clip_norm=1.0, init_scale=1024.0)
    take(trainer, good)
    before = moved_by_a_step(trainer)
    trainer.step([poisoned(last, value)])
    assert_same(moved_by_a_step(trainer), before)
    assert (trainer.step_count, trainer.applied_step) == (4, 3)
    assert trainer.precision.scale() == 512
    trainer.step([last])
    assert trainer.applied_step == 4
    after = trainer.model.state_dict()
    assert not torch.equal(after["conv1.weight"], before["model.conv1.weight"])
    assert not torch.equal(after["norm.running_mean"], before["model.norm.running_mean"])


@every_optimizer
def test_a_loss_scale_too_large_is_found_without_moving_anything(optimizer: str, fused: bool) -> None:
    batches = image_batches(40)
    trainer = make_trainer("fp16", optimizer=optimizer, fused=fused, ema_decay=0.9, init_scale=2.0**40)
    before = moved_by_a_step(trainer)
    while trainer.applied_step == 0:
        assert_same(moved_by_a_step(trainer), before)
        assert trainer.precision.scale() == 2.0 ** (40 - trainer.step_count)
        trainer.step([batches[trainer.step_count]])
    assert 5 < trainer.step_count < 40


@every_optimizer
def test_training_goes_on_after_a_skipped_first_step_as_if_it_had_not_been(optimizer: str, fused: bool) -> None:
    batches = image_batches(6)
    skipping = make_trainer("fp16", optimizer=optimizer, fused=fused, ema_decay=0.9, init_scale=2048.0)
    take(skipping, [poisoned(batches[0], INF), *batches])
    straight = make_trainer("fp16", optimizer=optimizer, fused=fused, ema_decay=0.9, init_scale=1024.0)
    take(straight, batches)
    assert skipping.applied_step == straight.applied_step == 6
    assert_same(moved_by_a_step(skipping), moved_by_a_step(straight))


@pytest.mark.parametrize("accumulate", [2, 3])
def test_one_bad_micro_batch_skips_the_whole_step(accumulate: int) -> None:
    batches = image_batches(accumulate)
    trainer = make_trainer("fp16", ema_decay=0.9, init_scale=1024.0)
    before = moved_by_a_step(trainer)
    trainer.step([poisoned(batches[0], INF), *batches[1:]])
    assert_same(moved_by_a_step(trainer), before)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


@every_optimizer
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_scaling_a_bad_batch_stops_the_run_and_moves_nothing(
    precision: str, optimizer: str, fused: bool
) -> None:
    *good, last = image_batches(3)
    trainer = make_trainer(precision, optimizer=optimizer, fused=fused, ema_decay=0.9, clip_norm=1.0)
    take(trainer, good)
    before = moved_by_a_step(trainer)
    with pytest.raises(Diverged, match=r"^step 3: non-finite gradient in '[a-z0-9.]+'"):
        trainer.step([poisoned(last, NAN)])
    assert_same(moved_by_a_step(trainer), before)


def test_diverging_by_skips_moves_nothing_either_and_keeps_the_loss_that_was_not_finite() -> None:
    *good, last = image_batches(3)
    trainer = make_trainer("fp16", init_scale=1024.0, max_consecutive_skips=1)
    take(trainer, good)
    trainer.read_metrics()
    before = moved_by_a_step(trainer)
    with pytest.raises(Diverged, match="1 steps in a row"):
        trainer.step([poisoned(last, NAN)])
    assert_same(moved_by_a_step(trainer), before)
    metrics = trainer.read_metrics()
    assert metrics["train/nonfinite_loss_steps"] == 1
    assert metrics["train/step"] == 3


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_gradient_that_is_not_finite_under_a_finite_loss(precision: str) -> None:
    model = tiny_net()
    calls = []

    def inject(module: nn.Module, inputs: object, output: Tensor) -> None:
        calls.append(1)
        if len(calls) == 3:
            output.register_hook(lambda gradient: gradient * NAN)

    model.fc.register_forward_hook(inject)
    batches = image_batches(4)
    trainer = make_trainer(precision, model, optimizer="adamw", init_scale=1024.0)
    take(trainer, batches[:2])
    before = moved_by_a_step(trainer)
    trainer.read_metrics()
    if precision == "fp16":
        trainer.step([batches[2]])
        assert trainer.read_metrics()["amp/skipped_steps"] == 1
    else:
        # Every parameter lies behind the injection; the bias of the last layer is the nearest to it.
        with pytest.raises(Diverged, match=r"^step 3: non-finite gradient in 'fc\.bias' and in 6 parameters before"):
            trainer.step([batches[2]])
        assert "train/nonfinite_loss_steps" not in trainer.read_metrics()
    assert_same(moved_by_a_step(trainer), before)
    if precision == "fp16":
        trainer.step([batches[3]])
        assert trainer.applied_step == 3


def test_the_diverged_module_is_the_one_where_the_gradient_broke() -> None:
    model = tiny_net()
    model.conv2.register_forward_hook(
        lambda module, inputs, output: output.register_hook(lambda gradient: gradient * INF) and None
    )
    with pytest.raises(Diverged, match=r"'conv2\.bias' and in 4 parameters before"):
        make_trainer("bf16", model).step(image_batches(1))


# Skips and the learning rate


def test_fused_optimizer_does_not_hide_the_skip() -> None:
    batches = image_batches(40)

    def history(fused: bool) -> list[tuple[float, int]]:
        trainer = make_trainer("fp16", optimizer="adamw", fused=fused, schedule=falling(40), init_scale=2.0**40)
        return [(take(trainer, [batch])[0], trainer.step_count - trainer.applied_step) for batch in batches]

    fused, plain = history(True), history(False)
    assert fused == plain
    assert 5 < plain[-1][1] < 35
    skips_before = [0, *(skips for _, skips in plain)]
    for step, (rate, _) in enumerate(plain):
        assert rate == pytest.approx(0.01 * (1 - (step - skips_before[step]) / 40))


def test_rates_of_all_groups_and_optimizers_are_their_own_peaks_times_the_schedule() -> None:
    pair = Pair()
    groups: list[dict[str, Any]] = [{"params": [pair.second.weight], "lr": 0.2}, {"params": [pair.second.bias]}]
    optimizers = [
        make_optimizer(pair.first, "sgd", lr=0.4),
        torch.optim.RMSprop(groups, lr=0.01),
    ]
    forward = lambda model, batch: (model(batch["images"], True), batch["labels"])  # noqa: E731
    trainer = make_trainer("fp32", pair, optimizers, forward=forward, schedule=falling(4))
    for factor, batch in zip((1.0, 0.75, 0.5), pair_batches(3), strict=True):
        trainer.step([batch])
        rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
        assert rates == [[0.4 * factor] * 2, [0.2 * factor, 0.01 * factor]]


def test_a_resumed_trainer_keeps_its_own_peaks_and_reads_checkpoints_that_hold_initial_rates() -> None:
    first, resumed = make_trainer(schedule=falling(4)), make_trainer(schedule=falling(4))
    take(first, image_batches(3))
    state = copy.deepcopy(first.state_dict())
    assert "initial_lr" not in state["optimizers"][0]["param_groups"][0]
    for group in state["optimizers"][0]["param_groups"]:
        group["initial_lr"] = 0.05  # as earlier versions wrote it
    resumed.load_state_dict(state)
    assert take(resumed, image_batches(1, seed=5)) == [0.05 * 0.25] == take(first, image_batches(1, seed=5))
    assert_same(resumed.model.state_dict(), first.model.state_dict())


def test_a_parameter_that_is_not_the_models_is_refused() -> None:
    model = tiny_net()
    temperature = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([*model.parameters(), temperature], 0.1)
    with pytest.raises(Refused, match="a parameter that is not the model's"):
        make_trainer(model=model, optimizers=[optimizer])


def test_read_metrics_counts_skips_and_gives_the_scale() -> None:
    first, second = image_batches(2)
    trainer = make_trainer("fp16", init_scale=1024.0)
    take(trainer, [first, poisoned(second, INF), second])
    metrics = trainer.read_metrics()
    counts = ("train/step", "train/applied_step", "amp/skipped_steps", "amp/scale")
    assert [metrics[name] for name in counts] == [3, 2, 1, 512]
    assert metrics["train/nonfinite_loss_steps"] == 1
    assert "train/nonfinite_loss_steps" not in trainer.read_metrics()


def test_read_metrics_gives_the_mean_loss_since_the_last_call() -> None:
    trainer = make_trainer(optimizers=None, loss=lambda logits, labels: logits.sum() * 0 + labels.float().mean())
    batches = [{**batch, "labels": torch.full((8,), number)} for number, batch in enumerate(image_batches(3))]
    take(trainer, batches[:2])
    assert trainer.read_metrics()["train/loss"] == 0.5
    take(trainer, batches[2:])
    assert trainer.read_metrics()["train/loss"] == 2.0


# Clipping


@pytest.mark.parametrize("scale", [1.0, 1024.0, 65536.0])
def test_clipping_does_not_see_the_loss_scale(scale: float) -> None:
    model = tiny_linear(64)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = make_optimizer(model, lr=1.0, momentum=0.0, nesterov=False)
    trainer = make_trainer("fp16", model, [optimizer], clip_norm=1.0, init_scale=scale)
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
    trainer.step([{"images": torch.full((8, 64), 3.0), "labels": labels}])

    # Every class has probability 1/4, so the mean error is (-1, 0, 0, 1) / 8: the gradient of the bias, and a third
    # of the gradient of each of the 64 columns of the weight.
    norm = (2 / 64 * (1 + 64 * 3**2)) ** 0.5
    change = torch.cat([model.weight.flatten(), model.bias]).norm()
    assert change.item() == pytest.approx(1.0, rel=0.01)
    assert trainer.read_metrics()["train/grad_norm"] == pytest.approx(norm, rel=1e-3)


def test_a_norm_under_the_limit_is_left_alone() -> None:
    free, limited = make_trainer(), make_trainer(clip_norm=1e6)
    for trainer in (free, limited):
        take(trainer, image_batches(2))
    assert_same(limited.model.state_dict(), free.model.state_dict())


# Accumulation


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_four_micro_batches_of_eight_equal_one_batch_of_thirty_two(optimizer: str) -> None:
    batches = image_batches(8)
    whole = [
        {key: torch.cat([batch[key] for batch in batches[start : start + 4]]) for key in batches[0]} for start in (0, 4)
    ]
    parts, large = (make_trainer(model=tiny_net(norm=False), optimizer=optimizer, clip_norm=0.1) for _ in range(2))
    for start in (0, 4):
        parts.step(batches[start : start + 4])
    take(large, whole)
    for part, expected in zip(parts.model.parameters(), large.model.parameters(), strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-6)
    assert parts.read_metrics()["train/loss"] == pytest.approx(large.read_metrics()["train/loss"], abs=1e-6)


@pytest.mark.parametrize("sizes", [(8, 3), (8, 8, 1), (5,)])
def test_micro_batches_of_unequal_size_equal_the_batch_they_make_up(sizes: tuple[int, ...]) -> None:
    micro_batches = [image_batches(1, size, seed=number)[0] for number, size in enumerate(sizes)]
    whole = {key: torch.cat([batch[key] for batch in micro_batches]) for key in micro_batches[0]}
    parts, large = (make_trainer(model=tiny_net(norm=False)) for _ in range(2))
    parts.step(micro_batches)
    large.step([whole])
    for part, expected in zip(parts.model.parameters(), large.model.parameters(), strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-6)


def test_the_weight_of_a_micro_batch_may_be_a_tensor() -> None:
    micro_batches = [image_batches(1, size, seed=size)[0] for size in (8, 3)]
    numbers = make_trainer()
    tensors = make_trainer(weight=lambda batch: torch.tensor(float(len(batch["labels"]))))
    for trainer in (numbers, tensors):
        trainer.step(micro_batches)
    torch.testing.assert_close(tensors.model.state_dict(), numbers.model.state_dict(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_micro_batch_without_a_label_that_counts_changes_neither_step_nor_loss(
    as_tensor: bool, precision: str
) -> None:
    def weight(batch: Batch) -> float | Tensor:
        count = (batch["labels"] != -100).sum()
        return count if as_tensor else int(count)

    full, other = image_batches(2)
    empty = {**other, "labels": torch.full_like(other["labels"], -100)}
    alone, both = (make_trainer(precision, tiny_net(norm=False), weight=weight) for _ in range(2))
    alone.step([full])
    both.step([full, empty])
    assert_same(both.model.state_dict(), alone.model.state_dict())
    assert both.read_metrics() == alone.read_metrics()


def test_weights_that_are_not_finite_already_are_named_as_such() -> None:
    trainer = make_trainer("fp32", tiny_net())
    with torch.no_grad():
        cast(Any, trainer.model).fc.bias[0] = NAN
    with pytest.raises(Diverged, match=r"step 1: the weights were not finite before it: 'fc.bias'"):
        trainer.step([image_batches(1)[0]])


def test_one_unscale_and_one_update_in_a_step() -> None:
    scales: list[float | None] = []

    def forward(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        scales.append(trainer.precision.scale())
        return classify(model, batch)

    trainer = make_trainer("fp16", forward=forward, clip_norm=0.01, init_scale=256.0, growth_interval=1)
    batches = image_batches(12)
    for start in (0, 4, 8):
        trainer.step(batches[start : start + 4])
    assert (trainer.step_count, trainer.applied_step) == (3, 3)
    assert scales == 4 * [256.0] + 4 * [512.0] + 4 * [1024.0]


# Several optimizers


class Pair(nn.Module):
    """Two linears; the second takes part where the batch says so."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Tensor, both: bool) -> Tensor:
        return self.first(x) + self.second(x) if both else self.first(x)


def pair_trainer(split: bool, **settings: Any) -> Trainer:
    model = Pair()
    owners = [model.first, model.second] if split else [model]
    return make_trainer(
        "fp16",
        model,
        [make_optimizer(owner, "adamw") for owner in owners],
        forward=lambda model, batch: (model(batch["images"], bool(batch["both"])), batch["labels"]),
        **settings,
    )


def pair_batches(count: int) -> Iterator[Batch]:
    draw = torch.Generator().manual_seed(0)
    for number in range(count):
        images = torch.randn(8, 8, generator=draw)
        yield {"images": images, "labels": torch.arange(8) % 4, "both": torch.tensor(number % 2 == 1)}


def test_two_optimizers_of_which_one_idles_give_the_scales_of_one() -> None:
    results = []
    for split in (True, False):
        trainer = pair_trainer(split, init_scale=2.0**18, growth_interval=2)
        scales = []
        for batch in pair_batches(10):
            trainer.step([batch])
            scales.append(trainer.precision.scale())
        results.append((scales, trainer.applied_step, trainer.model.state_dict()))
    (scales, applied, weights), (one_scales, one_applied, one_weights) = results
    assert scales == one_scales
    assert len(set(scales)) > 2
    assert 0 < applied == one_applied < 10
    assert_same(weights, one_weights)


@pytest.mark.parametrize("broken", ["first", "second"])
def test_overflow_in_one_optimizer_skips_the_other_too(broken: str) -> None:
    trainer = pair_trainer(split=True, init_scale=1024.0)
    first, second, third, fourth = pair_batches(4)
    take(trainer, [first, second])
    before = moved_by_a_step(trainer)
    hook = getattr(trainer.model, broken).weight.register_hook(lambda gradient: gradient * INF)
    trainer.step([fourth])
    hook.remove()
    assert_same(moved_by_a_step(trainer), before)
    assert trainer.precision.scale() == 512
    trainer.step([third])
    assert trainer.applied_step == 3


# Loss, average, evaluation in between


@pytest.mark.parametrize("class_weights", [False, True])
def test_smoothed_loss_over_a_large_vocabulary_in_half(class_weights: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    raw = torch.randn(2, 60000, generator=draw) * 3
    labels = torch.tensor([7, 59999])
    weight = torch.linspace(0.5, 2.0, 60000) if class_weights else None
    model = nn.ParameterDict({"shift": torch.zeros(60000)})

    def forward(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return (batch["images"] + model["shift"]).half(), batch["labels"]

    trainer = make_trainer(
        "fp16",
        model,
        forward=forward,
        loss=lambda logits, labels: F.cross_entropy(logits, labels, weight, label_smoothing=0.1),
    )
    trainer.step([{"images": raw, "labels": labels}])
    exact = F.cross_entropy(
        raw.half().double(), labels, None if weight is None else weight.double(), label_smoothing=0.1
    )
    assert trainer.read_metrics()["train/loss"] == pytest.approx(exact.item(), rel=0.01)
    assert trainer.applied_step == 1


def test_average_moves_as_in_exact_arithmetic() -> None:
    model = tiny_linear()
    optimizer = make_optimizer(model, lr=0.0, momentum=0.0, nesterov=False)
    trainer = make_trainer("bf16", model, [optimizer], ema_decay=0.999)
    batch = {"images": torch.ones(2, 8), "labels": torch.zeros(2, dtype=torch.int64)}
    for value, steps in ((1.0, 1), (2.0, 1000)):
        nn.init.constant_(model.weight, value)
        for _ in range(steps):
            trainer.step([batch])
    assert trainer.evaluated_model.weight.dtype == torch.float32
    assert trainer.evaluated_model.weight[0, 0].item() == pytest.approx(2 - 0.999**1000, abs=1e-3)


def test_average_stays_where_every_step_is_skipped() -> None:
    trainer = make_trainer("fp16", ema_decay=0.5)
    take(trainer, image_batches(3))
    before = {name: value.clone() for name, value in trainer.ema.state_dict().items()}
    take(trainer, [poisoned(batch, INF) for batch in image_batches(5)])
    assert_same(trainer.ema.state_dict(), before)


def test_the_average_is_what_is_evaluated() -> None:
    plain, averaged = make_trainer(), make_trainer(ema_decay=0.5)
    assert plain.evaluated_model is plain.model
    first, second = image_batches(2)
    averaged.step([first])
    after_one = averaged.model.fc.weight.detach().clone()
    averaged.step([second])
    expected = 0.5 * after_one + 0.5 * averaged.model.fc.weight
    torch.testing.assert_close(averaged.evaluated_model.fc.weight, expected)
    name = "norm.running_mean"
    assert torch.equal(averaged.evaluated_model.state_dict()[name], averaged.model.state_dict()[name])


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_evaluation_between_the_steps_changes_nothing(precision: str) -> None:
    batches = image_batches(5)
    alone, watched = make_trainer(precision), make_trainer(precision)
    take(alone, batches)
    for batch in batches:
        before = watched.model.conv1.weight.clone()
        watched.step([batch])
        assert not torch.equal(watched.model.state_dict()["conv1.weight"], before)
        evaluate(
            watched.model, classify, lambda logits, labels: {"n": logits.sum()}, Listed(batches), watched.precision
        )
        watched.model.train()
    assert_same(watched.model.state_dict(), alone.model.state_dict())


# State


@pytest.mark.parametrize("precision", CPU_PRECISIONS)
def test_saved_weights_and_optimizer_state_are_float32(precision: str) -> None:
    trainer = make_trainer(precision, optimizer="adamw", ema_decay=0.9)
    take(trainer, image_batches(2))
    state = trainer.state_dict()
    tensors = [*state["model"].values(), *state["ema"].values()]
    tensors += [value for entry in state["optimizers"][0]["state"].values() for value in entry.values()]
    assert {tensor.dtype for tensor in tensors if tensor.is_floating_point()} == {torch.float32}


@pytest.mark.parametrize("saves_compiled", [False, True])
@pytest.mark.parametrize("loads_compiled", [False, True])
def test_saved_names_are_those_of_the_model_under_compile(saves_compiled: bool, loads_compiled: bool) -> None:
    def trainer(compiled: bool, seed: int) -> Trainer:
        model: nn.Module = tiny_net(seed)
        optimizer = make_optimizer(model)
        return make_trainer(
            "fp32",
            cast(nn.Module, torch.compile(model, backend="eager")) if compiled else model,
            [optimizer],
            ema_decay=0.9,
        )

    first, second = trainer(saves_compiled, 0), trainer(loads_compiled, 1)
    take(first, image_batches(1))
    state = copy.deepcopy(first.state_dict())  # an optimizer takes over the tensors that it is given
    assert list(state["model"]) == list(tiny_net().state_dict())
    assert not any("_orig_mod" in name for name in [*state["model"], *state["ema"]])
    tiny_net().load_state_dict(state["model"], strict=True)
    second.load_state_dict(state)
    for each in (first, second):
        take(each, image_batches(1, seed=5))
    assert_same(second.state_dict(), first.state_dict())


@pytest.mark.parametrize(("saved", "here"), [(False, True), (True, False)])
def test_a_state_that_other_kernels_saved_is_loaded_into_this_optimizers_own(saved: bool, here: bool) -> None:
    first = make_trainer("fp16", optimizer="adamw", fused=saved)
    first.step(image_batches(1))
    second = make_trainer("fp16", optimizer="adamw", fused=here)
    second.load_state_dict(first.state_dict())
    second.step(image_batches(1))
    assert second.applied_step == 2
    assert second.optimizers[0].param_groups[0]["fused"] is here

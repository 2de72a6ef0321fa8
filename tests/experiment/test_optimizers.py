import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.engine.tiny import CPU, tiny_net
from train.experiment.optimizers import build_optimizer, build_schedule, parameter_groups, set_learning_rate

TOTAL = 20


def reference(make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler], steps: int = TOTAL) -> list[float]:
    """The rates that a scheduler of torch gives for a peak of 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(()))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"name": "constant"}, lambda o: lr_scheduler.ConstantLR(o, factor=1.0)),
        ({"name": "cosine"}, lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL)),
        ({"name": "cosine", "final": 0.2}, lambda o: lr_scheduler.CosineAnnealingLR(o, TOTAL, eta_min=0.2)),
        ({"name": "linear"}, lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, TOTAL)),
        ({"name": "linear", "final": 0.1}, lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, TOTAL)),
        (
            {"name": "step", "milestones": [12, 5], "gamma": 0.3},
            lambda o: lr_scheduler.MultiStepLR(o, [5, 12], gamma=0.3),
        ),
    ],
)
def test_schedules_equal_those_of_torch(
    settings: dict, make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]
) -> None:
    schedule = build_schedule(total=TOTAL, **settings)
    assert [schedule(step) for step in range(TOTAL)] == pytest.approx(reference(make), abs=1e-12)


@pytest.mark.parametrize("name", ["constant", "cosine", "linear"])
def test_warm_up_rises_in_equal_parts_to_the_peak(name: str) -> None:
    schedule = build_schedule(name, TOTAL, warmup=4)
    assert [schedule(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_after_warm_up_the_rest_of_the_run_is_the_schedule() -> None:
    cosine, linear = (build_schedule(name, TOTAL, warmup=4, final=0.1) for name in ("cosine", "linear"))
    for step in range(4, TOTAL):
        progress = (step - 4) / 16
        assert cosine(step) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2)
        assert linear(step) == pytest.approx(1 - 0.9 * progress)


def test_milestones_count_from_the_start_of_the_run_and_not_from_the_end_of_the_warm_up() -> None:
    schedule = build_schedule("step", TOTAL, warmup=4, milestones=[10, 15])
    rates = [schedule(step) for step in (3, 9, 10, 14, 15, 19)]
    assert rates == pytest.approx([1.0, 1.0, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("name", ["cosine", "linear"])
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (3, 3), (3, 5)])
def test_short_runs_stay_in_range(name: str, total: int, warmup: int) -> None:
    schedule = build_schedule(name, total, warmup)
    assert all(0 <= schedule(step) <= 1 for step in range(total + 2))
    assert schedule(0) > 0
    assert schedule(max(total, warmup) + 100) == pytest.approx(0.0)


def test_a_schedule_is_a_function_of_the_step_alone() -> None:
    schedule = build_schedule("cosine", TOTAL, warmup=3)
    forwards = [schedule(step) for step in range(TOTAL)]
    assert [schedule(step) for step in reversed(range(TOTAL))] == forwards[::-1]


@pytest.mark.parametrize("decay_norm_and_bias", [True, False])
def test_every_trainable_parameter_is_in_exactly_one_group(decay_norm_and_bias: bool) -> None:
    model = tiny_net()
    model.conv1.weight.requires_grad_(False)
    groups = parameter_groups(model, 0.1, decay_norm_and_bias)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    trainable = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
    assert sorted(grouped) == sorted(trainable)
    assert id(model.conv1.weight) not in grouped
    decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert decays[id(model.conv2.weight)] == decays[id(model.fc.weight)] == 0.1
    for one_dimensional in (model.norm.weight, model.norm.bias, model.conv2.bias, model.fc.bias):
        assert decays[id(one_dimensional)] == (0.1 if decay_norm_and_bias else 0.0)


def test_shared_parameters_are_in_one_group_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    groups = parameter_groups(model, 0.1, decay_norm_and_bias=False)
    assert [len(group["params"]) for group in groups] == [1, 2]


def test_a_group_that_would_be_empty_is_left_out() -> None:
    groups = parameter_groups(nn.Linear(3, 3, bias=False), 0.1, decay_norm_and_bias=False)
    assert [group["weight_decay"] for group in groups] == [0.1]


def test_rates_of_all_groups_and_optimizers_are_their_own_peaks_times_the_factor() -> None:
    first, second = tiny_net(), tiny_net()
    optimizers = [
        build_optimizer("sgd", parameter_groups(first, 0.1, False), 0.4, fused=False, device=CPU, momentum=0.9),
        build_optimizer("adamw", parameter_groups(second, 0.1, False), 0.01, fused=True, device=CPU, eps=1e-6),
    ]
    for factor in (0.5, 0.25):
        set_learning_rate(optimizers, factor)
        assert [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers] == [
            [0.4 * factor] * 2,
            [0.01 * factor] * 2,
        ]
    assert optimizers[0].defaults["momentum"] == 0.9
    assert optimizers[1].defaults["eps"] == 1e-6


@pytest.mark.parametrize(("fused", "expected"), [(None, False), (False, False), (True, True)])
def test_fused_is_off_on_a_cpu_unless_asked_for(fused: bool | None, expected: bool) -> None:
    optimizer = build_optimizer("adamw", parameter_groups(tiny_net(), 0.1, True), 0.1, fused, CPU)
    assert bool(optimizer.defaults["fused"]) is expected

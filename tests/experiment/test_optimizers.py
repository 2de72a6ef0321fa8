import copy
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from tests.engine.tiny import (
    CPU,
    assert_same,
    image_batches,
    make_trainer,
    moved_by_a_step,
    poisoned,
    tiny_net,
)
from tests.experiment.harness import run
from train.engine.errors import Refused
from train.engine.precision import Precision
from train.engine.step import Trainer
from train.experiment import setup as setup_of_runs
from train.experiment.config import load
from train.experiment.optimizers import OPTIMIZERS, build_optimizer, build_schedule, parameter_groups

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
    settings: dict[str, Any], make: Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]
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


def built(
    name: str,
    weight_decay: float = 0.1,
    fused: bool | None = None,
    arguments: Mapping[str, object] | None = None,
    model: nn.Module | None = None,
) -> torch.optim.Optimizer:
    return build_optimizer(model or nn.Linear(3, 3), name, 0.01, weight_decay, False, fused, arguments or {}, CPU)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_of_torch_with_a_lower_case_name_trains(name: str) -> None:
    model = nn.Linear(3, 3, bias=False)
    optimizer = built(name, 0.0 if name == "rprop" else 0.1, model=model)
    assert type(optimizer).__name__.lower() == name
    trainer = Trainer(
        model,
        lambda model, batch: (model(batch["images"]), batch["labels"]),
        nn.functional.cross_entropy,
        lambda batch: len(batch["labels"]),
        [optimizer],
        lambda step: 0.5,
        Precision("bf16", CPU),
    )
    before = model.weight.detach().clone()
    trainer.step([{"images": torch.randn(4, 3), "labels": torch.tensor([0, 1, 2, 0])}])
    assert not torch.equal(model.weight, before)
    assert optimizer.param_groups[0]["lr"] == 0.01 * 0.5


def test_the_usual_optimizers_are_there_and_those_that_the_engine_cannot_step_are_not() -> None:
    assert {"sgd", "adam", "adamw", "rmsprop", "adagrad", "adafactor", "nadam", "radam"} <= OPTIMIZERS.keys()
    assert not {"lbfgs", "sparseadam", "optimizer"} & OPTIMIZERS.keys()


def test_further_arguments_reach_the_constructor() -> None:
    sgd = built("sgd", arguments={"momentum": 0.9, "nesterov": True})
    assert [group["weight_decay"] for group in sgd.param_groups] == [0.1, 0.0]
    assert all(group["momentum"] == 0.9 and group["nesterov"] and group["lr"] == 0.01 for group in sgd.param_groups)
    assert built("adamw", arguments={"eps": 1e-6}).defaults["eps"] == 1e-6


def test_an_unknown_optimizer_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match=r"unknown optimizer 'adamv': did you mean 'adam.*allowed: .*sgd"):
        built("adamv")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sgd", {"arguments": {"betas": [0.9, 0.99]}}, "unknown argument of optimizer sgd 'betas'"),
        ("adam", {"arguments": {"beta": 0.9}}, "unknown argument of optimizer adam 'beta': did you mean 'betas'"),
        ("rprop", {}, "unknown argument of optimizer rprop 'weight_decay'"),
        ("rmsprop", {"fused": True}, "unknown argument of optimizer rmsprop 'fused'"),
        ("sgd", {"arguments": {"nesterov": True}}, "optimizer sgd: Nesterov momentum requires a momentum"),
    ],
)
def test_an_argument_that_the_class_lacks_or_refuses_is_refused(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        built(name, **settings)


@pytest.mark.parametrize(
    ("name", "fused", "expected"),
    [
        *(("adamw", None, True), ("adam", None, True), ("sgd", None, False), ("adagrad", None, False)),
        *(("adamw", False, False), ("sgd", True, True)),
    ],
)
def test_adam_and_adamw_are_fused_on_a_cpu_and_others_when_asked_for(
    name: str, fused: bool | None, expected: bool
) -> None:
    assert built(name, fused=fused).defaults["fused"] is expected


def test_a_fused_step_is_not_taken_where_foreach_is_asked_for() -> None:
    assert built("adamw", arguments={"foreach": True}).defaults["fused"] is False


class Bare(nn.Module):
    """One parameter, called weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)


COLUMNS = torch.arange(24.0).reshape(4, 6)[:, ::2]  # its gradients have other strides


@pytest.mark.parametrize("weight", [COLUMNS, torch.ones(3, dtype=torch.complex64)], ids=["strides", "complex"])
def test_a_parameter_that_a_fused_step_would_update_wrongly_is_never_given_to_it(weight: torch.Tensor) -> None:
    assert built("adamw", model=Bare(weight)).defaults["fused"] is False
    frozen = Bare(weight)
    frozen.weight.requires_grad_(False)
    assert built("adamw", model=nn.ModuleList([frozen, nn.Linear(3, 3)])).defaults["fused"] is True
    message = r"^optimizer\.fused: true needs dense floating-point parameters, unlike '0\.weight'; allowed: false$"
    with pytest.raises(Refused, match=message):
        built("adamw", fused=True, model=nn.Sequential(Bare(weight)))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("weight", [torch.randn(8, 4, 3, 3, generator=torch.Generator().manual_seed(0)), COLUMNS])
def test_the_default_adamw_takes_the_steps_of_the_plain_one(weight: torch.Tensor, channels_last: bool) -> None:
    layout = torch.channels_last if channels_last and weight.ndim == 4 else torch.preserve_format
    models = [Bare(weight.detach().clone(memory_format=layout) if weight.ndim == 4 else weight) for _ in range(2)]
    optimizers = [built("adamw", model=models[0]), built("adamw", fused=False, model=models[1])]
    factor = torch.linspace(-1, 1, weight.numel()).reshape(weight.shape)  # of each element another
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            (model.weight * factor).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(models[0].weight, models[1].weight)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_fused_run_with_a_skipped_step_resumes_bit_for_bit(name: str) -> None:
    """On a CPU in fp16, where the scaler hands its flag to the fused kernel."""

    def trainer() -> Trainer:
        model = tiny_net()
        optimizer = built(name, model=model)
        assert optimizer.defaults["fused"]
        return make_trainer("fp16", model, [optimizer], clip_norm=1.0, ema_decay=0.9, init_scale=1024.0)

    first, second, third = image_batches(3)
    straight = trainer()
    straight.step([first])
    before = moved_by_a_step(straight)
    straight.step([poisoned(second, math.inf)])
    assert_same(moved_by_a_step(straight), before)
    resumed = trainer()
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    for one in (straight, resumed):
        one.step([second])
        one.step([third])
    assert (resumed.step_count, resumed.applied_step) == (4, 3)
    assert_same(moved_by_a_step(resumed), moved_by_a_step(straight))
    assert resumed.optimizers[0].state_dict()["state"][0]["step"] == 3


@pytest.mark.parametrize(("name", "expected"), [("sgd", True), ("adamw", True), ("adagrad", True), ("rmsprop", None)])
def test_fused_is_on_on_a_gpu_where_the_class_supports_it(name: str, expected: bool | None) -> None:
    optimizer = build_optimizer(nn.Linear(3, 3), name, 0.01, 0.1, False, None, {}, torch.device("cuda"))
    assert optimizer.defaults.get("fused") is expected


RMSPROP = "optimizer={name: rmsprop, lr: 0.01, alpha: 0.9}"


def test_an_optimizer_is_chosen_by_name_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.optim.Optimizer] = []

    def keeping(*arguments: Any) -> torch.optim.Optimizer:
        made.append(build_optimizer(*arguments))
        return made[-1]

    monkeypatch.setattr(setup_of_runs, "build_optimizer", keeping)
    done = run(tmp_path, "optimizer.name=rmsprop", "optimizer.alpha=0.9", "max_steps=2")
    assert done.status == 0, done.err
    [optimizer] = made
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert optimizer.defaults["alpha"] == 0.9
    resolved = load(done.folder / "config.yaml").optimizer
    assert (resolved.name, resolved.arguments) == ("rmsprop", {"alpha": 0.9})
    assert done.column("train/applied_step") == {1: 1, 2: 2}


def test_the_run_of_another_optimizer_is_repeated_by_its_written_configuration(tmp_path: Path) -> None:
    first = run(tmp_path / "first", RMSPROP, "max_steps=2")
    again = run(tmp_path / "again", config=first.folder / "config.yaml")
    assert again.status == 0, again.err
    name = "final_weights_sha256"
    repeated = next((tmp_path / "again").glob("*/fp32-s0/summary.json")).read_text()
    assert first.summary.final_weights_sha256 is not None
    assert f'"{name}": "{first.summary.final_weights_sha256}"' in repeated


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "optimizer={name: rmsprop, lr: 0.1, alfa: 0.9}",
            "unknown argument of optimizer rmsprop 'alfa': did you mean 'alpha'?",
        ),
        ("optimizer={name: rmsprob, lr: 0.1}", "optimizer.name: unknown value 'rmsprob': did you mean 'rmsprop'?"),
        ("optimizer={name: rmsprop, lr: 0.1, alpha: -1}", "optimizer rmsprop: Invalid alpha value: -1"),
        ("optimizer={name: lbfgs, lr: 0.1}", "optimizer.name: unknown value 'lbfgs': "),
    ],
)
def test_a_wrong_optimizer_or_argument_is_refused_before_anything_is_written(
    override: str, message: str, tmp_path: Path
) -> None:
    done = run(tmp_path, override)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

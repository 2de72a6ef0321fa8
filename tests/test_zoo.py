"""The contract of every training script and experiment, found by themselves; a failing test names model and rule."""

import copy
import importlib
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reports.records.config import Experiment
from tests.experiment.harness import ROOT
from train import new
from train.data.catalog import Embedded
from train.data.specification import Splits
from train.engine import checkpoint
from train.engine.fit import last_batch
from train.engine.precision import PRECISIONS, why_unavailable
from train.engine.step import Batch, Trainer
from train.experiment import preflight
from train.experiment.config import load, model_scripts
from train.experiment.seeding import random_state, restore_random_state
from train.experiment.setup import Script, build_model, script_of, setup
from train.experiment.tasks import Task

CPU = torch.device("cpu")
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
EXPERIMENTS = {path.stem: load(path) for path in CONFIGS}
AVAILABLE = [name for name in PRECISIONS if why_unavailable(name, CPU) is None]


def task_of(experiment: Experiment) -> Task:
    task: Task = importlib.import_module(f"train.{experiment.model}").task
    return task


QUICK = [
    name
    for name, experiment in EXPERIMENTS.items()
    if isinstance(task_of(experiment).entry(experiment.data.name).source, Embedded)
]


@cache
def parts(name: str) -> tuple[Script, Experiment, Splits, Batch]:
    """Script, resolved experiment, data and first batch of a smoke run."""
    path = ROOT / "configs" / f"{name}.yaml"
    script = script_of(path)
    config = script.read(path, (), smoke=True)
    data = script.task.data(config, 0, CPU, smoke=True)
    return script, config, data, next(data.train.epoch(0))


def trainer_of(name: str, precision: str = "fp32", **changes: Any) -> Trainer:
    script, config, data, _ = parts(name)
    trainer = setup(script, config.model_copy(update=changes), precision, 0, CPU, True, data).trainer
    trainer.model.train()
    return trainer


def pair_of(batch: Batch) -> Batch:
    """Its first two samples, because emulated fp16 convolutions take most of these tests' time."""
    return {name: tensor[:2] for name, tensor in batch.items()}


def losses(trainer: Trainer, batch: Batch, steps: int) -> list[float]:
    values = []
    for _ in range(steps):
        trainer.step([batch])
        values.append(trainer.read_metrics()["train/loss"])
    return values


def same_state(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("script", model_scripts())
def test_every_script_has_a_quick_experiment_and_a_run_script(script: str) -> None:
    assert [name for name in QUICK if EXPERIMENTS[name].model == script]
    assert (ROOT / "scripts" / f"run_{script}_amp.sh").exists()


@pytest.mark.parametrize("precision", AVAILABLE)
@pytest.mark.parametrize("name", QUICK)
def test_two_steps_move_float32_weights_by_finite_gradients(name: str, precision: str) -> None:
    trainer = trainer_of(name, precision, scaler=parts(name)[1].scaler.model_copy(update={"init_scale": 256.0}))
    before = copy.deepcopy(trainer.model.state_dict())
    assert all(map(math.isfinite, losses(trainer, pair_of(parts(name)[3]), 2)))
    assert trainer.applied_step == 2
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert any(not torch.equal(value, before[key]) for key, value in trainer.model.state_dict().items())


@pytest.mark.parametrize("precision", AVAILABLE)
@pytest.mark.parametrize("name", QUICK)
def test_preflight_finds_no_fault(name: str, precision: str) -> None:
    script, config, data, batch = parts(name)
    trainer, last = trainer_of(name, precision), last_batch(data.evaluation)
    finding = preflight.examine(trainer, script.task.score, pair_of(batch), pair_of(last), config.num_classes)
    assert finding.faults == []
    assert finding.saved_mib is not None


@pytest.mark.parametrize("name", QUICK)
def test_a_saved_model_loads_strictly_and_computes_the_same(name: str, tmp_path: Path) -> None:
    script, config, _, batch = parts(name)
    first, second = (build_model(script.build, config, seed, CPU).eval() for seed in (0, 1))
    checkpoint.save(tmp_path / "model.pt", {"model": first.state_dict()})
    second.load_state_dict(checkpoint.load(tmp_path / "model.pt")["model"], strict=True)
    with torch.no_grad():
        assert torch.equal(script.task.forward(first, batch)[0], script.task.forward(second, batch)[0])


@pytest.mark.parametrize("name", [name for name in QUICK if "images" in parts(name)[3]])
def test_channels_last_and_contiguous_agree(name: str) -> None:
    script, config, _, batch = parts(name)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = build_model(script.build, config.model_copy(update={"channels_last": False}), 0, CPU)
        model = model.to(memory_format=layout).eval()
        images = batch["images"].contiguous(memory_format=layout)
        logits, labels = script.task.forward(model, {**batch, "images": images})
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        results.append((loss.detach(), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    (loss, gradients), (other_loss, other_gradients) = results
    torch.testing.assert_close(loss, other_loss, rtol=1e-4, atol=1e-4)
    for gradient, other in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-2, atol=1e-3 * max(1.0, float(gradient.abs().max())))


@pytest.mark.parametrize("name", QUICK)
def test_one_batch_can_be_learnt_by_heart(name: str) -> None:
    trainer = trainer_of(name)
    trainer.optimizers = [torch.optim.AdamW(trainer.model.parameters(), lr=2e-3)]
    trainer.peak_rates = [[2e-3]]
    trainer.schedule = lambda step: 1.0
    first = losses(trainer, parts(name)[3], 1)[0]
    # Most need a few dozen steps; sigmoids begin flat and need hundreds.
    assert any(min(losses(trainer, parts(name)[3], 10)) < 0.5 * first for _ in range(40))


@pytest.mark.parametrize("name", QUICK)
def test_a_resumed_run_takes_the_same_steps(name: str) -> None:
    batch = parts(name)[3]
    whole, half, resumed = (trainer_of(name) for _ in range(3))
    torch.manual_seed(5)
    losses(whole, batch, 4)
    torch.manual_seed(5)
    losses(half, batch, 2)
    state, generators = copy.deepcopy(half.state_dict()), random_state()
    torch.manual_seed(6)
    resumed.load_state_dict(state)
    restore_random_state(generators)
    losses(resumed, batch, 2)
    assert same_state(whole.model, resumed.model)


@pytest.mark.parametrize("like", sorted(new.LIKE))
def test_a_new_architecture_is_three_files_that_run_as_they_are(
    like: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("train", "configs", "scripts"):
        (tmp_path / folder).mkdir()
    assert new.create("brandnew", like, tmp_path) == 0
    namespace: dict[str, Any] = {"__name__": "train.brandnew"}
    source = (tmp_path / "train" / "brandnew.py").read_text()
    exec(compile(source, "brandnew.py", "exec"), namespace)
    assert len(source.splitlines()) <= 40
    monkeypatch.setattr("train.experiment.config.model_scripts", lambda: ["brandnew"])
    config = tmp_path / "configs" / "brandnew_digits.yaml"
    assert load(config).model == load(config).arch == "brandnew"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    arguments = [str(config), "--precision", "fp16", "--smoke", "--out", str(tmp_path / "runs")]
    assert namespace["main"](namespace["build"], namespace["task"], arguments) == 0
    assert "configs/brandnew_digits.yaml" in (tmp_path / "scripts" / "run_brandnew_amp.sh").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "taken") for name in ("resnet", "torch", "json", "utils")),
        *((name, "identifier") for name in ("My-Net", "class", "on", "null", "_net", "n\u00e9t", "x" * 250)),
    ],
)
def test_a_name_that_will_not_do_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        new.create(name, "resnet", tmp_path)
    assert not list(tmp_path.iterdir())


class Broken(nn.Module):
    """A network whose second layer fails in the way that `fault` says."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 3)
        if fault == "overflow":
            nn.init.ones_(self.second.weight)
        self.unused = nn.Linear(1, 1) if fault == "unused" else None
        self.fault = fault

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(images)
        if self.fault == "overflow":  # beyond fp16's 65504, within the range of the others
            hidden = self.second.weight.new_full((len(images), 4), 3e4) * (1 + 0 * hidden)
        if self.fault == "dtype":  # fails under autocast alone: the accumulator is float32
            hidden = torch.zeros(len(images), 4).scatter_add(1, torch.zeros(len(images), 4, dtype=torch.int64), hidden)
        if self.fault == "evaluation" and not self.training:
            return (hidden,)  # type: ignore[return-value]
        if self.fault == "product":  # 90,000: of no module's making
            hidden = 0 * self.second(hidden) + 300
            return hidden * 300
        logits: torch.Tensor = self.second(hidden)
        return logits


@pytest.mark.parametrize(
    ("fault", "precision", "expected"),
    [
        ("dtype", "bf16", "scatter_add in the model or its loss raises RuntimeError"),
        ("overflow", "fp16", "the output of second is not finite; fp32_modules=[second] would"),
        ("unused", "fp32", "no gradient reaches unused.weight, unused.bias"),
        ("head", "fp32", "the head gives 3 logits"),
        ("evaluation", "fp32", "the model returned tuple, not a tensor of logits"),
        ("product", "fp16", "the logits or the loss are not finite"),
    ],
)
def test_preflight_names_what_fails(fault: str, precision: str, expected: str) -> None:
    script, config, data, _ = parts("resnet20_digits")
    broken = replace(script, build=lambda _: Broken(fault))
    trainer = setup(broken, config, precision, 0, CPU, True, data).trainer
    batch = {"images": torch.ones(2, 4), "labels": torch.tensor([0, 1])}
    finding = preflight.examine(trainer, script.task.score, batch, batch, 10 if fault == "head" else 3)
    assert any(expected in text for text in finding.faults), finding.faults

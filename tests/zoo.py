"""Every experiment on embedded data, found by itself, and its parts for a smoke run."""

import importlib
from functools import cache
from typing import Any

import torch

from reports.records.config import Experiment
from tests.experiment.harness import ROOT
from train.cli.scripts import script_of
from train.data.catalog import Embedded
from train.data.specification import Splits
from train.engine.step import Batch, Trainer
from train.experiment.config import load
from train.experiment.setup import Script, setup
from train.experiment.tasks import Task

CPU = torch.device("cpu")
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
EXPERIMENTS = {path.stem: load(path) for path in CONFIGS}


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

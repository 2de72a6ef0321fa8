"""The parts of an experiment, each built in one place: configuration, weights, precision, trainer, plan."""

import hashlib
import importlib
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import UninitializedParameter

from train.data.hub import rely_on_cache_without_network, root_cause
from train.engine.allocator import keep_freed_memory
from train.engine.errors import Refused
from train.engine.fit import Batches, Plan, steps_per_epoch
from train.engine.fp32_modules import keep_in_fp32
from train.engine.precision import Precision, ScalerSettings
from train.engine.step import Trainer
from train.experiment.config import Experiment, load
from train.experiment.optimizers import build_optimizer, build_schedule, parameter_groups
from train.experiment.tasks import Task

Build = Callable[[Experiment], nn.Module]


def resolve(task: Task, config: Experiment, smoke: bool = False) -> Experiment:
    """The experiment with nothing left open: the class count is the data set's unless the file gives one."""
    classes = config.num_classes or task.data_set(config.data.name).classes
    changes: dict[str, Any] = {"num_classes": classes}
    if smoke:
        # Large enough to pass through warm-up, an evaluation and a checkpoint, small enough for any machine.
        batch_size = min(config.batch_size, 8)
        limits = {"train_samples": 64, "eval_samples": 16, "eval_batch_size": 8}
        length = config.data.length and min(config.data.length, 64)
        held_out = config.data.held_out and 8
        data = config.data.model_copy(update={**limits, "length": length, "held_out": held_out})
        schedule = config.schedule.model_copy(update={"warmup": 0, "milestones": []})
        changes |= {"epochs": None, "max_steps": 4, "batch_size": batch_size, "accumulate": 1}
        changes |= {"workers": 0, "log_every": 1}
        changes |= {"eval_every": None, "checkpoint_every": 2, "data": data, "schedule": schedule}
        changes["pretrained"] = False  # a smoke run needs no download
    return config.model_copy(update=changes)


def set_up_process(config: Experiment, device: torch.device) -> None:
    """Settings of the process that hold in every precision; to be called before anything large is made."""
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = not config.deterministic
        torch.backends.cudnn.deterministic = config.deterministic
    else:
        keep_freed_memory()


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def build_model(build: Build, config: Experiment, seed: int, device: torch.device) -> nn.Module:
    """The model with the seed's weights, drawn on the CPU so that they are the same on every device.

    Raises `Refused` for a `build` that fails, and for what it gives unless that is a module with weights to train.
    """
    if config.pretrained is True:
        rely_on_cache_without_network()
    seed_everything(seed)
    try:
        model = build(config)
    except (ValueError, RuntimeError, MemoryError) as error:  # torch: not enough memory for the weights
        raise Refused(f"{config.name}: {error}") from error
    except Exception as error:
        raise Refused(f"{config.name}: build of train.{config.model} raises {root_cause(error)}") from error
    _check_built(model, config)
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    return model.to(device=device, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def _check_built(model: object, config: Experiment) -> None:
    where = f"{config.name}: build of train.{config.model}"
    if not isinstance(model, nn.Module):
        raise Refused(f"{where} gives {type(model).__name__}, not a torch.nn.Module")
    parameters = dict(model.named_parameters())
    lazy = [name for name, parameter in parameters.items() if isinstance(parameter, UninitializedParameter)]
    if lazy:
        raise Refused(f"{where}: parameter {lazy[0]!r} has no shape yet; give lazy modules their sizes")
    if meta := [name for name, parameter in parameters.items() if parameter.is_meta]:
        raise Refused(f"{where}: parameter {meta[0]!r} is on the meta device and has no values; build it on the CPU")
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise Refused(f"{where}: the model has no parameter to train")
    if config.pretrained and not hasattr(model, "pretrained"):  # what the loaders of `models` leave on it
        raise Refused(f"pretrained: train.{config.model} loads no weights; leave it false, not {config.pretrained}")


def build_precision(name: str, config: Experiment, device: torch.device) -> Precision:
    """The precision with the experiment's scaler settings."""
    return Precision(name, device, ScalerSettings(**config.scaler.model_dump()))


def build_trainer(model: nn.Module, task: Task, config: Experiment, train: Batches, precision: Precision) -> Trainer:
    """Model, optimizer and schedule of an experiment, ready to step."""
    keep_in_fp32(model, config.fp32_modules, precision)
    per_epoch = steps_per_epoch(train, config.accumulate)
    unit = per_epoch if config.epochs is not None else 1
    settings = config.optimizer.model_dump()
    groups = parameter_groups(model, settings.pop("weight_decay"), settings.pop("decay_norm_and_bias"))
    schedule = build_schedule(
        config.schedule.name,
        total=plan(config, train).steps,
        warmup=round(config.schedule.warmup * unit),
        final=config.schedule.final,
        milestones=[round(milestone * unit) for milestone in config.schedule.milestones],
        gamma=config.schedule.gamma,
    )
    return Trainer(
        model,
        task.forward,
        task.loss(config),
        task.weight,
        [build_optimizer(groups=groups, device=precision.device, **settings)],
        schedule,
        precision,
        clip_norm=config.clip_norm,
        ema_decay=config.ema_decay,
    )


def plan(config: Experiment, train: Batches) -> Plan:
    """The experiment's length and cadence in steps; without `eval_every` it evaluates after each epoch."""
    per_epoch = steps_per_epoch(train, config.accumulate)
    eval_every = config.eval_every or per_epoch
    return Plan(
        steps=config.max_steps or per_epoch * (config.epochs or 0),
        accumulate=config.accumulate,
        log_every=config.log_every,
        eval_every=eval_every,
        checkpoint_every=config.checkpoint_every or eval_every,
    )


def digest_of(model: nn.Module) -> str:
    """SHA-256 over names, shapes and bytes of all weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def script_name(build: Build) -> str | None:
    """The name of the training script that runs as the program and defines `build`; None for any other `build`."""
    specification = getattr(sys.modules.get(build.__module__), "__spec__", None)
    if build.__module__ != "__main__" or specification is None:
        return None
    return str(specification.name).rpartition(".")[2]


def script_of(path: Path, overrides: Sequence[str], smoke: bool = False) -> tuple[Build, Task, Experiment]:
    """What the training script that an experiment names defines, and the resolved experiment."""
    config = load(path, overrides)
    script = importlib.import_module(f"train.{config.model}")
    return script.build, script.task, resolve(script.task, config, smoke)

"""One wiring of an experiment: script, data, model, optimizer, precision, trainer and plan."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import UninitializedParameter

from reports.records.config import Experiment
from train.data.hub import rely_on_cache_without_network, root_cause
from train.data.specification import Splits
from train.engine.allocator import keep_freed_memory
from train.engine.copies import copied
from train.engine.errors import Refused
from train.engine.fit import Batches, Plan, evaluate, steps_per_epoch
from train.engine.precision import Precision, ScalerSettings, require_available
from train.engine.step import Trainer
from train.experiment.config import load
from train.experiment.optimizers import build_optimizer, build_schedule
from train.experiment.seeding import seed_everything
from train.experiment.tasks import Task

Build = Callable[[Experiment], nn.Module]


@dataclass(frozen=True)
class Script:
    """What a per-model training script defines."""

    build: Build
    task: Task

    def read(self, path: Path, overrides: Sequence[str], smoke: bool = False) -> Experiment:
        """The experiment in `path` with nothing left open. Raises `Refused` for one of another script."""
        config = load(path, overrides)
        if (name := self.name) not in (None, config.model):
            raise Refused(f"{path} is for model {config.model!r}, but this is the script of {name!r}")
        classes = config.num_classes or self.task.entry(config.data.name).classes
        config = config.model_copy(update={"num_classes": classes})
        return config.smoke() if smoke else config

    @property
    def name(self) -> str | None:
        """The name of the script that runs as the program and defines `build`; None for any other `build`."""
        specification = getattr(sys.modules.get(self.build.__module__), "__spec__", None)
        if self.build.__module__ != "__main__" or specification is None:
            return None
        return str(specification.name).rpartition(".")[2]


@dataclass(frozen=True)
class Setup:
    """The parts of one run, wired. `initial_weights` is the SHA-256 of the model before its first step."""

    script: Script
    config: Experiment
    seed: int
    device: torch.device
    smoke: bool
    precision: Precision
    model: nn.Module
    initial_weights: str
    data: Splits
    plan: Plan
    trainer: Trainer

    @property
    def task(self) -> Task:
        return self.script.task.of(self.config)

    @property
    def micro_batches(self) -> int:
        """How many a step has; an epoch that has fewer ends with such a step."""
        return min(self.config.accumulate, self.data.train.batches)

    def trainer_on_copy(self) -> Trainer:
        """A trainer on a copy of the model; the precision, and so the loss scale, is shared."""
        return _build_trainer(copied(self.model), self.task, self.config, self.plan, self.data, self.precision)

    def evaluate(
        self,
        batches: Batches,
        precision: Precision | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
        on_right: Callable[[Tensor], None] = lambda right: None,
    ) -> dict[str, float]:
        """The metrics of the weights to evaluate, by `Metric.key`, in the run's precision unless another is given.

        `on_right` gets of each batch which samples are right, where the metric that decides is the share of these.
        """
        task, model = self.task, self.trainer.evaluated_model
        are_right = task.measures[0].right

        def score(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
            if are_right is not None:
                on_right(are_right(logits, labels))
            return task.score(logits, labels)

        return task.summarise(
            evaluate(model, task.forward, score, batches, precision or self.precision, stop_requested)
        )


def setup(
    script: Script,
    config: Experiment,
    precision: str,
    seed: int,
    device: torch.device,
    smoke: bool = False,
    data: Splits | None = None,
) -> Setup:
    """Wire a run; `data` of another setup of the same experiment and seed need not be loaded again.

    Raises `Refused` for a precision that the device cannot run, for data, and for a model that does not fit.
    """
    require_available(precision, device)
    set_up_process(config, device)
    engine = Precision(precision, device, ScalerSettings(**config.scaler.model_dump()), config.autocast_policy)
    model = build_model(script.build, config, seed, device)
    initial_weights = digest_of(model)
    data = data or script.task.data(config, seed, device, smoke)
    plan = _plan(config, data.train)
    seed_everything(seed)
    trainer = _build_trainer(model, script.task, config, plan, data, engine)
    return Setup(script, config, seed, device, smoke, engine, model, initial_weights, data, plan, trainer)


def set_up_process(config: Experiment, device: torch.device) -> None:
    """Settings of the process that hold in every precision, made before anything large is."""
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = not config.deterministic
        torch.backends.cudnn.deterministic = config.deterministic
    else:
        keep_freed_memory()


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
    if config.pretrained and not hasattr(model, "pretrained"):  # what the loaders of `models` leave on it
        _note_own_weights(model, build, config, seed)
    layout = torch.channels_last if config.channels_last else torch.preserve_format
    return model.to(device=device, memory_format=layout)  # type: ignore[call-overload, no-any-return]


def digest_of(model: nn.Module) -> str:
    """SHA-256 over names, shapes and bytes of all weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):  # what `get_extra_state` gives
            digest.update(f"{name} {tensor!r} ".encode())
            continue
        dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
        digest.update(f"{name} {tuple(tensor.shape)} ".encode())
        digest.update(dense.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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


def _note_own_weights(model: nn.Module, build: Build, config: Experiment, seed: int) -> None:
    """Record that a script's own `build` loaded the weights; raise `Refused` when it builds the same without them."""
    seed_everything(seed)
    try:
        fresh = digest_of(build(config.model_copy(update={"pretrained": False})))
    except Exception:  # it has no other weights
        fresh = None
    if fresh == digest_of(model):
        raise Refused(f"pretrained: train.{config.model} loads no weights; leave it false, not {config.pretrained}")
    source = config.pretrained if isinstance(config.pretrained, str) else f"build of train.{config.model}"
    model.pretrained = {"source": source}  # type: ignore[assignment]


def _plan(config: Experiment, train: Batches) -> Plan:
    """Length and cadence in steps; without `eval_every` an evaluation follows each epoch."""
    per_epoch = steps_per_epoch(train, config.accumulate)
    eval_every = config.eval_every or per_epoch
    return Plan(
        steps=config.max_steps or per_epoch * (config.epochs or 0),
        accumulate=config.accumulate,
        log_every=config.log_every,
        eval_every=eval_every,
        checkpoint_every=config.checkpoint_every or eval_every,
    )


def _build_trainer(
    model: nn.Module, task: Task, config: Experiment, plan: Plan, data: Splits, precision: Precision
) -> Trainer:
    unit = steps_per_epoch(data.train, config.accumulate) if config.epochs is not None else 1
    schedule = build_schedule(
        config.schedule.name,
        total=plan.steps,
        warmup=round(config.schedule.warmup * unit),
        final=config.schedule.final,
        milestones=[round(milestone * unit) for milestone in config.schedule.milestones],
        gamma=config.schedule.gamma,
    )
    optimizer = build_optimizer(
        model,
        config.optimizer.name,
        config.optimizer.lr,
        config.optimizer.weight_decay,
        config.optimizer.decay_norm_and_bias,
        config.optimizer.fused,
        config.optimizer.arguments,
        precision.device,
    )
    return Trainer(
        model,
        task.forward,
        task.loss(config),
        task.weight,
        [optimizer],
        schedule,
        precision,
        clip_norm=config.clip_norm,
        ema_decay=config.ema_decay,
        fp32_modules=config.fp32_modules,
    )

"""The only training loop in the repository, and the only evaluation loop."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor, nn

from .errors import Interrupted
from .meter import Meter
from .precision import Precision
from .step import Batch, Forward, Trainer

Score = Callable[[Tensor, Tensor], Mapping[str, Tensor]]


class Batches(Protocol):
    """One split of a data set: `samples` of them in `batches` batches an epoch, on the device.

    The batches of an epoch, from batch `start` on, are a function of the seed, `epoch` and the position
    alone, so a position is all that a checkpoint has to keep.
    """

    samples: int
    batches: int

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]: ...

    def digest(self) -> str:
        """SHA-256 of the data order, equal for two runs that see the same batches."""
        ...


def last_batch(batches: Batches) -> Batch:
    """The last batch of the first epoch."""
    return next(batches.epoch(0, batches.batches - 1))


@dataclass(frozen=True)
class Plan:
    """How long to train and how often to do what, in steps; None means at the end alone. `steps` are attempted ones."""

    steps: int
    accumulate: int = 1
    log_every: int = 50
    eval_every: int | None = None
    checkpoint_every: int | None = None


@dataclass
class Progress:
    """What a resumed run must know beside the trainer's state."""

    evaluated_step: int = 0
    best: float | None = None


def is_better(value: float, best: float | None, higher: bool) -> bool:
    """Whether `value` is a new best. A value that is not finite never is, and never blocks a later one."""
    if not math.isfinite(value):
        return False
    return best is None or (value > best if higher else value < best)


def steps_per_epoch(batches: Batches, accumulate: int) -> int:
    """Optimizer steps in an epoch; the last one may have fewer micro-batches."""
    return math.ceil(batches.batches / accumulate)


def micro_batches_by_step(batches: Batches, accumulate: int, step: int) -> Iterator[list[Batch]]:
    """The micro-batches of each step from attempted step `step` on, epoch after epoch, without end."""
    epoch, first = divmod(step, steps_per_epoch(batches, accumulate))
    while True:
        stream = batches.epoch(epoch, start=first * accumulate)
        while micro_batches := list(islice(stream, accumulate)):
            yield micro_batches
        epoch, first = epoch + 1, 0


def fit(
    trainer: Trainer,
    batches: Batches,
    plan: Plan,
    meter: Meter | None = None,
    progress: Progress | None = None,
    on_log: Callable[[dict[str, float]], None] = lambda metrics: None,
    on_evaluate: Callable[[], None] = lambda: None,
    on_checkpoint: Callable[[], None] = lambda: None,
    stop_requested: Callable[[], bool] = lambda: False,
    tokens: Callable[[Batch], int | Tensor] = lambda batch: 0,
) -> None:
    """Train from `trainer.step_count` to `plan.steps`.

    `tokens(batch)` is how many a batch holds, 0 where it is not of tokens; a tensor is not waited for. `on_log` gets
    the metrics every `plan.log_every` steps and at the end; `on_evaluate` and `on_checkpoint` run at the end too.
    Raises `Interrupted` after a checkpoint when `stop_requested` says so, in evaluation as well, and `Diverged`
    from the step.
    """
    meter, progress = meter or Meter(trainer.precision.device), progress or Progress()
    per_epoch = steps_per_epoch(batches, plan.accumulate)

    def evaluate_and_save() -> None:
        meter.pause()
        trainer.check()
        step = trainer.step_count
        try:
            if _due(step, plan.eval_every, plan.steps) and progress.evaluated_step < step:
                with modes_restored(trainer.model):
                    on_evaluate()
                progress.evaluated_step = step
        finally:
            on_checkpoint()
        if stop_requested() and step < plan.steps:
            raise Interrupted(f"stopped at step {step} of {plan.steps}")
        meter.resume()

    if trainer.step_count and _due(trainer.step_count, plan.eval_every, plan.steps):
        evaluate_and_save()  # the run was interrupted in this evaluation, or after it
    trainer.train_mode()
    stream = micro_batches_by_step(batches, plan.accumulate, trainer.step_count)
    meter.resume()
    while trainer.step_count < plan.steps:
        started = time.perf_counter()
        micro_batches = next(stream)
        data_seconds = time.perf_counter() - started
        trainer.step(micro_batches)
        step = trainer.step_count
        meter.step(sum(len(batch["labels"]) for batch in micro_batches), data_seconds, sum(map(tokens, micro_batches)))
        if _due(step, plan.log_every, plan.steps):
            trainer.check()
            on_log({**trainer.read_metrics(), "train/epoch": step / per_epoch, **meter.read()})
        if _due(step, plan.eval_every, plan.steps) or _due(step, plan.checkpoint_every, plan.steps) or stop_requested():
            evaluate_and_save()
    meter.pause()


def evaluate(
    model: nn.Module,
    forward: Forward,
    score: Score,
    batches: Batches,
    precision: Precision,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[str, Tensor]:
    """Sums over every sample once: `score(float32 logits, labels)` gives each batch's (integer counts stay integers).

    Raises `Interrupted` between two batches, and RuntimeError unless exactly `batches.samples` were seen.
    """
    totals: dict[str, Tensor] = {}
    seen = 0
    with modes_restored(model), torch.no_grad():
        model.eval()
        for batch in batches.epoch(0):
            with precision.forward():
                logits, labels = forward(model, batch)
            for name, value in score(logits.float(), labels).items():
                totals[name] = totals[name] + value if name in totals else value
            seen += len(batch["labels"])
            if stop_requested():
                raise Interrupted("stopped while evaluating")
    if seen != batches.samples:
        raise RuntimeError(f"evaluated {seen} samples of {batches.samples}")
    return totals


@contextmanager
def modes_restored(model: nn.Module) -> Iterator[None]:
    """Afterwards every module is in the mode, of training or evaluation, that it was in; after an exception too."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _due(step: int, every: int | None, last: int) -> bool:
    return step == last or (every is not None and step % every == 0)

"""One run: an experiment in one precision with one seed, from its wiring to its record."""

import math
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from reports.records import layout
from reports.records.config import LENGTH, Experiment
from reports.records.environment import Attempt, EffectivePrecision, Environment, Machine, RunPrecision
from reports.records.identity import Identity
from reports.records.metric import Metric
from reports.records.metrics import LOSS as TRAINING_LOSS
from reports.records.summary import DIVERGED, FAILED, FINISHED, INTERRUPTED, Status, Summary, to_hex
from train.engine import checkpoint
from train.engine.errors import Diverged, EngineFault, Interrupted, Refused
from train.engine.fit import Batches, Plan, Progress, fit, is_better, last_batch
from train.engine.meter import Meter, synchronize
from train.engine.precision import Precision
from train.engine.saved_for_backward import TrialPass
from train.engine.step import Batch
from train.experiment import environment, seeding
from train.experiment.folder import POLICIES, RunFolder, Wanted, lock_folder, open_folder
from train.experiment.identity import identity_of, source_files
from train.experiment.metrics import LOSS
from train.experiment.preflight import trial_run
from train.experiment.record import RunRecord, Tracker
from train.experiment.run_state import BEST, LAST, PREVIOUS, START_AGAIN, best_of
from train.experiment.setup import Script, Setup, digest_of, setup
from train.experiment.summary import summarise

COMPUTE_SECONDS = 1.0


class Display(Protocol):
    """What a person watches while it trains."""

    def update(self, metrics: dict[str, float]) -> None: ...

    def evaluated(self, step: int, values: Sequence[tuple[Metric, float]]) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Services:
    """What the command gives a run. `command` is how it was called.

    `track(folder, experiment, environment, metric, smoke)` starts a tracker, `display(title, steps, done)` a display,
    and `stop_requested` says whether a signal asked the run to stop. A run that `is_part` of a comparison leaves it to
    that to say where the tracker shows them.
    """

    track: Callable[[Path, Experiment, Environment, Metric, bool], Tracker]
    display: Callable[[str, int, int], Display]
    stop_requested: Callable[[], bool]
    command: str
    is_part: bool = False


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: its wiring, its first batch, and what the trial pass measured."""

    setup: Setup
    first_batch: Batch
    trial: TrialPass


def prepare(
    script: Script, path: Path, overrides: Sequence[str], precision: str, seed: int, device: str, smoke: bool = False
) -> Prepared:
    """Everything before the first write; raises `Refused` for whatever cannot work."""
    config = script.read(path, overrides, smoke)
    wired = setup(script, config, precision, seed, environment.resolve_device(device), smoke)
    batch = next(wired.data.train.epoch(0))
    try:
        trial = trial_run(wired.trainer, wired.task.score, batch, last_batch(wired.data.evaluation), config.num_classes)
    except EngineFault as error:
        raise Refused(f"{config.name}: {error}") from error
    return Prepared(wired, batch, trial)


def execute(prepared: Prepared, out: Path, resume: str, services: Services) -> None:
    """Train into `out` and write the record; a finished run is left as it is.

    Raises `Refused`, `Interrupted`, `Diverged`, or `EngineFault` for whatever else ends the training.
    """
    wired = prepared.setup
    name = layout.run_name(wired.precision.name, wired.seed)
    path = layout.experiment_folder(out, wired.config.name, wired.smoke) / name
    if wired.smoke and path.exists():  # figures of a smoke run are not worth keeping
        with lock_folder(path):
            shutil.rmtree(path)
    machine = environment.describe(wired.device, source_files(wired.script, wired.model))
    identity = identity_of(wired, machine)
    wanted = Wanted(wired.config, wired.precision.name, wired.seed, identity, _first_checkpoint(wired.plan))
    folder = open_folder(path, wanted, resume)
    if folder.finished and resume not in POLICIES:
        raise Refused(f"{path} is finished already; to resume from {resume}, choose another --out")
    if folder.finished:
        print(f"{path}: finished already", flush=True)
        return
    Run(prepared, folder, machine, identity, services).train()


class Run:
    """The training of one run in its folder, resumed from the folder's checkpoint where there is one."""

    def __init__(
        self, prepared: Prepared, folder: RunFolder, machine: Machine, identity: Identity, services: Services
    ) -> None:
        self.prepared, self.folder, self.identity, self.services = prepared, folder, identity, services
        self.setup = prepared.setup
        self.trainer = self.setup.trainer
        self.meter = Meter(self.setup.device)
        self.progress = Progress()
        self.final_weights: str | None = None
        self.right: list[Tensor] = []  # of the latest evaluation, by batch
        history = self._resume() if folder.resumed is not None else ""
        own = Environment(**dict(machine), precision=self._precision(), seed=self.setup.seed)
        # Of each attempt, because a source that had changes in one of them is not made clean by the next.
        attempt = Attempt(git=machine.git, place=identity.place, command=services.command)
        attempt.from_step = self.trainer.step_count
        folder.begin(self.setup.config, own, attempt)
        config, precision, seed = self.setup.config, self.setup.precision.name, self.setup.seed
        tracker = services.track(folder.path, config, own, self.setup.task.metric, self.setup.smoke)
        self.record = RunRecord(folder.path, history, tracker)
        title = f"{config.name} {layout.run_name(precision, seed)}"
        self.display = services.display(title, self.setup.plan.steps, self.trainer.step_count)

    def train(self) -> None:
        """Train to the end, whatever it is, and close the record with it."""
        started = time.perf_counter()
        status: Status = FAILED
        reason: str | None = None
        try:
            self._fit()
            self._finish()
            status = FINISHED
        except Interrupted as error:
            status, reason = INTERRUPTED, str(error)
            raise
        except Diverged as error:
            status, reason = DIVERGED, str(error)
            if self.trainer.unread_steps:
                self._log(self.trainer.read_metrics())  # with the value that is not finite, as it was
            raise
        except Refused as error:  # of a sample that is read only now
            reason = str(error)
            raise
        except SystemExit as error:  # in a model or its data
            reason = f"sys.exit({error.code!r}) was called"
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError) and error.filename:  # such as a full disk: the file and the fault say it all
                raise
            traceback.print_exc()
            raise EngineFault(reason) from error
        finally:
            self.display.stop()
            self._close(self._summary(status, reason, time.perf_counter() - started))

    def _fit(self) -> None:
        fit(
            self.trainer,
            self.setup.data.train,
            self.setup.plan,
            self.meter,
            self.progress,
            on_log=self._log,
            on_evaluate=self._evaluate,
            on_checkpoint=lambda: self._save(LAST),
            stop_requested=self.services.stop_requested,
            tokens=self.setup.task.tokens,
        )

    def _finish(self) -> None:
        """Measure the final weights: once more in FP32, and the speed of steps without a loader."""
        step, last = self.trainer.step_count, self.record.last()
        self._require_trained(last.get(TRAINING_LOSS))
        for metric in (LOSS.metric, self.setup.task.metric):  # NaN logits have a best class too, but no loss
            value = last.get(metric.key, math.nan if metric is self.setup.task.metric else 0.0)
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise Diverged(f"step {step}: the evaluation {metric.label} of the final weights is {value}")
        if self.setup.task.measures[0].right and not self.right:  # it was interrupted after the last evaluation
            self._score_and_keep_right()
        if self.setup.precision.name != layout.BASELINE:
            values = self._score(self.setup.data.evaluation, Precision(layout.BASELINE, self.setup.device))
            metrics = {metric.key: metric.fp32_key for metric in self.setup.task.metrics}
            self.record.log(step, {metrics[key]: value for key, value in values.items()})
            self.setup.precision.activate()
        self.final_weights = digest_of(self.trainer.evaluated_model)
        self.record.log(step, {"throughput/compute_samples_per_sec": self._compute_throughput()})

    def _require_trained(self, loss: object) -> None:
        """Raise `Diverged` for a training that moved nothing, or that ends on losses that are not finite.

        One skipped step at the end may have any loss: loss scaling skips now and then in a run that is well.
        """
        trainer, skips = self.trainer, self.setup.precision.consecutive_skips
        if trainer.applied_step == 0:
            raise Diverged(f"step {trainer.step_count}: none of the steps was applied")
        if skips > 1 and not (isinstance(loss, int | float) and math.isfinite(loss)):
            raise Diverged(f"step {trainer.step_count}: the last {skips} steps were skipped, with a loss of {loss}")

    def _log(self, metrics: dict[str, float]) -> None:
        saved = {"memory/saved_for_backward_mib": self.prepared.trial.saved_mib}
        reason = {"throughput/reason": self.meter.unmeasured_reason}
        self.record.log(self.trainer.step_count, {**metrics, **reason, **saved})
        self.display.update(metrics)

    def _score(self, batches: Batches, precision: Precision | None = None) -> dict[str, float]:
        return self.setup.evaluate(batches, precision, self.services.stop_requested)

    def _score_and_keep_right(self) -> dict[str, float]:
        """The metrics of the evaluation split; which samples are right stays in `right`."""
        self.right = []
        return self.setup.evaluate(self.setup.data.evaluation, None, self.services.stop_requested, self.right.append)

    def _evaluate(self) -> None:
        step, task, data = self.trainer.step_count, self.setup.task, self.setup.data
        random = seeding.random_state()
        try:
            values = self._score_and_keep_right()
            if data.held_out is not None:
                keys = {metric.key: metric.held_out_key for metric in task.metrics}
                values |= {keys[key]: value for key, value in self._score(data.held_out).items()}
        except Interrupted:
            seeding.restore_random_state(random)  # the evaluation is made again, with the same draws
            raise
        self.record.log(step, values)
        self.display.evaluated(step, [(metric, values[metric.key]) for metric in task.metrics if metric.key in values])
        value = values.get(task.metric.key)
        if value is None:
            raise EngineFault(f"the evaluation gives no {task.metric.label}, by which the task judges the weights")
        if not math.isfinite(values.get(LOSS.metric.key, 0.0)):
            return  # NaN logits have a best class too
        if is_better(value, self.progress.best, task.metric.higher_is_better):
            self.progress.best = value
            self.progress.evaluated_step = step  # a run that resumes from this checkpoint need not evaluate again
            self._save(BEST)

    def _save(self, name: str) -> None:
        config, precision, seed = self.setup.config, self.setup.precision.name, self.setup.seed
        checkpoint.save(
            self.folder.path / name,
            {
                "identity": {"config": config.model_dump(), "precision": precision, "seed": seed},
                "built": self.identity.model_dump(),
                "run_id": self.folder.run_id,
                "attempts": [attempt.model_dump() for attempt in self.folder.attempts],
                "history": self.record.history(),
                "trainer": self.trainer.state_dict(),
                "progress": asdict(self.progress),
                "meter": self.meter.state_dict(),
                "random": seeding.random_state(),
            },
            self.folder.path / PREVIOUS if name == LAST else None,
        )

    def _resume(self) -> str:
        """Restore the state of the checkpoint; returns the lines that were logged up to it."""
        assert self.folder.resumed is not None
        resumed, steps, path = self.folder.resumed, self.setup.plan.steps, self.folder.path
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self.trainer.load_state_dict(resumed.state.trainer)
                self.meter.load_state_dict(resumed.state.meter)
                seeding.restore_random_state(resumed.state.random)
                step = int(self.trainer.step_count)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
                fault = f"{type(error).__name__}: {error}".splitlines()[0]
                raise Refused(f"checkpoint {resumed.source} does not fit this run: {fault}; {START_AGAIN}") from error
        if step > steps:
            raise Refused(f"{path} is at step {step} already, beyond {steps}")
        self.progress = best_of(resumed.state, resumed.source, path)
        for warning in caught:
            print(f"warning: {warning.message}", flush=True)
        print(f"{path}: resumes from step {step} of {steps}", flush=True)
        for change in resumed.changes:
            print(f"  {change.key}: {change.before} -> {change.after}", flush=True)
        if any(change.key in LENGTH for change in resumed.changes):
            print(f"  the schedule now ends at step {steps}", flush=True)
        return resumed.state.history

    def _compute_throughput(self) -> float:
        """Samples per second of whole steps at rate 0 on one batch on the device: the last thing to do."""
        trainer, batch, device = self.trainer, self.prepared.first_batch, self.setup.device
        micro_batches = [batch] * self.setup.micro_batches
        trainer.train_mode()
        before = trainer.step_count, trainer.applied_step, trainer.schedule
        trainer.schedule = lambda step: 0.0
        steps = 0
        trainer.step(micro_batches)
        synchronize(device)
        started = time.perf_counter()
        while steps < 3 or time.perf_counter() - started < COMPUTE_SECONDS:
            trainer.step(micro_batches)
            steps += 1
        synchronize(device)
        seconds = time.perf_counter() - started
        trainer.step_count, trainer.applied_step, trainer.schedule = before
        return len(batch["labels"]) * len(micro_batches) * steps / seconds

    def _close(self, summary: Summary) -> None:
        """End the record. A disk that does not take it fails a finished run; one that failed has said why already."""
        try:
            self.record.close(summary, int(summary.status != FINISHED))
        except OSError as error:
            if summary.status == FINISHED:
                raise
            if summary.status != FAILED:
                print(f"warning: {error}", flush=True)
        if not self.services.is_part and (where := self.record.tracker.location()):
            print(where, flush=True)

    def _precision(self) -> RunPrecision:
        return RunPrecision(
            requested=self.setup.precision.name,
            effective=EffectivePrecision(**asdict(self.setup.precision.describe())),
            module_outputs=self.prepared.trial.matrix_dtypes,
        )

    def _summary(self, status: Status, reason: str | None, seconds: float) -> Summary:
        summary = summarise(self.setup, self.identity, self.record, self.progress, self._precision())
        return summary.model_copy(
            update={
                "status": status,
                "reason": reason,
                "attempt_seconds": round(seconds, 3),
                "warmup_steps": self.meter.warmup_steps,
                "final_weights_sha256": self.final_weights,
                "right": to_hex(torch.cat(self.right).tolist()) if self.final_weights and self.right else None,
            }
        )


def _first_checkpoint(plan: Plan) -> int:
    """The step after which a checkpoint is due for the first time."""
    return min(plan.steps, plan.eval_every or plan.steps, plan.checkpoint_every or plan.steps)

"""One run: an experiment in one precision with one seed, from the command line to its record."""

import math
import shlex
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train.cli import options as command
from train.cli import signals
from train.cli import terminal as console
from train.engine import checkpoint
from train.engine.errors import Diverged, EngineFault, Interrupted, Refused
from train.engine.fit import Batches, Progress, evaluate, fit, is_better, last_batch
from train.engine.meter import Meter, synchronize
from train.engine.precision import Precision, require_available
from train.engine.saved_for_backward import Probe
from train.experiment import environment
from train.experiment import setup as assemble
from train.experiment.config import load
from train.experiment.folder import BEST, LAST, RunFolder, lock_folder, open_folder
from train.experiment.preflight import rehearse
from train.experiment.setup import Build, digest_of
from train.experiment.tasks import Task
from train.tracking.record import Record
from train.tracking.wandb_names import mirror_of_run

COMPUTE_SECONDS = 1.0


def main(build: Build, task: Task, arguments: Sequence[str] | None = None) -> int:
    """The command of a per-model script; returns its exit status."""
    options = command.parser(f"train.{Path(sys.argv[0]).stem}", "Train one experiment in one precision with one seed.")
    options.add_argument("--precision", required=True, help="fp32, tf32 (CUDA), bf16 or fp16")
    options.add_argument("--seed", type=command.seed, default=0, help="of weights, data order and augmentation")
    options.add_argument("--resume", default="auto", metavar="auto|never|FILE", help="where to go on from")
    given = options.parse(arguments)
    return command.finish(
        lambda: (
            Run(build, task, given.config, given.overrides, given.precision, given.seed)
            .prepare(given.device, given.smoke)
            .execute(given.out, given.resume)
        ),
        given.smoke,
    )


class Run:
    """The parts of one run, wired: `prepare` refuses whatever cannot work, `execute` trains."""

    def __init__(
        self, build: Build, task: Task, path: Path, overrides: Sequence[str], precision: str, seed: int
    ) -> None:
        self.build, self.task, self.path, self.overrides = build, task, path, overrides
        self.precision_name, self.seed = precision, seed
        self.progress = Progress()

    def prepare(self, device: str, smoke: bool = False) -> "Run":
        """Everything up to the first write; raises `Refused`."""
        self.smoke = smoke
        config = load(self.path, self.overrides)
        if (script := assemble.script_name(self.build)) not in (None, config.model):
            raise Refused(f"{self.path} is for model {config.model!r}, but this is the script of {script!r}")
        self.config = assemble.resolve(self.task, config, smoke)
        self.device = environment.resolve_device(device)
        require_available(self.precision_name, self.device)
        assemble.set_up_process(self.config, self.device)
        self.precision = assemble.build_precision(self.precision_name, self.config, self.device)
        self.model = assemble.build_model(self.build, self.config, self.seed, self.device)
        self.initial_weights = digest_of(self.model)
        splits = self.task.load(self.config, self.seed, self.device, smoke)
        self.train, self.evaluation, self.held_out = splits.train, splits.evaluation, splits.held_out
        self.plan = assemble.plan(self.config, self.train)
        assemble.seed_everything(self.seed)
        self.trainer = assemble.build_trainer(self.model, self.task, self.config, self.train, self.precision)
        self.first_batch = next(self.train.epoch(0))
        try:
            self.probe: Probe = rehearse(
                self.trainer, self.task.score, self.first_batch, last_batch(self.evaluation), self.config.num_classes
            )
        except EngineFault as error:
            raise Refused(f"{self.config.name}: {error}") from error
        return self

    def execute(self, out: Path, resume: str) -> int:
        """Train into `out` and write the record; returns the exit status."""
        self.signals = signals.Signals()
        name = f"{self.precision_name}-s{self.seed}"
        path = (out / "smoke" if self.smoke else out) / self.config.name / name
        if self.smoke and path.exists():  # figures of a smoke run are not worth keeping
            with lock_folder(path):
                shutil.rmtree(path)
        self.folder = open_folder(path, self.config, self.precision_name, self.seed, resume)
        if self.folder.finished and resume not in ("auto", "never"):
            raise Refused(f"{path} is finished already; to go on from {resume}, choose another --out")
        if self.folder.finished:
            print(f"{self.folder.path}: finished already", flush=True)
            return command.STATUS["finished"]
        self.meter = Meter(self.device)
        if self.folder.state is not None:
            self._restore(self.folder)
        self._begin(name)
        started = time.perf_counter()
        status, reason = "failed", None
        try:
            self._fit()
            status = "finished"
        except Interrupted as error:
            status, reason = "interrupted", str(error)
            raise
        except Diverged as error:
            status, reason = "diverged", str(error)
            self._log(self.trainer.read_window())  # with the value that is not finite, as it was
            raise
        except Refused as error:  # of a sample that is read only now
            reason = str(error)
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, OSError) and error.filename:  # such as a full disk: the file and the fault say it all
                raise
            traceback.print_exc()
            raise EngineFault(reason) from error
        finally:
            self.bar.stop()
            self._close(status, reason, time.perf_counter() - started)
        return command.STATUS[status]

    def _close(self, status: str, reason: str | None, seconds: float) -> None:
        """End the record. A disk that does not take it fails a finished run; one that failed has said why already."""
        try:
            self.record.close(self._summary(status, reason, seconds), command.STATUS[status])
        except OSError as error:
            if status == "finished":
                raise
            if status != "failed":
                print(f"warning: {error}", flush=True)
        if where := self.record.mirror.location():
            print(where, flush=True)

    def _restore(self, folder: RunFolder) -> None:
        assert folder.state is not None
        state = folder.state
        if state["trainer"]["step"] > self.plan.steps:
            raise Refused(f"{folder.path} is at step {state['trainer']['step']} already, beyond {self.plan.steps}")
        self.trainer.load_state_dict(state["trainer"])
        self.progress = Progress(**state["progress"])
        self.meter.load_state_dict(state["meter"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpoint.restore_random_state(state.get("random"))
        for warning in caught:
            print(f"warning: {warning.message}", flush=True)
        print(f"{folder.path}: going on from step {self.trainer.step_count} of {self.plan.steps}", flush=True)
        for key, (before, after) in folder.changed.items():
            print(f"  {key}: {before} -> {after}", flush=True)
        if folder.changed:
            print(f"  the schedule now ends at step {self.plan.steps}", flush=True)

    def _begin(self, name: str) -> None:
        facts = {**environment.describe(self.device), "precision": self._precision_facts(), "seed": self.seed}
        attempt = {
            "command": shlex.join(["python", "-m", f"train.{self.config.model}", *sys.argv[1:]]),
            "from_step": self.trainer.step_count,
            "changed": {key: list(values) for key, values in self.folder.changed.items()} if self.folder.state else {},
        }
        self.folder.begin(self.config, facts, attempt)
        mirror = mirror_of_run(self.folder.path, self.folder.run_id, self.config, self.precision_name, self.seed)
        self.record = Record(self.folder.path, self.folder.history, mirror)
        self.bar = console.Progress(f"{self.config.name} {name}", self.plan.steps, self.trainer.step_count)

    def _fit(self) -> None:
        fit(
            self.trainer,
            self.train,
            self.plan,
            self.meter,
            self.progress,
            on_log=self._log,
            on_evaluate=self._evaluate,
            on_checkpoint=lambda: self._save(LAST),
            stop_requested=lambda: self.signals.requested,
            tokens=self.task.tokens,
        )
        loss = self.record.last().get("eval/loss", math.nan)
        if not math.isfinite(loss):
            raise Diverged(f"step {self.trainer.step_count}: the evaluation loss of the final weights is {loss}")
        if self.precision_name != "fp32":
            full = Precision("fp32", self.device)
            metrics = self._score(full, self.evaluation)
            self.record.log({"train/step": self.trainer.step_count} | {f"{key}_fp32": v for key, v in metrics.items()})
            self.precision.activate()
        self.final_weights = digest_of(self.trainer.evaluated_model)
        self.record.log({"train/step": self.trainer.step_count, **self._compute_throughput()})

    def _log(self, metrics: dict[str, Any]) -> None:
        self.record.log({**metrics, "memory/saved_for_backward_mib": self.probe.saved_mib})
        self.bar.update(metrics)

    def _score(self, precision: Precision, batches: Batches) -> dict[str, float]:
        totals = evaluate(
            self.trainer.evaluated_model,
            self.task.forward,
            self.task.score,
            batches,
            precision,
            stop_requested=lambda: self.signals.requested,
        )
        return self.task.summarise(totals)

    def _evaluate(self) -> None:
        metrics = self._score(self.precision, self.evaluation)
        if self.held_out is not None:
            found = self._score(self.precision, self.held_out)
            metrics |= {key.replace("eval/", "eval/held_out_"): value for key, value in found.items()}
        step = self.trainer.step_count
        self.record.log({"train/step": step, **metrics})
        self.bar.evaluated(step, metrics)
        value = metrics[f"eval/{self.task.metric}"]
        if is_better(value, self.progress.best, self.task.higher_is_better):
            self.progress.best = value
            self.progress.evaluated_step = step  # what this checkpoint goes on from need not evaluate again
            self._save(BEST)

    def _save(self, name: str) -> None:
        checkpoint.save(
            self.folder.path / name,
            {
                "identity": {
                    "config": self.config.model_dump(),
                    "precision": self.precision_name,
                    "seed": self.seed,
                },
                "run_id": self.folder.run_id,
                "lines": len(self.record.rows),
                "trainer": self.trainer.state_dict(),
                "progress": asdict(self.progress),
                "meter": self.meter.state_dict(),
                "random": checkpoint.random_state(),
            },
        )

    def _compute_throughput(self) -> dict[str, float]:
        """Samples per second of steps at rate 0 on one batch that is on the device already: the last thing to do."""
        self.model.train()
        step, applied, schedule = self.trainer.step_count, self.trainer.applied_step, self.trainer.schedule
        self.trainer.schedule = lambda step: 0.0
        samples = len(self.first_batch["labels"])
        steps = 0
        self.trainer.step([self.first_batch])
        synchronize(self.device)
        started = time.perf_counter()
        while steps < 3 or time.perf_counter() - started < COMPUTE_SECONDS:
            self.trainer.step([self.first_batch])
            steps += 1
        synchronize(self.device)
        seconds = time.perf_counter() - started
        self.trainer.step_count, self.trainer.applied_step, self.trainer.schedule = step, applied, schedule
        return {"throughput/compute_samples_per_sec": samples * steps / seconds}

    def _precision_facts(self) -> dict[str, Any]:
        return {
            "requested": self.precision_name,
            "effective": self.precision.describe(),
            "module_outputs": self.probe.matrix_dtypes,
        }

    def _summary(self, status: str, reason: str | None, seconds: float) -> dict[str, Any]:
        steps, applied = self.trainer.step_count, self.trainer.applied_step
        metrics = self.record.last()
        return {
            "experiment": self.config.name,
            "config_sha256": self.config.digest(),
            "status": status,
            "reason": reason,
            "smoke": self.smoke,
            "precision": self._precision_facts(),
            "seed": self.seed,
            "device": environment.device_name(self.device),
            "metric": f"eval/{self.task.metric}",
            "higher_is_better": self.task.higher_is_better,
            "final": metrics,
            "best": {f"eval/{self.task.metric}": self.progress.best},
            "steps": {"planned": self.plan.steps, "attempted": steps, "applied": applied},
            "skipped_steps": steps - applied if self.precision.arithmetic.scaled else 0,
            "nonfinite_loss_steps": self.record.nonfinite_loss_steps,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "pretrained": getattr(self.model, "pretrained", None),
            "train_samples": self.train.samples,
            "eval_samples": self.evaluation.samples,
            "warmup_steps": self.meter.warmup_steps,
            "attempt_seconds": round(seconds, 3),
            "initial_weights_sha256": self.initial_weights,
            "data_order_sha256": self.train.digest(),
            "final_weights_sha256": getattr(self, "final_weights", None),
        }

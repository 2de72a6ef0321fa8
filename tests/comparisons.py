"""Comparisons of a tiny network on the digits, made in this process; one of them is shared by all tests."""

import contextlib
import fcntl
import importlib
import io
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from reports.records import layout
from reports.records.comparison import Comparison
from reports.records.config import Experiment
from reports.records.files import read_record
from reports.records.metric import Metric
from reports.records.summary import Summary
from tests.experiment.harness import TINY
from train import compare
from train.cli import benchmark as benchmark_command
from train.cli import run as run_command
from train.cli.child import Child
from train.cli.options import REASON_FILE
from train.experiment import benchmark, config
from train.experiment.metrics import Measure, Sums
from train.experiment.setup import Build
from train.experiment.tasks import Task, image_classification

MODEL = "tiny"
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def build(config: Experiment) -> nn.Module:
    """Images (N, 1, 32, 32) to logits; nearly all that it saves for backward are activations."""
    features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4))
    return nn.Sequential(features, nn.Flatten(), nn.Linear(8 * 8 * 8, config.num_classes or 0))


def count_classes(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """By class: samples that were right, that were predicted, and that there are."""
    classes, predicted = logits.shape[-1], logits.argmax(dim=-1)
    counted = {"right": labels[predicted == labels], "predicted": predicted, "actual": labels}
    return {name: torch.bincount(values, minlength=classes) for name, values in counted.items()}


def mean_f1(sums: Sums) -> float:
    present = sums["predicted"] + sums["actual"]
    return float((2 * sums["right"] / present)[present > 0].mean())


MACRO_F1 = Measure(Metric(name="macro_f1", range=(0, 1), higher_is_better=True), count_classes, mean_f1)
TASK = replace(image_classification, measures=(*image_classification.measures, MACRO_F1))


@dataclass(frozen=True)
class Compared:
    """How `python -m train.compare` ended, what it printed, and the folder of its experiment."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def comparison(self) -> Comparison:
        return read_record(Comparison, self.folder / layout.COMPARISON)

    def summary(self, run: str) -> Summary:
        return read_record(Summary, self.folder / run / layout.SUMMARY)


class ChildInThisProcess(Child):
    """Runs the commands of a comparison here, one after the other."""

    def call(self, arguments: Sequence[str]) -> int:
        self._stop_if_asked()
        module, *rest = arguments
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as reason, pytest.MonkeyPatch.context() as patch:
            patch.setenv(REASON_FILE, reason.name)
            patch.setattr(sys, "argv", [f"{module.rpartition('.')[2]}.py", *rest])
            try:
                status = _command(module, rest)
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 1
            self.reason = reason.read() or "no reason given"
        self._stop_if_asked()
        return status


def run_comparison(
    out: Path,
    *arguments: str,
    path: Path = TINY,
    build: Build = build,
    task: Task = TASK,
    child: type[Child] = ChildInThisProcess,
) -> Compared:
    """Run the command in this process, with a script `train.tiny` that has `build` and `task`."""
    stdout, stderr = io.StringIO(), io.StringIO()
    model = [] if any(argument.startswith("model=") for argument in arguments) else [f"model={MODEL}"]
    options = [str(path), "--device", "cpu", "--out", str(out), *arguments, *(model if path == TINY else [])]
    with pytest.MonkeyPatch.context() as patch, _handlers_restored():
        patch.setattr(compare, "Child", child)
        patch.setattr(benchmark, "ROUNDS", 2)
        patch.setattr(benchmark, "BLOCK_SECONDS", 0.01)
        add_script(patch, build, task)
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = compare.main(options)
    return Compared(
        status, stdout.getvalue(), stderr.getvalue(), layout.experiment_folder(out, path.stem, "--smoke" in arguments)
    )


def add_script(patch: pytest.MonkeyPatch, build: Build, task: Task) -> None:
    """Make `train.tiny` a training script, as a file train/tiny.py with this `build` and `task` would be."""
    script = ModuleType(f"train.{MODEL}")
    script.build, script.task = build, task
    patch.setitem(sys.modules, script.__name__, script)
    scripts = config.model_scripts()
    patch.setattr(config, "model_scripts", lambda: sorted({*scripts, MODEL}))


def shared(factory: pytest.TempPathFactory, make: Callable[[Path], Compared]) -> Compared:
    """What `make(folder)` gives, made by the first worker that asks and read by the others."""
    base = factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared_comparison"
    root.mkdir(exist_ok=True)
    record = root / "compared"
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            made = make(root)
            for name in ("out", "err"):
                (root / name).write_text(getattr(made, name), encoding="utf-8")
            record.write_text(f"{made.status}\n{made.folder}", encoding="utf-8")
    status, folder = record.read_text(encoding="utf-8").split("\n")
    return Compared(int(status), (root / "out").read_text(), (root / "err").read_text(), Path(folder))


def copy_of(compared: Compared, out: Path) -> Path:
    """A copy of a comparison's folder in `out`, without checkpoints and W&B's files."""
    folder = out / compared.folder.name
    shutil.copytree(compared.folder, folder, ignore=shutil.ignore_patterns("*.pt", "wandb", ".lock"))
    return folder


def _command(module: str, arguments: list[str]) -> int:
    if module == benchmark_command.__name__:
        return benchmark_command.main(arguments)
    script = importlib.import_module(module)
    return run_command.main(script.build, script.task, arguments)


@contextlib.contextmanager
def _handlers_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

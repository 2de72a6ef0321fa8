"""Runs of a tiny network through the user's command, in this process or in one of its own."""

import contextlib
import functools
import hashlib
import io
import math
import multiprocessing
import os
import runpy
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reports.records import layout
from reports.records.config import Experiment
from reports.records.environment import Environment
from reports.records.files import read_record
from reports.records.metrics import LOSS, STEP, Figure, read_history, read_lines
from reports.records.summary import Summary
from train.cli import signals
from train.cli.run import main
from train.engine.step import Batch, Forward
from train.experiment import run as run_module
from train.experiment.setup import Build
from train.experiment.tasks import Task, classify_images, image_classification

ROOT = Path(__file__).resolve().parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
DIGITS = ROOT / "configs" / "resnet20_digits.yaml"
DIGITS_SHORT = ("data.train_samples=64", "data.eval_samples=32", "batch_size=8", "epochs=null", "log_every=1")


class TinyNet(nn.Module):
    """Images (N, 1, H, W) to logits (N, num_classes), through BatchNorm (buffers) and dropout (random draws)."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, stride=4)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(16, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.conv2(self.norm(self.conv1(images)).relu()).relu()
        logits: Tensor = self.fc(self.dropout(x.mean(dim=(2, 3))))
        return logits


def build(config: Experiment) -> nn.Module:
    assert config.num_classes is not None
    return TinyNet(config.num_classes)


@dataclass
class AtCall:
    """A task's forward that does `action` in one call, once.

    Training calls are numbered as the steps are, evaluation calls from 1; call 0 of either kind is that of the
    trial run before training.
    """

    number: int
    action: Callable[[], object]
    training: bool = True

    def __post_init__(self) -> None:
        self.calls = -1

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        if model.training == self.training:
            self.calls += 1
            if self.calls == self.number:
                self.action()
        return classify_images(model, batch)


@dataclass
class Poisoned:
    """A task's forward whose logits are NaN in some training steps."""

    steps: range

    def __post_init__(self) -> None:
        self.calls = -1

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        self.calls += model.training
        logits, labels = classify_images(model, batch)
        return (logits * math.nan if model.training and self.calls in self.steps else logits), labels


@dataclass(frozen=True)
class Outcome:
    """How a command ended: exit status, what it printed, and the folder of its run."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def summary(self) -> Summary:
        return read_record(Summary, self.folder / layout.SUMMARY)

    @property
    def reason(self) -> str:
        return self.summary.reason or ""

    def figure(self, name: str) -> float:
        """A final figure; an error where it was not measured."""
        value = self.summary.figure(name)
        assert value is not None, f"no {name}"
        return value

    @property
    def environment(self) -> Environment:
        return read_record(Environment, self.folder / layout.ENVIRONMENT)

    @property
    def rows(self) -> list[dict[str, Figure]]:
        return read_lines(self.folder / layout.METRICS)[0]

    @property
    def numbers(self) -> list[dict[str, Figure]]:
        """The rows without what depends on the machine's speed and memory; rows of nothing else are left out."""
        rows = ({key: row[key] for key in row if key.split("/")[0] in ("train", "eval", "amp")} for row in self.rows)
        return [row for row in rows if row.keys() != {STEP}]

    def column(self, name: str) -> dict[int, float]:
        """Step -> value of the rows that have metric `name`; each step at most once."""
        rows = read_history(self.folder / layout.METRICS).rows_with(name)
        steps = [int(row[STEP]) for row in rows]
        assert steps == sorted(set(steps)), f"{name} has steps twice or out of order: {steps}"
        return {int(row[STEP]): row[name] for row in rows}

    @property
    def losses(self) -> dict[int, float]:
        """The training loss by step."""
        return self.column(LOSS)

    def weights(self, checkpoint: str = "last") -> dict[str, Tensor]:
        model: dict[str, Tensor] = torch.load(self.folder / "checkpoints" / f"{checkpoint}.pt")["trainer"]["model"]
        return model


def folder_of(out: Path, config: Path, precision: str, seed: int = 0) -> Path:
    return out / config.stem / f"{precision}-s{seed}"


def run(
    out: Path,
    *overrides: str,
    precision: str = "fp32",
    options: tuple[str, ...] = (),
    config: Path = TINY,
    build: Build = build,
    forward: Forward = classify_images,
    task: Task = image_classification,
) -> Outcome:
    """Run the command in this process, as `python -m train.tiny CONFIG --precision ... ` would."""
    arguments = [str(config), "--precision", precision, "--device", "cpu", "--out", str(out), *options, *overrides]
    status, stdout, stderr = command(arguments, build, forward, task)
    seed = int(options[options.index("--seed") + 1]) if "--seed" in options else 0
    return Outcome(status, stdout, stderr, folder_of(out, config, precision, seed))


def command(
    arguments: list[str],
    build: Build = build,
    forward: Forward = classify_images,
    task: Task = image_classification,
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a per-model script given `arguments`."""
    stdout, stderr = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["train/tiny.py", *arguments]
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            status = main(build, replace(task, forward=forward))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        sys.argv = before
    return status, stdout.getvalue(), stderr.getvalue()


# Real processes, for what ends a process. The server has imported the libraries, so each one starts at once;
# torch._dynamo is what the first optimizer of a process imports.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    ["train.cli.run", "models.vision", "torch._dynamo", "wandb", "sklearn.datasets", "sklearn.model_selection"]
)


def start(function: Callable[[], int], log: Path, **environment: str) -> BaseProcess:
    """Start a process that exits with what `function` returns; it prints into the file `log` and has no stdin."""
    process = processes.Process(target=_child, args=(function, log, {"WANDB_MODE": "disabled", **environment}))
    process.start()
    return process


def wait(process: BaseProcess, seconds: float = 60) -> int:
    """The exit status; minus the signal's number when a signal ended the process."""
    process.join(seconds)
    assert process.exitcode is not None, f"still running after {seconds} s"
    return process.exitcode


def run_apart(
    out: Path, log: Path, *overrides: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> int:
    """`run` in a process of its own, with `environment` added to this one's; the exit status."""
    return wait(start(functools.partial(_run, out, *overrides, **arguments), log, **(environment or {})))


def script(*arguments: str) -> int:
    """`python -m train.resnet arguments`."""
    sys.argv = ["-m", *arguments]
    runpy.run_module("train.resnet", run_name="__main__", alter_sys=True)
    return 0


def _run(out: Path, *overrides: str, **arguments: Any) -> int:
    run_module.COMPUTE_SECONDS = 0.0
    done = run(out, *overrides, **arguments)
    print(done.out, done.err)
    return done.status


def _child(function: Callable[[], int], log: Path, environment: dict[str, str]) -> None:
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    signals.leave_at_once()  # as `python -m train.MODEL` does first of all
    sys.exit(function())


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Path -> (SHA-256, time of the last write) of every file but the lock."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def offline_records(path: Path) -> list[Any]:
    """The records of a W&B offline file, once its last one is there: W&B's own process writes it a little later."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        records = list(_records(path))
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        time.sleep(0.05)
    raise AssertionError(f"{path} was not completed")


def _records(path: Path) -> Iterator[Any]:
    """LevelDB's log format around W&B's own protobuf messages.

    Blocks of 32 KiB hold chunks of (CRC, length, kind, bytes); kinds 1 and 4 end a record, 2 and 3 go on.
    """
    import wandb.proto.wandb_internal_pb2 as messages

    block, header = 32768, struct.Struct("<IHB")
    data = path.read_bytes()
    if not data:
        return
    assert data[:4] == b":W&B"
    position, record = 7, b""
    while position + header.size <= len(data):
        left = block - position % block
        if left < header.size:
            position += left
            continue
        _, length, kind = header.unpack_from(data, position)
        position += header.size
        if position + length > len(data):
            return  # written in part
        record += data[position : position + length]
        position += length
        if kind in (1, 4):
            message = messages.Record()
            message.ParseFromString(record)
            record = b""
            yield message

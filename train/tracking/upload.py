"""What of the records of runs and comparisons can be uploaded, read and checked whole before anything is."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import Field, NonNegativeInt, field_validator

from reports.pages import table
from reports.records.environment import Attempt
from reports.records.files import Part, read_as, read_lines, read_object
from train.cli import options as command
from train.engine.errors import Refused
from train.engine.precision import PRECISIONS
from train.experiment.config import Experiment
from train.experiment.folder import lock_folder, recorded_config
from train.tracking.wandb_names import mirror_comparison, mirror_of_run
from train.tracking.wandb_run import Mirror

FINISH_SECONDS = 600.0  # of one upload; nothing waits behind it


class Damaged(Refused):
    """A file of a record does not hold what it should; the runs of an experiment may lack files, but not this."""


class Requested(Part):
    requested: str

    @field_validator("requested")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in PRECISIONS:
            raise ValueError(f"must be one of {', '.join(PRECISIONS)}")
        return name


class Identity(Part):
    """What of environment.json says which run it is, and whether it was a smoke run."""

    run_id: str = Field(min_length=1)
    seed: NonNegativeInt
    precision: Requested
    attempts: list[Attempt] | None = None


class Ended(Part):
    """What of summary.json says how the run ended."""

    status: Literal["finished", "failed", "diverged", "interrupted"]
    smoke: bool = False


class Run(Part):
    run: str


class Row(Part):
    precision: str


class Compared(Part):
    """What of comparison.json is uploaded."""

    metric: str | None = None
    smoke: bool = False
    precisions: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)
    runs: list[Run] = Field(min_length=1)


@dataclass
class RunRecord:
    """What one run folder holds; `lock` keeps a run from starting in it during the upload."""

    folder: Path
    run_id: str
    config: Experiment
    precision: str
    seed: int
    rows: list[dict[str, Any]]
    torn: int
    summary: dict[str, Any]
    lock: IO[str]

    @property
    def contents(self) -> str:
        left_out = f"; left out of metrics.jsonl as torn: {self.torn}" if self.torn else ""
        return f"{len(self.rows)} rows, {self.summary['status']}{left_out}"

    def send(self, project: str | None) -> Mirror:
        mirror = mirror_of_run(
            self.folder,
            self.run_id,
            self.config,
            self.precision,
            self.seed,
            project=project,
            live=False,
            finish_seconds=FINISH_SECONDS,
        )
        mirror.open(self.rows)
        mirror.close(self.summary, command.STATUS.get(self.summary["status"], command.STATUS["failed"]))
        return mirror


@dataclass
class ComparisonRecord:
    """What the comparison in an experiment's folder holds."""

    folder: Path
    config: Experiment
    comparison: dict[str, Any]

    @property
    def contents(self) -> str:
        return f"comparison of {', '.join(self.comparison['precisions'])}"

    def send(self, project: str | None) -> Mirror:
        return mirror_comparison(
            self.folder, self.config, self.comparison, project=project, live=False, finish_seconds=FINISH_SECONDS
        )


def read_run(folder: Path) -> RunRecord:
    """The record in a run's folder.

    Raises `Refused` where there is none, and for a smoke run or one that goes on, `Damaged` for one that is not whole.
    """
    environment, config = folder / "environment.json", recorded_config(folder)
    if not environment.exists() or config is None:
        missing = "config.yaml" if environment.exists() else "environment.json"
        raise Refused(f"{folder} is not the folder of a run: it has no {missing}{_runs_in(folder)}")
    with _damaged(environment):
        identity = read_as(Identity, environment, "the environment of a run")
    commands = [attempt.command or "" for attempt in identity.attempts or []]
    summary = _summary(folder / "summary.json")
    if summary.get("smoke", any("--smoke" in given.split() for given in commands)):
        raise Refused(f"{folder} is a smoke run: its figures say only that the code runs")
    rows, torn = read_lines(folder / "metrics.jsonl")
    if not rows:
        raise Refused(f"{folder} has no metrics: metrics.jsonl is missing or has no whole line")
    lock = lock_folder(folder)
    requested = identity.precision.requested
    return RunRecord(folder, identity.run_id, config, requested, identity.seed, rows, torn, summary, lock)


def _summary(file: Path) -> dict[str, Any]:
    """The object in summary.json, or that of a killed run where there is no such file."""
    if not file.exists():
        return {"status": "failed", "reason": "no summary.json: the run was killed"}
    with _damaged(file):
        return read_object(Ended, file, "the summary of a run")


def read_comparison(file: Path) -> dict[str, Any]:
    """The object in comparison.json; raises `Damaged` unless its parts that are uploaded are of the right kind."""
    with _damaged(file):
        comparison = read_object(Compared, file, "a comparison")
    for number, row in enumerate(comparison["rows"]):
        try:
            table.cells(row)  # what the table cannot be made of is no row
        except KeyError as error:
            raise Damaged(f"{file}: rows.{number}.{error.args[0]} is missing") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise Damaged(f"{file}: rows.{number} has a value of the wrong kind: {error}") from None
    return comparison


@contextlib.contextmanager
def _damaged(file: Path) -> Iterator[None]:
    """A ValueError on what is in `file` becomes `Damaged`, which names it."""
    try:
        yield
    except ValueError as error:
        raise Damaged(f"{file} {error}") from None


def _runs_in(folder: Path) -> str:
    runs = sorted(str(found.parent) for found in folder.glob("*/environment.json"))
    return f"; runs in it: {', '.join(runs)}" if runs else ""

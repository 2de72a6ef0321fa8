"""Upload records to Weights & Biases, whatever became of the live mirror: python -m train.sync RUN... [--project P]

RUN is the folder of a finished, failed or killed run, or that of an experiment with comparison.json: then its
comparison and the runs that it compares. W&B gets the rows of metrics.jsonl that it does not have yet, and the
summary of summary.json, so the command may be given again at any time. Without a key the files are written offline.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from reports import table
from reports.records import plain, read_environment, read_json, read_lines
from train.engine.errors import Refused, unknown
from train.engine.precision import PRECISIONS
from train.experiment import command
from train.experiment.config import Experiment
from train.experiment.folder import lock_folder, recorded_config
from train.experiment.mirror import Mirror, mode, require_project
from train.experiment.mirrored import mirror_comparison, mirror_of_run

FINISH_SECONDS = 600.0  # of one upload; nothing waits behind it
ENDS = ("finished", "failed", "diverged", "interrupted")


class Damaged(Refused):
    """A file of a record does not hold what it should; the runs of an experiment may lack files, but not this."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 0 when all was handed over, 1 when something was not."""
    options = command.Parser(
        prog="python -m train.sync", description="Upload records to Weights & Biases.", allow_abbrev=False
    )
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or of an experiment")
    options.add_argument("--project", metavar="P", help="of W&B (default: WANDB_PROJECT, or amp-zoo)")
    given = options.parse(arguments)
    return command.finish(lambda: upload(given.runs, given.project))


def upload(folders: Iterable[Path], project: str | None) -> int:
    """Upload the record of each folder; returns the exit status.

    Raises `Refused`, before anything is uploaded, for a folder that has no record to upload, and `ConnectionError`
    at the first upload that is not complete.
    """
    if mode() not in ("online", "offline"):
        raise Refused(f"WANDB_MODE is {mode()!r}, so nothing can be uploaded; allowed here: online, offline, or unset")
    require_project(project)
    for record in _records(folders):
        print(f"{record.folder}: {record.contents}", flush=True)
        mirror = record.send(project)
        if where := mirror.location():
            print(where, flush=True)
        if not mirror.complete:
            raise ConnectionError(f"{record.folder} was not uploaded whole; the same command goes on from there")
    return 0


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
    environment, fault = read_environment(folder / "environment.json")
    config = recorded_config(folder)
    if fault:
        raise Damaged(fault)
    if not environment or config is None:
        missing = "config.yaml" if environment else "environment.json"
        raise Refused(f"{folder} is not the folder of a run: it has no {missing}{_runs_in(folder)}")
    file = folder / "environment.json"
    run_id: Any = environment.get("run_id")
    seed: Any = environment.get("seed")
    precision: Any = environment.get("precision", {}).get("requested")
    _demand(bool(run_id), file, "run_id", run_id, "a text")
    _demand(_whole(seed), file, "seed", seed, "a whole number of at least 0")
    _demand(precision in tuple(PRECISIONS), file, "precision.requested", precision, f"one of {', '.join(PRECISIONS)}")
    commands = [attempt.get("command", "") for attempt in environment.get("attempts", [])]
    for number, given in enumerate(commands):
        _demand(isinstance(given, str), file, f"attempts[{number}].command", given, "a text")
    summary = _summary(folder / "summary.json")
    if summary.get("smoke", any("--smoke" in given.split() for given in commands)):
        raise Refused(f"{folder} is a smoke run: its figures say only that the code runs")
    rows, torn = read_lines(folder / "metrics.jsonl")
    if not rows:
        raise Refused(f"{folder} has no metrics: metrics.jsonl is missing or has no whole line")
    lock = lock_folder(folder)
    return RunRecord(folder, run_id, config, precision, seed, rows, torn, summary, lock)


def _summary(file: Path) -> dict[str, Any]:
    """The object in summary.json, or that of a killed run where there is no such file."""
    if not file.exists():
        return {"status": "failed", "reason": "no summary.json: the run was killed"}
    summary = read_json(file)
    if summary is None:
        raise Damaged(f"{file} is not readable as a JSON object")
    _demand(summary.get("status") in ENDS, file, "status", summary.get("status"), f"one of {', '.join(ENDS)}")
    smoke = summary.get("smoke", False)
    _demand(isinstance(smoke, bool), file, "smoke", smoke, "true or false")
    return summary


def _demand(right: bool, file: Path, key: str, value: Any, allowed: str) -> None:
    """Raise `Damaged` unless the value of `key` in `file` is `right`."""
    if not right:
        raise Damaged(f"{file}: {key} is {json.dumps(plain(value))[:60]}, not {allowed}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _records(folders: Iterable[Path]) -> list[RunRecord | ComparisonRecord]:
    """The records of all folders, each once."""
    found: dict[Path, RunRecord | ComparisonRecord] = {}
    for folder in folders:
        if not folder.is_dir():
            raise _no_folder(folder)
        records = _experiment(folder, found) if (folder / "comparison.json").exists() else _run(folder, found)
        found |= {record.folder.resolve(): record for record in records}
    places: dict[str, Path] = {}
    for record in found.values():
        if (
            isinstance(record, RunRecord)
            and (other := places.setdefault(record.run_id, record.folder)) != record.folder
        ):
            raise Refused(f"{other} and {record.folder} are one run, {record.run_id}; give one of them")
    return list(found.values())


def _run(folder: Path, known: Iterable[Path]) -> list[RunRecord]:
    return [] if folder.resolve() in known else [read_run(folder)]


def _experiment(folder: Path, known: Iterable[Path]) -> list[RunRecord | ComparisonRecord]:
    """The comparison in `folder` and the runs in it; a run that left no record is named and left out."""
    comparison = _comparison(folder / "comparison.json")
    if comparison.get("smoke"):
        raise Refused(f"{folder} is a smoke comparison: its figures say only that the code runs")
    if not (folder / "report.html").exists():
        raise Refused(f"{folder / 'report.html'} is missing; the same comparison, given again, writes it")
    runs: list[RunRecord] = []
    for run in comparison["runs"]:
        try:
            runs += _run(folder / run["run"], known)
        except Damaged:
            raise
        except Refused as error:
            print(f"left out: {error}", flush=True)
    configs = [config for run in comparison["runs"] if (config := recorded_config(folder / run["run"]))]
    if not configs:
        raise Refused(f"{folder} has no run with a config.yaml, so its experiment is not known")
    return [*runs, ComparisonRecord(folder, configs[0], comparison)]


def _comparison(file: Path) -> dict[str, Any]:
    """The object in comparison.json, whose parts that are uploaded are of the right kind."""
    comparison = read_json(file)
    if comparison is None:
        raise Damaged(f"{file} is not readable as a JSON object")
    kinds = {str: "texts", int: "whole numbers", dict: "objects"}
    for key, kind in {"precisions": str, "seeds": int, "rows": dict, "runs": dict}.items():
        value = comparison.get(key)
        right = isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)
        _demand(right, file, key, value, f"a list of {kinds[kind]}, at least one")
    metric = comparison.get("metric")
    _demand(metric is None or isinstance(metric, str), file, "metric", metric, "a text or null")
    for number, run in enumerate(comparison["runs"]):
        _demand(isinstance(run.get("run"), str), file, f"runs[{number}].run", run.get("run"), "a text")
    for number, row in enumerate(comparison["rows"]):
        _check_row(row, file, f"rows[{number}]")
    return comparison


def _check_row(row: dict[str, Any], file: Path, where: str) -> None:
    """Raise `Damaged` for a row that the table cannot be made of."""
    _demand(isinstance(row.get("precision"), str), file, f"{where}.precision", row.get("precision"), "a text")
    try:
        table.cells(row)
    except KeyError as error:
        raise Damaged(f"{file}: {where}.{error.args[0]} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{file}: {where} has a value of the wrong kind: {error}") from None


def _no_folder(path: Path) -> Refused:
    if path.exists():
        return Refused(f"{path} is a file; a run is a folder, such as {path.parent}")
    marks = ("environment.json", "comparison.json")
    others = {str(found.parent) for mark in marks for found in path.parent.glob(f"*/{mark}")}
    return unknown("folder", path, others) if others else Refused(f"{path}: no such folder")


def _runs_in(folder: Path) -> str:
    runs = sorted(str(found.parent) for found in folder.glob("*/environment.json"))
    return f"; runs in it: {', '.join(runs)}" if runs else ""


if __name__ == "__main__":
    sys.exit(main())

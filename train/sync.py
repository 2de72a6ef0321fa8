"""Upload records to Weights & Biases, whatever became of the live mirror: python -m train.sync RUN... [--project P]

RUN is the folder of a finished, failed or killed run, or that of an experiment with comparison.json: then its
comparison and the runs that it compares. W&B gets the rows of metrics.jsonl that it does not have yet, and the
summary of summary.json, so the command may be given again at any time. Without a key the files are written offline.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from train.cli import options as command
from train.engine.errors import Refused, unknown
from train.experiment.folder import recorded_config
from train.tracking.upload import ComparisonRecord, Damaged, RunRecord, read_comparison, read_run
from train.tracking.wandb_run import mode, require_project


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
    comparison = read_comparison(folder / "comparison.json")
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


def _no_folder(path: Path) -> Refused:
    if path.exists():
        return Refused(f"{path} is a file; a run is a folder, such as {path.parent}")
    marks = ("environment.json", "comparison.json")
    others = {str(found.parent) for mark in marks for found in path.parent.glob(f"*/{mark}")}
    return unknown("folder", path, others) if others else Refused(f"{path}: no such folder")


if __name__ == "__main__":
    sys.exit(main())

"""Upload records to Weights & Biases, however much of them is there: python -m train.sync RUN... [--project P]

RUN is the folder of a finished, failed or killed run, or that of an experiment with comparison.json: then its
comparison and the runs that it compares. W&B gets the rows of metrics.jsonl that it does not have yet, and the
summary of summary.json, so the command may be given again at any time. Without a key the files are written offline.
"""

import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from reports.records.comparison import Comparison
from reports.records.files import read_record
from reports.records.layout import COMPARISON
from train.cli import options as command
from train.comparison_view import comparison_view
from train.engine.errors import Refused
from train.experiment.folder import lock_folder
from train.tracking.runs import RunRecord, replay, track_comparison, track_run
from train.tracking.wandb_run import WandbRun, chosen_mode, require_project


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
    """Upload the record of each folder, once; returns the exit status. No run can start in them meanwhile.

    Raises `Refused`, before anything is uploaded, for a folder that has no record to upload, and `ConnectionError`
    at the first upload that is not complete.
    """
    if (mode := chosen_mode()) not in ("online", "offline"):
        raise Refused(f"WANDB_MODE is {mode!r}, so nothing can be uploaded; allowed here: online, offline, or unset")
    require_project(project)
    with contextlib.ExitStack() as locks:
        try:
            runs, comparisons = _read(folders, locks)
        except ValueError as error:
            raise Refused(str(error)) from None
        for folder, run in runs.items():
            damaged = f"; damaged lines left out of metrics.jsonl: {run.damaged_lines}" if run.damaged_lines else ""
            print(f"{folder}: {len(run.rows)} rows, {run.summary.status}{damaged}", flush=True)
            metric = next(iter(run.summary.declared_metrics), None)
            tracker = track_run(folder, run.config, run.environment, metric, project=project, live=False)
            tracker.open(run.rows)
            tracker.close(run.summary, command.STATUS.get(run.summary.status, command.STATUS["failed"]))
            _require_complete(tracker)
        for folder, comparison in comparisons.items():
            print(f"{folder}: comparison of {', '.join(comparison.precisions)}", flush=True)
            config = next(run.config for path, run in runs.items() if path.parent == folder)
            view = comparison_view(folder, comparison)
            _require_complete(track_comparison(folder, config, comparison, view, project=project, live=False))
    return 0


def _read(folders: Iterable[Path], locks: contextlib.ExitStack) -> tuple[dict[Path, RunRecord], dict[Path, Comparison]]:
    """The runs and the comparisons by their folders, each once; a comparison's runs without a record are named."""
    runs: dict[Path, RunRecord] = {}
    comparisons: dict[Path, Comparison] = {}
    for folder in map(Path.resolve, folders):
        paths = [folder]
        if (folder / COMPARISON).exists():
            comparison = comparisons[folder] = read_record(Comparison, folder / COMPARISON)
            if comparison.smoke:
                raise Refused(f"{folder} is a smoke comparison: its figures say only that the code runs")
            paths = [folder / run.name for run in comparison.runs]
        for path in (path for path in paths if path not in runs):
            try:
                record = replay(path)
                locks.enter_context(lock_folder(path))
                runs[path] = record
            except Refused as error:
                if path == folder:
                    raise
                print(f"left out: {error}", flush=True)
        if runs.keys().isdisjoint(paths):
            raise Refused(f"{folder} has no record of a run, so its experiment is not known")
    return runs, comparisons


def _require_complete(tracker: WandbRun) -> None:
    if where := tracker.location():
        print(where, flush=True)
    if not tracker.complete:
        raise ConnectionError(f"{tracker.folder} was not uploaded whole; the same command resumes from there")


if __name__ == "__main__":
    sys.exit(main())

"""Which W&B run a run or a comparison is, and what W&B gets of it: the same live and when it is uploaded later."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.records import layout, metrics
from reports.records.comparison import Comparison
from reports.records.config import Experiment, read_config
from reports.records.environment import Environment
from reports.records.files import read_record
from reports.records.summary import FAILED, Summary
from train.engine.errors import Refused
from train.tracking.wandb_run import WandbRun


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder holds; `damaged_lines` of metrics.jsonl are not in `rows`."""

    run_id: str
    config: Experiment
    precision: str
    seed: int
    rows: list[dict[str, metrics.Figure]]
    damaged_lines: int
    summary: Summary


@dataclass(frozen=True)
class ComparisonView:
    """What a comparison shows at W&B: a table, and HTML pages by name."""

    columns: list[str]
    rows: list[list[float | int | str | None]]
    pages: dict[str, str]


def track_run(
    folder: Path,
    run_id: str,
    config: Experiment,
    precision: str,
    seed: int,
    *,
    project: str | None = None,
    live: bool = True,
) -> WandbRun:
    """The W&B run of one run, to be opened."""
    name = layout.run_name(precision, seed)
    arguments = _arguments(config, precision, name, [precision], precision=precision, seed=seed)
    return WandbRun(folder, run_id, arguments, project, live)


def track_comparison(
    folder: Path,
    config: Experiment,
    comparison: Comparison,
    view: ComparisonView,
    *,
    project: str | None = None,
    live: bool = True,
) -> WandbRun:
    """Send a comparison as one more W&B run, and return it, closed.

    Its history has the `view`, once for each change of it; its summary has the comparison's rows by precision.
    """
    run_id = f"{config.digest()[:8]}-{'-'.join(comparison.precisions)}-{len(comparison.seeds)}"
    tracker = WandbRun(folder, run_id, _arguments(config, "comparison", "comparison", []), project, live)
    digest = hashlib.sha256(repr(view).encode()).hexdigest()
    tracker.open()
    tracker.call("report", lambda run: run.summary.get("view_sha256") == digest or run.log(_media(view)))
    rows = {row.precision: row.model_dump(exclude_none=True) for row in comparison.rows}
    tracker.end({**rows, "view_sha256": digest}, ["comparison", *view.pages], 0 if comparison.succeeded else 1)
    return tracker


def replay(folder: Path) -> RunRecord:
    """The record in a run's folder.

    Raises `Refused` where there is none, for a smoke run and for one that logged nothing, and ValueError naming a file
    that is damaged.
    """
    for name in (layout.ENVIRONMENT, layout.CONFIG):
        if not (folder / name).exists():
            runs = sorted(str(file.parent) for place in (folder, folder.parent) for file in place.glob(f"*/{name}"))
            near = f"; runs near it: {', '.join(runs)}" if runs else ""
            raise Refused(f"{folder} is not the folder of a run: it has no {name}{near}")
    file, config = folder / layout.ENVIRONMENT, read_config(folder / layout.CONFIG)
    environment = read_record(Environment, file)
    run_id, seed, precision = environment.run_id, environment.seed, environment.precision.requested
    if run_id is None or seed is None or precision is None:
        raise ValueError(f"{file}: run_id, seed or precision.requested is missing")
    summary = Summary(status=FAILED, reason="no summary.json: the run was killed")
    if (folder / layout.SUMMARY).exists():
        summary = read_record(Summary, folder / layout.SUMMARY)
    # A killed run has no summary that says so.
    if summary.smoke or any("--smoke" in (attempt.command or "").split() for attempt in environment.attempts):
        raise Refused(f"{folder} is a smoke run: its figures say only that the code runs")
    rows, damaged_lines = metrics.read_lines(folder / layout.METRICS)
    if not rows:
        raise Refused(f"{folder} has no metrics: {layout.METRICS} is missing or has no whole line")
    return RunRecord(run_id, config, precision, seed, rows, damaged_lines, summary)


def _arguments(config: Experiment, job_type: str, name: str, tags: list[str], **own: str | int) -> dict[str, Any]:
    """What `wandb.init` is given; `tags` and `own` settings come beside those of the experiment."""
    names = {"group": config.group, "job_type": job_type, "name": f"{config.name}-{name}"}
    tags = [config.model, config.arch, config.data.name, *tags]
    return {**names, "tags": tags, "config": {**config.model_dump(), **own}}


def _media(view: ComparisonView) -> dict[str, object]:
    import wandb

    pages = {name: wandb.Html(page, inject=False) for name, page in view.pages.items()}
    return {"comparison": wandb.Table(columns=[*view.columns], data=view.rows), **pages}

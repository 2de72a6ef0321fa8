"""Which W&B run a run or a comparison is, and what W&B gets of it: the same live and when it is uploaded later."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.records import layout, metrics
from reports.records.comparison import Comparison
from reports.records.config import Experiment, read_config
from reports.records.environment import Environment
from reports.records.files import read_record
from reports.records.metric import Metric
from reports.records.summary import FAILED, Summary
from train.engine.errors import Refused
from train.tracking.wandb_run import WandbRun, chosen_mode

if TYPE_CHECKING:
    import wandb


@dataclass(frozen=True)
class RunRecord:
    """What a run's folder holds; `damaged_lines` of metrics.jsonl are not in `rows`."""

    config: Experiment
    environment: Environment
    rows: list[dict[str, metrics.Figure]]
    damaged_lines: int
    summary: Summary


@dataclass(frozen=True)
class ComparisonView:
    """What a comparison shows at W&B: its conclusion, a table, HTML pages by name, and the files of its record."""

    conclusion: str
    columns: list[str]
    rows: list[list[float | int | str | None]]
    pages: dict[str, str]
    files: list[Path] = field(repr=False)

    def digest(self) -> str:
        """SHA-256 of all of it, wherever the files lie."""
        return hashlib.sha256(repr((self, [path.read_bytes() for path in self.files])).encode()).hexdigest()


def track_run(
    folder: Path,
    config: Experiment,
    environment: Environment,
    metric: Metric | None,
    smoke: bool = False,
    *,
    project: str | None = None,
    live: bool = True,
) -> WandbRun:
    """The W&B run of one run, to be opened; `metric` decides, and `environment` is that of a run."""
    run_id, precision, seed = environment.run_id, environment.precision.requested, environment.seed
    assert run_id is not None
    assert precision is not None
    assert seed is not None
    arguments = _arguments(config, environment, precision, layout.run_name(precision, seed))
    arguments["tags"].append(precision)
    arguments["config"] |= {"precision": precision, "seed": seed}
    return WandbRun(folder, run_id, arguments, project, live, metric, "disabled" if smoke else chosen_mode())


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

    Its history has the `view`, once for each change of it; its summary has the comparison's rows by precision. Equal
    experiments in other folders are other W&B runs.
    """
    environment, digest = comparison.environment or Environment(), view.digest()
    run_id = f"{config.digest()[:8]}-{'-'.join(comparison.precisions)}-{len(comparison.seeds)}"
    run_id += f"-{environment.run_id}" if environment.run_id else ""
    arguments = _arguments(config, environment, "comparison", "comparison") | {"notes": view.conclusion}
    mode = "disabled" if comparison.smoke else chosen_mode()
    tracker = WandbRun(folder, run_id, arguments, project, live, mode=mode)

    def show(run: "wandb.Run") -> None:
        if run.summary.get("view_sha256") != digest:
            _log_view(run, config, view)

    tracker.open()
    sent = tracker.call("report", show)
    rows = {row.precision: row.model_dump(exclude_none=True) for row in comparison.rows}
    values = {**rows, "view_sha256": digest} if sent else rows
    tracker.end(values, ["comparison", *view.pages], 0 if comparison.succeeded else 1)
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
    if None in (environment.run_id, environment.seed, environment.precision.requested):
        raise ValueError(f"{file}: run_id, seed or precision.requested is missing")
    killed = Summary(status=FAILED, reason="no summary.json: the run was killed")
    summary = read_record(Summary, folder / layout.SUMMARY) if (folder / layout.SUMMARY).exists() else killed
    # A killed run has no summary that says so.
    if summary.smoke or any("--smoke" in (attempt.command or "").split() for attempt in environment.attempts):
        raise Refused(f"{folder} is a smoke run: its figures say only that the code runs")
    rows, damaged_lines = metrics.read_lines(folder / layout.METRICS)
    if not rows:
        raise Refused(f"{folder} has no metrics: {layout.METRICS} is missing or has no whole line")
    if summary is killed:
        killed.final |= metrics.newest(rows)
    return RunRecord(config, environment, rows, damaged_lines, summary)


def _arguments(config: Experiment, environment: Environment, job_type: str, name: str) -> dict[str, Any]:
    """What `wandb.init` is given: the names, and as config the experiment and what it ran on."""
    device, source = environment.device, environment.git
    hardware = {"device": {"type": device.type, "name": device.name}, "threads": environment.cpu.threads}
    software = {"versions": environment.versions, "commit": source.commit, "dirty": source.dirty}
    names = {"group": config.group, "job_type": job_type, "name": f"{config.name}-{name}"}
    tags = [config.model, config.arch, config.data.name]
    values = {**config.model_dump(), "config_sha256": config.digest(), **hardware, **software}
    return {**names, "tags": tags, "config": values}


def _log_view(run: "wandb.Run", config: Experiment, view: ComparisonView) -> None:
    import wandb

    artifact = wandb.Artifact(config.group, type="results")
    for path in view.files:
        artifact.add_file(str(path), skip_cache=True, policy="immutable")  # no copy in the home folder
    run.log_artifact(artifact)
    pages = {name: wandb.Html(page, inject=False) for name, page in view.pages.items()}
    run.log({"comparison": wandb.Table(columns=[*view.columns], data=view.rows), **pages})

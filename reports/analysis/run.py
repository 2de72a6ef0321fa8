"""One run folder as evidence: its figures, or the reason why none of them counts."""

import math
from itertools import pairwise
from pathlib import Path

from reports.records import layout
from reports.records.comparison import RunResult
from reports.records.config import LENGTH, NOT_COMPUTED, read_config
from reports.records.environment import UNCOMMITTED, Environment
from reports.records.files import read_record
from reports.records.metric import LOSS
from reports.records.metrics import STEP, read_history
from reports.records.summary import FAILED, Summary, read_summary


def read_run(folder: Path, precision: str, seed: int, publish: bool = False) -> RunResult:
    """The run of `precision` and `seed` in the experiment's `folder`; its figures count where it is finished.

    To `publish` them, its source must be a commit and it must not be a smoke run.
    """
    path = folder / layout.run_name(precision, seed)
    summary = read_summary(path / layout.SUMMARY)
    run = RunResult(precision=precision, seed=seed, status=summary.status, reason=summary.reason, summary=summary)
    run.value = summary.figure(run.metric.key) if run.metric else None
    try:
        run.config = read_config(path / layout.CONFIG)
        run.environment = read_record(Environment, path / layout.ENVIRONMENT)
        if run.finished:
            _check_identity(run, run.environment, publish)
            _check_figures(summary)
            _check_history(path / layout.METRICS, summary)
    except ValueError as error:
        if run.finished:
            run.status, run.reason = FAILED, str(error)
    if not run.finished:  # with no path of this machine: reasons are published
        run.reason = (run.reason or f"its status is {run.status}").replace(f"{folder}/", "")
    return run


def _check_identity(run: RunResult, environment: Environment, publish: bool) -> None:
    precision, seed = run.summary.precision, run.summary.seed
    if (precision.requested, precision.effective.name, seed) != (run.precision, run.precision, run.seed):
        effective = precision.effective.name
        raise ValueError(f"its record is of precision {precision.requested} (effective {effective}) and seed {seed}")
    changed = {key for attempt in environment.attempts for key in attempt.changed} - NOT_COMPUTED
    if changed & LENGTH:
        raise ValueError("trained in parts of different length; retrain it with --resume never")
    if changed:
        keys = ", ".join(sorted(changed))
        raise ValueError(f"trained in parts on different machines ({keys}); retrain it with --resume never")
    if publish and run.summary.smoke:
        raise ValueError("a smoke run")
    if publish and not all(source.committed for source in environment.sources):
        raise ValueError(f"its source {UNCOMMITTED}")


def _check_figures(summary: Summary) -> None:
    metrics = summary.declared_metrics
    if not metrics:
        raise ValueError("no metric in its record")
    if summary.steps.planned not in (None, summary.steps.attempted):
        raise ValueError(f"it finished after {summary.steps.attempted} of {summary.steps.planned} steps")
    # Another metric that is no number is left out by itself; a loss that is none says that the logits are none.
    for metric in (metric for metric in metrics if metric.name in (metrics[0].name, LOSS.name)):
        for key in (metric.key, metric.fp32_key, metric.held_out_key):
            value = summary.final.get(key)
            if value is None and key != metrics[0].key:
                continue
            if not isinstance(value, int | float) or not math.isfinite(value) or metric.impossible(value):
                raise ValueError(f"its {key} is {value}")


def _check_history(path: Path, summary: Summary) -> None:
    history = read_history(path)
    if history.damaged or not history.rows:
        raise ValueError(f"its {path.name} is missing or damaged")
    steps = [row.get(STEP, math.nan) for row in history.rows]
    if any(not earlier <= later for earlier, later in pairwise(steps)) or steps[-1] != summary.steps.attempted:
        raise ValueError(f"its {path.name} does not follow the steps up to {summary.steps.attempted}")

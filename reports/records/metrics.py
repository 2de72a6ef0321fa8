"""What a run logged while it trained, metrics.jsonl: whether it is the history that ends in the summary."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from reports.records.files import is_number, read_lines
from reports.records.summary import Summary, impossible, is_evaluation


def torn(path: Path, summary: Summary, log_every: int | None) -> str | None:
    """How metrics.jsonl is not the whole history of the run of `summary`; None where it is.

    Curves are drawn of it and published figures chosen from it, so that every line counts. `log_every` is how many
    steps lie between two lines of the training, None where that is not known.
    """
    rows, unread = read_lines(path)
    if unread:
        return f"its metrics.jsonl has torn lines: {unread}"
    if not rows:
        return "its metrics.jsonl is missing or empty"
    for number, row in enumerate(rows, 1):
        if wrong := [key for key, value in row.items() if not is_number(value) and not key.endswith("/reason")]:
            return f"line {number} of its metrics.jsonl has no figure in {wrong[0]}"
        if "train/step" not in row:
            return f"line {number} of its metrics.jsonl has no train/step"
        for key in filter(is_evaluation, row):
            if fault := impossible(key, row[key]):
                return f"{key} in line {number} of its metrics.jsonl is {row[key]}, {fault}"
    return _disordered(rows, summary, log_every) or _other(rows, summary)


def _disordered(rows: Sequence[Mapping[str, Any]], summary: Summary, log_every: int | None) -> str | None:
    """Where the steps do not follow each other to the last one."""
    steps = _steps(rows, "train/step")
    if any(later < earlier for earlier, later in pairwise(steps)):
        return "its metrics.jsonl goes back to an earlier step"
    if steps[-1] != summary.steps.attempted:
        return f"its metrics.jsonl ends at step {steps[-1]} of {summary.steps.attempted}"
    logged, evaluated = _steps(rows, "train/loss"), _steps(rows, summary.metric or "")
    # Evaluations come at equal distances, but for the last one, at the end.
    distances = [later - earlier for earlier, later in pairwise([0, *evaluated])]
    regular = min(distances[:-1] or distances, default=0)
    for key, found, most in (("train/loss", logged, log_every), (summary.metric, evaluated, regular)):
        if found[-1:] != steps[-1:]:
            return f"its metrics.jsonl has no {key} of step {steps[-1]}"
        for earlier, later in pairwise([0, *found]):
            if later == earlier:
                return f"its metrics.jsonl has {key} of step {later} twice"
            if most and later - earlier > most:
                return f"its metrics.jsonl has no {key} between the steps {earlier} and {later}"
    return None


def _other(rows: Sequence[Mapping[str, Any]], summary: Summary) -> str | None:
    """Which figure of the summary is not that of the history."""
    metric, last = summary.metric or "", dict[str, Any]()
    for row in rows:
        last.update(row)
    for name, value in {**summary.final, "amp/skipped_steps": summary.skipped_steps}.items():
        if last.get(name) != value and (name in last or is_evaluation(name)):
            return f"its last {name} is {value} in summary.json and {last.get(name)} in metrics.jsonl"
    values = [row[metric] for row in rows if metric in row]
    best = (max if summary.higher_is_better else min)(filter(math.isfinite, values))
    if summary.best.get(metric) != best:
        return f"its best {metric} is {summary.best.get(metric)} in summary.json and {best} in metrics.jsonl"
    return None


def _steps(rows: Iterable[Mapping[str, Any]], key: str) -> list[int | float]:
    """The steps of the lines that have `key`."""
    return [row["train/step"] for row in rows if key in row]

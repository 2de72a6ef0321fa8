"""One run's figure for a published row, chosen among the run's evaluations as the source chooses its own."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.analysis.published import Measure
from reports.records import layout
from reports.records.comparison import RunResult
from reports.records.metric import LOSS, Metric
from reports.records.metrics import History, read_history

PATIENCE = 3
CHOSEN = {"best": "its best evaluation", "early stopping": f"its lowest loss before {PATIENCE} without a lower one"}


@dataclass(frozen=True)
class Selected:
    """The figures of several runs by name; in words, runs `without` one, and `how` they were chosen."""

    values: Mapping[str, float]
    without: tuple[str, ...]
    how: tuple[str, ...]


def select(runs: Sequence[RunResult], folder: Path, selection: str, measure: Measure, held_out: bool) -> Selected:
    """The `figure` of each of the finished `runs` in `folder`."""
    histories = {run.name: read_history(folder / run.name / layout.METRICS) for run in runs}
    every = {name: figure(history, selection, measure, held_out) for name, history in histories.items()}
    values = {name: value for name, value in every.items() if value is not None}
    ended = [name for name in values if ended_early(histories[name], selection, held_out)]
    cut_off = _names("the source would have trained on where these ended", ended)
    without = _names("no finite evaluation to take", [name for name in every if name not in values])
    return Selected(values, without, (*cut_off, describe(selection, held_out)))


def _names(what: str, runs: Sequence[str]) -> tuple[str, ...]:
    return (f"{what}: {', '.join(runs)}",) if runs else ()


def describe(selection: str, held_out: bool = False) -> str:
    """How the source selects its figure, and what is taken from each run of ours, in words."""
    taken = "its last evaluation"
    if selection in CHOSEN:
        taken = f"{CHOSEN[selection]} on the {'held-out part' if held_out else 'evaluation samples'}"
    return f"selection of the source: {selection}; of each run of ours: {taken}"


def ended_early(history: History, selection: str, held_out: bool = False) -> bool:
    """Whether the source, which stops early, would have trained on where the run ended."""
    return selection == "early stopping" and not _stopped_early(history, held_out)[1]


def figure(history: History, selection: str, measure: Measure, held_out: bool = False) -> float | None:
    """One run's figure in the unit of the published row.

    `held_out`: it is chosen by the part of the training data that was held out, not by the evaluation samples.
    None where the evaluation to take is missing or not finite: that is no measurement.
    """
    metric = measure.metric
    evaluations, key = history.rows_with(metric.key), _chosen_by(metric, held_out)
    line = evaluations[-1] if evaluations else {}
    if selection == "early stopping":
        line, _ = _stopped_early(history, held_out)
    elif selection == "best":
        finite = [line for line in evaluations if math.isfinite(line.get(key, math.nan) + line[metric.key])]
        line = (max if metric.higher_is_better else min)(finite, key=lambda line: line[key], default={})
    value = line.get(metric.key, math.nan)
    return measure.read(value) if math.isfinite(value) else None


def _stopped_early(history: History, held_out: bool) -> tuple[dict[str, float], bool]:
    """The line with the lowest loss before `PATIENCE` evaluations without a lower one, and whether there were as many.

    One that is not finite is not lower.
    """
    key, waited = _chosen_by(LOSS, held_out), 0
    best: dict[str, float] = {}
    for line in history.rows_with(LOSS.key):
        loss = line.get(key, math.nan)
        if math.isfinite(loss) and loss < best.get(key, math.inf):
            best, waited = line, 0
        elif best:
            waited += 1
        if waited >= PATIENCE:
            return best, True
    return best, False


def _chosen_by(metric: Metric, held_out: bool) -> str:
    return metric.held_out_key if held_out else metric.key

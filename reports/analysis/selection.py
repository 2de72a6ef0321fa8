"""One run's figure for a published row, chosen among the run's evaluations as the source chooses its own."""

import math
import re

from reports.analysis.published import Measure
from reports.records.metric import UNDECLARED, Metric
from reports.records.metrics import History

PATIENCE = 3
LOSS = UNDECLARED["eval/loss"]  # early stopping goes by it
SELECTIONS = {
    "not stated": "the source does not state how its figure was selected, and of each run of ours the last evaluation "
    "is taken",
    "last": "the source's figure is the last evaluation's, as is that of each run of ours",
    "best": "the source's figure is that of the best epoch, as is that of each run of ours",
    "early stopping": "the source's figure was selected by early stopping, as is that of each run of ours",
}


def describe(selection: str, held_out: bool = False) -> str:
    """What the source says of its selection, and what is taken from each run of ours, in words."""
    chosen = selection in ("early stopping", "best")
    by = f", chosen {'on the held-out part' if held_out else 'on the evaluation samples'}" if chosen else ""
    if selection in SELECTIONS:
        return SELECTIONS[selection] + by
    return f"the source's figure is the {selection}, each judged by its last evaluation, as is each run of ours"


def runs_chosen_from(selection: str) -> int | None:
    """Of how many runs the source's figure is the best, None where it is of one run: "best of 30 runs"."""
    match = re.fullmatch(r"best of (\d+) runs", selection)
    return int(match[1]) if match else None


def ended_early(history: History, selection: str, held_out: bool = False) -> bool:
    """Whether the source, which stops early, would have trained on where the run ended."""
    return selection == "early stopping" and not _stopped_early(history, held_out)[1]


def figure(history: History, selection: str, measure: Measure, held_out: bool = False) -> float | None:
    """One run's figure in the unit of the published row.

    `held_out`: the figure is chosen by the part of the training data that was held out, not by the evaluation samples.
    None where the evaluation to take is missing or not finite: that is no measurement.
    """
    line = _selected(history, selection, measure.metric, held_out)
    value = line.get(measure.metric.key, math.nan)
    return measure.read(value) if math.isfinite(value) else None


def _selected(history: History, selection: str, metric: Metric, held_out: bool) -> dict[str, float]:
    """The last evaluation, unless the source chose another; empty where there is none.

    It is chosen by the part that was held out, where there is one.
    """
    if selection == "early stopping":
        return _stopped_early(history, held_out)[0]
    evaluations, key = history.rows_with(metric.key), _chosen_by(metric, held_out)
    if selection == "best":
        finite = [line for line in evaluations if math.isfinite(line.get(key, math.nan) + line[metric.key])]
        return (max if metric.higher_is_better else min)(finite, key=lambda line: line[key], default={})
    return evaluations[-1] if evaluations else {}


def _stopped_early(history: History, held_out: bool) -> tuple[dict[str, float], bool]:
    """The lowest loss before `PATIENCE` evaluations without a lower one, and whether there were as many.

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

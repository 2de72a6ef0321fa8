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
    value = _finite(line, measure.metric.key) if line else None
    return None if value is None else measure.read(value)


def _selected(history: History, selection: str, metric: Metric, held_out: bool) -> dict[str, float] | None:
    """The last evaluation, unless the source chose another: by a part that was held out, where there is one."""
    evaluations = history.rows_with(metric.key)
    if selection == "early stopping":
        return _stopped_early(history, held_out)[0]
    if selection == "best":
        key = _chosen_by(metric, held_out)
        finite = [line for line in evaluations if None not in (_finite(line, key), _finite(line, metric.key))]
        return (max if metric.higher_is_better else min)(finite, key=lambda line: line[key], default=None)
    return evaluations[-1] if evaluations else None


def _stopped_early(history: History, held_out: bool) -> tuple[dict[str, float] | None, bool]:
    """The lowest loss before `PATIENCE` evaluations without a lower one, and whether there were as many.

    One that is not finite is not lower.
    """
    evaluations, key = history.rows_with(LOSS.key), _chosen_by(LOSS, held_out)
    best = None
    for index, line in enumerate(evaluations):
        if _finite(line, key) is not None and (best is None or line[key] < evaluations[best][key]):
            best = index
        elif best is not None and index - best >= PATIENCE:
            return evaluations[best], True
    return None if best is None else evaluations[best], False


def _chosen_by(metric: Metric, held_out: bool) -> str:
    return metric.held_out_key if held_out else metric.key


def _finite(line: dict[str, float], key: str) -> float | None:
    value = line.get(key, math.nan)
    return value if math.isfinite(value) else None

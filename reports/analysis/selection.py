"""One run's figure for a published row, chosen among the run's evaluations as the source chooses its own."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from reports.records.files import is_number

PATIENCE = 3
SAID = {
    "not stated": "the source does not state how its figure was selected, and of each run of ours the last evaluation "
    "is taken",
    "last": "the source's figure is the last evaluation's, as is that of each run of ours",
    "best": "the source's figure is that of the best epoch, as is that of each run of ours",
    "early stopping": "the source's figure was selected by early stopping, as is that of each run of ours",
}


def said(selection: str, held_out: bool = False) -> str:
    """What the source says of its selection, and what is taken from each run of ours, in words."""
    chosen = selection in ("early stopping", "best")
    by = f", chosen {'on the held-out part' if held_out else 'on the evaluation samples'}" if chosen else ""
    if selection in SAID:
        return SAID[selection] + by
    return f"the source's figure is the {selection}, each judged by its last evaluation, as is each run of ours"


def runs_chosen_from(selection: str) -> int | None:
    """Of how many runs the source's figure is the best, None where it is of one run: "best of 30 runs"."""
    found = re.fullmatch(r"best of (\d+) runs", selection)
    return int(found[1]) if found else None


def ran_out(history: Sequence[Mapping[str, Any]], row: Mapping[str, str], held_out: bool = False) -> bool:
    """Whether the source, which stops early, would have gone on where the run ended."""
    losses = [line for line in history if "eval/loss" in line]
    return row["selection"] == "early stopping" and not _stopped_early(losses, f"{_part(held_out)}loss")[1]


def figure(history: Sequence[Mapping[str, Any]], row: Mapping[str, str], held_out: bool = False) -> float | None:
    """One run's figure in the unit of `row`, from the lines of its metrics.jsonl.

    `held_out`: the figure is chosen by the part of the training data that was held out, not by the evaluation samples.
    None where the evaluation to take is missing or not finite: that is no measurement.
    """
    loss = row["unit"].startswith("nats")
    name = "eval/loss" if loss else "eval/accuracy"
    chosen = _selected([line for line in history if "eval/loss" in line], row["selection"], name, held_out)
    if chosen is None or not finite(chosen.get(name)):
        return None
    if loss:
        return float(chosen[name])
    share = 1 - chosen[name] if "error" in row["metric"] else chosen[name]
    return float(share * (100 if row["unit"] == "%" else 1))


def finite(value: object) -> TypeGuard[float]:
    """Whether `value` is a number and finite."""
    return is_number(value) and math.isfinite(value)


def _selected(
    evaluations: Sequence[Mapping[str, Any]], selection: str, figure: str, held_out: bool
) -> Mapping[str, Any] | None:
    """The last evaluation, unless the source chose another: by a part that was held out, where there is one."""
    part = _part(held_out)
    if selection == "early stopping":
        return _stopped_early(evaluations, f"{part}loss")[0]
    if selection == "best":
        accuracy = any("eval/accuracy" in line for line in evaluations)
        name = part + ("accuracy" if accuracy else "loss")
        known = [line for line in evaluations if finite(line.get(name)) and finite(line.get(figure))]
        return (max if accuracy else min)(known, key=lambda line: line[name], default=None)
    return evaluations[-1] if evaluations else None


def _part(held_out: bool) -> str:
    """How the names of the figures begin by which an evaluation is chosen."""
    return "eval/held_out_" if held_out else "eval/"


def _stopped_early(evaluations: Sequence[Mapping[str, Any]], loss: str) -> tuple[Mapping[str, Any] | None, bool]:
    """The lowest `loss` before `PATIENCE` evaluations without a lower one, and whether there were as many.

    One that is not finite is not lower.
    """
    best = None
    for index, line in enumerate(evaluations):
        if finite(line.get(loss)) and (best is None or line[loss] < evaluations[best][loss]):
            best = index
        elif best is not None and index - best >= PATIENCE:
            return evaluations[best], True
    return None if best is None else evaluations[best], False

"""What runs logged, as curves over several seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Histories = Mapping[str, Sequence[Mapping[str, Any]]]
MOST_POINTS = 300


@dataclass(frozen=True)
class Curve:
    """A metric of one precision against step: the mean over runs, and their extremes."""

    seeds: int
    steps: NDArray[Any]
    mean: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]


def series(rows: Sequence[Mapping[str, Any]], key: str) -> dict[int, float]:
    """Step to value, of the lines that have both."""
    return {row["train/step"]: row[key] for row in rows if "train/step" in row and key in row}


def curve(histories: Histories, names: Sequence[str], key: str) -> Curve | None:
    """The curve over the runs `names`, at the steps that all of them logged.

    Where one of them is not finite there is a gap, not the mean of the others. Of very many steps,
    neighbours are drawn as one point: their mean, between their extremes.
    """
    found = [values for name in names if (values := series(histories[name], key))]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    if not steps:
        return None
    table = np.array([[run[step] for step in steps] for run in found], dtype=np.float64)
    table[~np.isfinite(table)] = math.nan
    parts = np.array_split(np.arange(len(steps)), min(len(steps), MOST_POINTS))
    at = np.array([steps[part[-1]] for part in parts])
    mean, low, high = (np.array([of(table[:, part]) for part in parts]) for of in (np.mean, np.min, np.max))
    return Curve(len(found), at, mean, low, high)


def nonfinite_steps(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many steps of a run had a loss that is NaN or infinite."""
    lines = [row for row in rows if "train/loss" in row]
    return sum(row.get("train/nonfinite_loss_steps", int(not math.isfinite(row["train/loss"]))) for row in lines)

"""How often the verdicts are wrong: python -m reports.calibrate

FP32 against FP32 with other seeds differs by chance alone, so WORSE and BETTER are false alarms there; an injected
loss of two margins must be found; and the interval of the speed of FP32 over itself must hold 1. All three are
counted on real runs, recorded in reports/results/calibration.json by `python -m scripts.run_calibration`, and the
first two in simulation, with the pairs' noise set to shares of the margin.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from reports.records import read_json
from reports.statistics import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, judge, speedup
from reports.table import line

RECORD = Path(__file__).resolve().parent / "results" / "calibration.json"
SIMULATIONS = 10_000
SEEDS = 5
NOISE = (0.25, 0.5, 1.0)  # standard deviation of a paired difference, in margins
TOO_MUCH_NOISE = 2.0  # of which `SEEDS` pairs cannot be expected to decide: shown, not promised
INJECTED = 2.0  # margins


def words(differences: Sequence[Sequence[float]], margin: float, resolution: float = 0.0) -> Counter[str]:
    """How often each verdict came out over comparisons, each a list of paired differences of a metric to maximise."""
    found = (judge(pairs, margin, higher_is_better=True, resolution=resolution) for pairs in differences)
    return Counter(verdict.word for verdict in found if verdict is not None)


def simulated(draw: Generator, noise: float, shift: float = 0.0) -> Counter[str]:
    """Verdicts of simulated comparisons of `SEEDS` pairs, noise and shift in margins."""
    return words(draw.normal(shift, noise, (SIMULATIONS, SEEDS)).tolist(), margin=1.0)


def real(record: Mapping[str, Any], shift: float = 0.0) -> Counter[str]:
    """Verdicts of the recorded FP32 runs against others of other seeds, `shift` margins added to the latter."""
    values, pairs, margin = record["accuracies"], record["pairs"], record["margin"]
    comparisons = [values[start : start + 2 * pairs] for start in range(0, len(values) - 2 * pairs + 1, 2 * pairs)]
    differences = [
        [other + shift * margin - first for first, other in zip(runs[:pairs], runs[pairs:], strict=True)]
        for runs in comparisons
    ]
    return words(differences, margin, 1 / record["eval_samples"])


def intervals_holding_one(record: Mapping[str, Any]) -> tuple[int, int]:
    """How many recorded speed intervals of FP32 over itself hold 1, and of how many."""
    intervals = [speedup(blocks["first"], blocks["second"]) for blocks in record["speed"]]
    return sum(interval.low <= 1 <= interval.high for interval in intervals), len(intervals)


def rates(record: Mapping[str, Any] | None) -> tuple[list[list[str]], str]:
    """The rates as rows of texts, titles first, and what was compared; the same every time."""
    rows = [["comparison", "n", "WORSE or BETTER", "EQUIVALENT", "INCONCLUSIVE"], *_simulated_rows()]
    if missing := _why_unfit(record):
        return rows, f"Real runs: {missing}; `python -m scripts.run_calibration` makes a record."
    assert record is not None
    rows.append(_cells("real FP32 runs against others", real(record)))
    rows.append(_cells(f"real FP32 runs, {INJECTED:g} margins taken off one side", real(record, -INJECTED), WORSE))
    held, count = intervals_holding_one(record)
    deviation = float(np.std(record["accuracies"], ddof=1))
    return rows, (
        f"Pairs a comparison: {SEEDS} simulated, {record['pairs']} real. Real runs: "
        f"{' '.join([record['experiment'], *record['overrides']])}; standard deviation over seeds "
        f"{100 * deviation:.2f} points, which makes that of a pair's difference "
        f"{deviation * math.sqrt(2) / record['margin']:.2f} margins of {100 * record['margin']:g} points.\n"
        f"Speed of FP32 over itself: {held} of {count} intervals hold 1."
    )


@cache  # the same every time, and seconds of work
def _simulated_rows() -> list[list[str]]:
    draw = np.random.default_rng(0)
    same, worse = [], []
    for noise in (*NOISE, TOO_MUCH_NOISE):
        title = f"noise {noise:g} margin{'s' if noise > 1 else ''}"
        same.append(_cells(f"simulated, no difference, {title}", simulated(draw, noise)))
        found = simulated(draw, noise, -INJECTED)
        worse.append(_cells(f"simulated, {INJECTED:g} margins worse, {title}", found, WORSE))
    return same + worse


def _why_unfit(record: Mapping[str, Any] | None) -> str | None:
    """Why there is nothing to count in a record, None when there is."""
    if record is None:
        return "no record"
    if record["smoke"]:
        return "left out, a smoke run"
    if record["environment"].get("git", {}).get("dirty") is not False:
        return "left out, their source had changes that are in no commit, or its commit is not known"
    return None


def markdown(rows: Sequence[Sequence[str]], notes: str) -> str:
    """What `rates` gives, as a Markdown table with the notes below."""
    titles, *others = rows
    lines = [titles, [":--", *["--:"] * (len(titles) - 1)], *others]
    return "\n".join([*map(line, lines), "", notes])


def table(record: Mapping[str, Any] | None) -> str:
    """The rates as Markdown."""
    return markdown(*rates(record))


def _cells(name: str, found: Counter[str], only: str | None = None) -> list[str]:
    count = sum(found.values())
    alarms = found[only] if only else found[WORSE] + found[BETTER]
    shares = [alarms / count, found[EQUIVALENT] / count, found[INCONCLUSIVE] / count]
    suffix = f" ({only})" if only else ""
    return [name, str(count), f"{shares[0]:.1%}{suffix}", *(f"{share:.1%}" for share in shares[1:])]


def main() -> int:
    """Print the rates."""
    print(table(read_json(RECORD)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How often the verdicts are wrong: python -m reports.calibrate

FP32 against FP32 with other seeds differs by chance alone, so WORSE and BETTER are false alarms there; an injected
loss of two margins must be found; and the interval of the speed of FP32 over itself must hold 1. All three are
counted on real runs, recorded in reports/results/calibration.json by `python -m scripts.run_calibration`, and the
first two in simulation, with the pairs' noise set to shares of the margin.

The promise, for comparisons of at least 5 pairs whose differences have a standard deviation of up to one margin: at
most 5% false alarms, at least 90% of such losses found, and at least 90% of such intervals hold 1. What 3 pairs, the
default, and noisier ones decide is shown beside it.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.stats import binomtest

from reports.analysis.statistics import (
    BETTER,
    DEFAULT_SEEDS,
    EQUIVALENT,
    INCONCLUSIVE,
    LOOKS,
    MAX_SEEDS,
    WORSE,
    judge,
    seeds_for_next_look,
    seeds_to_decide,
    speedup,
)
from reports.pages.table import line
from reports.records.calibration import why_unfit
from reports.records.files import read_json

RECORD = Path(__file__).resolve().parent / "results" / "calibration.json"
SIMULATIONS = 10_000
GROWING = 1_000  # simulations of --until-decided, each of which asks for several verdicts and their power
SEEDS = 5
NOISE = (0.25, 0.5, 1.0)  # standard deviation of a paired difference, in margins
TOO_MUCH_NOISE = 2.0  # of which `SEEDS` pairs cannot be expected to decide: shown, not promised
INJECTED = 2.0  # margins
MOST_ALARMS, FEWEST_FOUND, FEWEST_HOLDING = 0.05, 0.9, 0.9
PROMISE = (
    f"Promised, for comparisons of at least {SEEDS} pairs whose differences have a standard deviation of up to one "
    f"margin: WORSE or BETTER in at most {MOST_ALARMS:.0%} of those without a difference; a loss of {INJECTED:g} "
    f"margins found, as WORSE, in at least {FEWEST_FOUND:.0%}; and at least {FEWEST_HOLDING:.0%} of the intervals of "
    f"the speed of FP32 over itself hold 1. What {DEFAULT_SEEDS} pairs, the default, and noise above one margin leave "
    f"INCONCLUSIVE is shown beside it; nothing is promised of them. `--until-decided` goes from "
    f"{DEFAULT_SEEDS} to {MAX_SEEDS} pairs, in at most {LOOKS} looks."
)


def words(differences: Sequence[Sequence[float]], margin: float, resolution: float = 0.0) -> Counter[str]:
    """How often each verdict came out over comparisons, each a list of paired differences of a metric to maximise."""
    found = (judge(pairs, margin, higher_is_better=True, resolution=resolution) for pairs in differences)
    return Counter(verdict.word for verdict in found if verdict is not None)


def simulated(draw: Generator, noise: float, shift: float = 0.0, pairs: int = SEEDS) -> Counter[str]:
    """Verdicts of simulated comparisons, noise and shift in margins."""
    return words(draw.normal(shift, noise, (SIMULATIONS, pairs)).tolist(), margin=1.0)


def until_decided(draw: Generator, noise: float, shift: float = 0.0) -> Counter[str]:
    """Verdicts of simulated comparisons that add seeds as `--until-decided` does, noise and shift in margins."""
    return Counter(_added_to(pairs) for pairs in draw.normal(shift, noise, (GROWING, MAX_SEEDS)).tolist())


def _added_to(pairs: Sequence[float]) -> str:
    """The last verdict, with a margin of 1, on as many of these pairs as were asked for."""
    count = DEFAULT_SEEDS
    for look in range(1, LOOKS + 1):
        verdict = judge(pairs[:count], 1.0, higher_is_better=True, looks=LOOKS)
        assert verdict is not None  # there are at least two pairs
        if verdict.word != INCONCLUSIVE:
            return verdict.word
        needed = seeds_to_decide(verdict.difference.value, verdict.deviation, 1.0, LOOKS, MAX_SEEDS)
        count = seeds_for_next_look(count, [needed], MAX_SEEDS, last=look + 1 >= LOOKS)
    return INCONCLUSIVE


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
    if missing := why_unfit(record):
        return (
            rows,
            f"{PROMISE}\nReal runs: {missing}; `python -m scripts.run_calibration` makes or completes a record.",
        )
    assert record is not None
    same, worse = real(record), real(record, -INJECTED)
    rows.append(_cells(f"real FP32 runs against others, {record['pairs']} pairs", same))
    rows.append(
        _cells(f"real FP32 runs, {INJECTED:g} margins taken off one side, {record['pairs']} pairs", worse, WORSE)
    )
    kept = _kept(same, worse, *intervals_holding_one(record))
    return rows, "\n".join([PROMISE, _described(record), *kept])


def _described(record: Mapping[str, Any]) -> str:
    """What the real runs were, and whether the promise is for such."""
    overrides = record.get("overrides")
    how = " ".join([record["experiment"], *(overrides or [])])
    unknown = " (overrides not recorded)" if overrides is None else ""
    deviation = float(np.std(record["accuracies"], ddof=1))
    margins = deviation * math.sqrt(2) / record["margin"]
    outside = [f"fewer than {SEEDS} pairs"] if record["pairs"] < SEEDS else []
    outside += ["noise above one margin"] if margins > 1 else []
    return (
        f"Real runs: {how}{unknown}; standard deviation over seeds {100 * deviation:.2f} points, which makes that of a "
        f"pair's difference {margins:.2f} margins of {100 * record['margin']:g} points"
        + (f"; the promise is not for them: {' and '.join(outside)}." if outside else ".")
    )


def _kept(same: Counter[str], worse: Counter[str], holding: int, intervals: int) -> list[str]:
    """Whether the real runs keep each limit of the promise, a sentence each."""
    alarms, compared = same[WORSE] + same[BETTER], same.total()
    found, injected = worse[WORSE], worse.total()
    return [
        _keeps(alarms / compared <= MOST_ALARMS, "false alarms", alarms, compared, "are WORSE or BETTER"),
        _keeps(found / injected >= FEWEST_FOUND, "detection", found, injected, "are WORSE"),
        _keeps(holding / intervals >= FEWEST_HOLDING, "the speed", holding, intervals, "intervals hold 1"),
    ]


def _keeps(kept: bool, what: str, count: int, total: int, happened: str) -> str:
    """With the 95% interval of the rate, which few comparisons leave wide (Clopper and Pearson 1934)."""
    rate = binomtest(count, total).proportion_ci()
    return (
        f"The real runs {'keep' if kept else 'do NOT keep'} the limit of {what}: {count} of {total} {happened}, "
        f"a rate between {rate.low:.0%} and {rate.high:.0%} with 95% confidence."
    )


@cache  # the same every time, and seconds of work
def _simulated_rows() -> list[list[str]]:
    draw = np.random.default_rng(0)
    rows: list[list[str]] = []
    for shift, what, only in ((0.0, "no difference", None), (-INJECTED, f"{INJECTED:g} margins worse", WORSE)):
        for noise in (*NOISE, TOO_MUCH_NOISE):
            title = f"simulated, {what}, noise {noise:g} margin{'s' if noise > 1 else ''}"
            for pairs in (DEFAULT_SEEDS, SEEDS):
                rows.append(_cells(f"{title}, {pairs} pairs", simulated(draw, noise, shift, pairs), only))
            grown = f"{title}, {DEFAULT_SEEDS} to {MAX_SEEDS} pairs until decided"
            rows.append(_cells(grown, until_decided(draw, noise, shift), only))
    return rows


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
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(table(read_json(RECORD)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

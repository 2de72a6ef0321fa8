"""How often the verdicts are wrong, in simulation and in real runs; `python -m reports.calibrate` explains it."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.random import Generator
from scipy.stats import binomtest

from reports.analysis.statistics import DEFAULT_SEEDS, LOOKS, MAX_SEEDS, judge, seeds_for_next_look, speedup
from reports.records.calibration import COMPARISONS, SPEED_STARTS, Calibration, FromOneSource, SpeedCalibration
from reports.records.comparison import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, Verdict
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record

RECORD = Path(__file__).resolve().parents[1] / "results" / "calibration.json"
SPEED_RECORD = RECORD.with_name("speed_calibration.json")
SIMULATIONS = 10_000
GROWING = 1_000  # simulations of --until-decided, each of which asks for several verdicts and their power
SEEDS = 5
NOISE = (0.25, 0.5, 1.0)  # standard deviation of a paired difference, in margins
TOO_MUCH_NOISE = 2.0  # of which `SEEDS` pairs cannot be expected to decide: shown, not promised
INJECTED = 2.0  # margins
MOST_ALARMS, FEWEST_FOUND, COVERAGE = 0.05, 0.9, 0.95
SPEED_GROUPS = (3, 5)  # process starts in a measurement of speed: of a comparison, and of a committed one
PROMISE = (
    f"Promised of at least {SEEDS} pairs with noise (the standard deviation of their differences) of up to one margin: "
    f"WORSE or BETTER in at most {MOST_ALARMS:.0%} of comparisons without a difference; WORSE in at least "
    f"{FEWEST_FOUND:.0%} of those with a loss of {INJECTED:g} margins; 1 within {COVERAGE:.0%} of the intervals of the "
    "speed of FP32 over itself. Nothing is promised of the other rows."
)
TITLES = ("comparison", "n", "WORSE or BETTER", "EQUIVALENT", "INCONCLUSIVE")


@dataclass(frozen=True)
class Rate:
    """The verdicts of one kind of comparison. Of those with an `injected` loss, only WORSE is right."""

    comparison: str
    verdicts: Counter[Verdict]
    injected: bool = False

    @property
    def alarms(self) -> int:
        """How many were WORSE or BETTER, with an `injected` loss WORSE."""
        return self.verdicts[WORSE] + (0 if self.injected else self.verdicts[BETTER])

    @property
    def cells(self) -> list[str]:
        """The texts below `TITLES`."""
        count = self.verdicts.total()
        counts = (self.alarms, self.verdicts[EQUIVALENT], self.verdicts[INCONCLUSIVE])
        alarms, *others = (f"{number / count:.1%}" for number in counts)
        return [self.comparison, str(count), f"{alarms} (WORSE)" if self.injected else alarms, *others]


@dataclass(frozen=True)
class Rates:
    """The rates, and in sentences what is promised of them and whether the real runs keep it."""

    rows: list[Rate]
    notes: list[str]


Record = TypeVar("Record", bound=FromOneSource)


def read_calibration(path: Path) -> tuple[Calibration | None, str | None]:
    """The record of accuracies in `path`, or the reason why none may be shown."""
    record, missing = _read(Calibration, path)
    if record and (done := len(record.accuracies) // (2 * record.pairs)) < COMPARISONS:
        return None, f"incomplete: {done} comparisons of {COMPARISONS}"
    return record, missing


def read_speed_calibration(path: Path) -> tuple[SpeedCalibration | None, str | None]:
    """The record of process starts in `path`, or the reason why none may be shown."""
    record, missing = _read(SpeedCalibration, path)
    if record and (done := len(record.log_ratios)) < SPEED_STARTS:
        return None, f"incomplete: {done} process starts of {SPEED_STARTS}"
    return record, missing


def _read(model: type[Record], path: Path) -> tuple[Record | None, str | None]:
    if not path.exists():
        return None, "no record"
    try:
        record = read_record(model, path)
    except ValueError as error:
        return None, f"left out: {error}".replace(f"{path.parent}/", "")
    if record.smoke:
        return None, "left out, a smoke run"
    if not record.environment.git.committed:
        return None, f"left out, their source {UNCOMMITTED}"
    return record, None


def rates(
    record: Calibration | None, missing: str | None, speed: SpeedCalibration | None, unmeasured: str | None
) -> Rates:
    """The rates of the simulations and of the records, as both are read; the same every time."""
    rows, notes = _simulated_rates(), [PROMISE]
    if record:
        same = Rate(f"real FP32 runs against others, {record.pairs} pairs", real(record))
        title = f"real FP32 runs, {INJECTED:g} margins taken off one side, {record.pairs} pairs"
        worse = Rate(title, real(record, -INJECTED), injected=True)
        rows = [*rows, same, worse]
        count = same.verdicts.total()
        deviation = float(np.std(record.accuracies, ddof=1))
        noise = f"{deviation * math.sqrt(2) / record.margin:.2f} margins of {100 * record.margin:g} points"
        notes.append(f"Real runs: {_title(record)}; deviation over seeds {100 * deviation:.2f} points, noise {noise}.")
        for what, rate, kept in (
            ("false alarms", same, same.alarms <= MOST_ALARMS * count),
            ("losses found", worse, worse.alarms >= FEWEST_FOUND * count),
        ):
            notes.append(_counted(f"Real runs, {what}", rate.alarms, count, kept))
    else:
        notes.append(f"Real runs: {missing}; `python -m scripts.run_calibration` makes or completes a record.")
    if speed:
        deviation = statistics.stdev(speed.log_ratios)
        notes.append(f"Real process starts: {_title(speed)}; deviation over starts {deviation:.2%}.")
        for size in SPEED_GROUPS:
            holding, groups = intervals_holding_one(speed.log_ratios, size)
            low, high = _exact_interval(holding, groups)
            what = f"Intervals of speed over {size} starts that hold 1"
            notes.append(_counted(what, holding, groups, kept=low <= COVERAGE <= high))
    else:
        command = "`python -m scripts.run_speed_calibration` makes or completes a record"
        notes.append(f"Real process starts: {unmeasured}; {command}.")
    return Rates(rows, notes)


def _title(record: FromOneSource) -> str:
    return " ".join([record.experiment, *record.overrides])


def _counted(what: str, number: int, total: int, kept: bool) -> str:
    low, high = _exact_interval(number, total)
    interval = f"a rate between {low:.0%} and {high:.0%} with 95% confidence"
    return f"{what}: {number} of {total}, {interval}: {'kept' if kept else 'NOT kept'}."


def _exact_interval(number: int, total: int) -> tuple[float, float]:
    """Of a rate (Clopper and Pearson 1934, https://doi.org/10.1093/biomet/26.4.404)."""
    interval = binomtest(number, total).proportion_ci()
    return float(interval.low), float(interval.high)


def simulated(draw: Generator, noise: float, shift: float = 0.0, pairs: int = SEEDS) -> Counter[Verdict]:
    """Verdicts of simulated comparisons, noise and shift in margins."""
    return _verdicts(draw.normal(shift, noise, (SIMULATIONS, pairs)).tolist(), margin=1.0)


def until_decided(draw: Generator, noise: float, shift: float = 0.0) -> Counter[Verdict]:
    """Verdicts of simulated comparisons that add seeds as `--until-decided` does, noise and shift in margins."""
    return Counter(_last_verdict(pairs) for pairs in draw.normal(shift, noise, (GROWING, MAX_SEEDS)).tolist())


def real(record: Calibration, shift: float = 0.0) -> Counter[Verdict]:
    """Verdicts of the recorded FP32 runs against others of other seeds, `shift` margins added to the latter."""
    values, pairs, margin = np.array(record.accuracies), record.pairs, record.margin
    halves = values[: len(values) // (2 * pairs) * 2 * pairs].reshape(-1, 2, pairs)
    differences = halves[:, 1] + shift * margin - halves[:, 0]
    return _verdicts(differences.tolist(), margin, 1 / record.eval_samples)


def intervals_holding_one(log_ratios: Sequence[float], size: int) -> tuple[int, int]:
    """How many intervals of `size` process starts hold 1, and how many there are; each start is in one of them."""
    groups = [log_ratios[first : first + size] for first in range(0, len(log_ratios) - size + 1, size)]
    intervals = [interval for group in groups if (interval := speedup(group).interval)]
    return sum(interval.low <= 1 <= interval.high for interval in intervals), len(intervals)


def _verdicts(differences: Iterable[Sequence[float]], margin: float, resolution: float = 0.0) -> Counter[Verdict]:
    """The verdicts of comparisons, each a list of at least two paired differences of a metric to maximise."""
    judgements = (judge(pairs, margin, higher_is_better=True, resolution=resolution) for pairs in differences)
    return Counter(judgement.verdict for judgement in judgements if judgement)


def _last_verdict(pairs: Sequence[float]) -> Verdict:
    """Of as many of these pairs as are asked for, with a margin of 1."""
    count = DEFAULT_SEEDS
    for look in range(1, LOOKS + 1):
        judgement = judge(pairs[:count], 1.0, higher_is_better=True, looks=LOOKS)
        assert judgement is not None  # there are at least two pairs
        if judgement.verdict != INCONCLUSIVE:
            return judgement.verdict
        count = seeds_for_next_look(count, [judgement.seeds_needed(MAX_SEEDS)], MAX_SEEDS, last=look + 1 >= LOOKS)
    return INCONCLUSIVE


@cache  # the same every time, and seconds of work
def _simulated_rates() -> list[Rate]:
    draw = np.random.default_rng(0)
    rows: list[Rate] = []
    for shift, what in ((0.0, "no difference"), (-INJECTED, f"{INJECTED:g} margins worse")):
        for noise in (*NOISE, TOO_MUCH_NOISE):
            title = f"simulated, {what}, noise {noise:g} margin{'s' if noise > 1 else ''}"
            for pairs in (DEFAULT_SEEDS, SEEDS):
                rows.append(Rate(f"{title}, {pairs} pairs", simulated(draw, noise, shift, pairs), shift < 0))
            grown = f"{title}, {DEFAULT_SEEDS} to {MAX_SEEDS} pairs until decided"
            rows.append(Rate(grown, until_decided(draw, noise, shift), shift < 0))
    return rows

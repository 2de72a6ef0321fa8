"""How often the verdicts are wrong, in simulation and in real runs; `python -m reports.calibrate` explains it."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from scipy.stats import binomtest

from reports.analysis.statistics import LOOKS, MAX_SEEDS, judge, seeds_for_next_look, speedup
from reports.records.calibration import COMPARISONS, Calibration
from reports.records.comparison import BETTER, DEFAULT_SEEDS, EQUIVALENT, INCONCLUSIVE, WORSE, Verdict
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record

RECORD = Path(__file__).resolve().parents[1] / "results" / "calibration.json"
SIMULATIONS = 10_000
GROWING = 1_000  # simulations of --until-decided, each of which asks for several verdicts and their power
SEEDS = 5
NOISE = (0.25, 0.5, 1.0)  # standard deviation of a paired difference, in margins
TOO_MUCH_NOISE = 2.0  # of which `SEEDS` pairs cannot be expected to decide: shown, not promised
INJECTED = 2.0  # margins
MOST_ALARMS, FEWEST_FOUND, FEWEST_HOLDING = 0.05, 0.9, 0.9
PROMISE = (
    f"Promised of at least {SEEDS} pairs with noise (the standard deviation of their differences) of up to one margin: "
    f"WORSE or BETTER in at most {MOST_ALARMS:.0%} of comparisons without a difference; WORSE in at least "
    f"{FEWEST_FOUND:.0%} of those with a loss of {INJECTED:g} margins; 1 within at least {FEWEST_HOLDING:.0%} of the "
    "intervals of the speed of FP32 over itself. Nothing is promised of the other rows."
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


def read_calibration(path: Path = RECORD) -> tuple[Calibration | None, str | None]:
    """The record in `path`, or the reason why none may be shown."""
    if not path.exists():
        return None, "no record"
    try:
        record = read_record(Calibration, path)
    except ValueError as error:
        return None, f"left out: {error}".replace(f"{path.parent}/", "")
    if record.smoke:
        return None, "left out, a smoke run"
    if not record.environment.git.committed:
        return None, f"left out, their source {UNCOMMITTED}"
    accuracies = len(record.accuracies) // (2 * record.pairs)
    if min(accuracies, len(record.speed)) < COMPARISONS:
        done = f"{accuracies} comparisons of accuracy and {len(record.speed)} of speed"
        return None, f"incomplete: {done}, of {COMPARISONS} each"
    return record, None


def rates(record: Calibration | None, missing: str | None = None) -> Rates:
    """The rates of the simulations and of `record`, as `read_calibration` gives both; the same every time."""
    if record is None:
        command = "`python -m scripts.run_calibration` makes or completes a record"
        return Rates(_simulated_rates(), [PROMISE, f"Real runs: {missing}; {command}."])
    same = Rate(f"real FP32 runs against others, {record.pairs} pairs", real(record))
    title = f"real FP32 runs, {INJECTED:g} margins taken off one side, {record.pairs} pairs"
    worse = Rate(title, real(record, -INJECTED), injected=True)
    count, holding, blocks = same.verdicts.total(), intervals_holding_one(record), len(record.speed)
    deviation = float(np.std(record.accuracies, ddof=1))
    noise = f"{deviation * math.sqrt(2) / record.margin:.2f} margins of {100 * record.margin:g} points"
    what = f"{' '.join([record.experiment, *record.overrides])}; deviation over seeds {100 * deviation:.2f} points"
    notes = [PROMISE, f"Real runs: {what}, noise {noise}."]
    for what, number, total, kept in (
        ("false alarms", same.alarms, count, same.alarms <= MOST_ALARMS * count),
        ("losses found", worse.alarms, count, worse.alarms >= FEWEST_FOUND * count),
        ("intervals of speed that hold 1", holding, blocks, holding >= FEWEST_HOLDING * blocks),
    ):
        rate = binomtest(number, total).proportion_ci()  # Clopper and Pearson 1934; few comparisons leave it wide
        interval = f"a rate between {rate.low:.0%} and {rate.high:.0%} with 95% confidence"
        notes.append(f"Real runs, {what}: {number} of {total}, {interval}: {'kept' if kept else 'NOT kept'}.")
    return Rates([*_simulated_rates(), same, worse], notes)


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


def intervals_holding_one(record: Calibration) -> int:
    """How many recorded speed intervals of FP32 over itself hold 1."""
    intervals = (speedup(blocks.first, blocks.second) for blocks in record.speed)
    return sum(interval.low <= 1 <= interval.high for interval in intervals)


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

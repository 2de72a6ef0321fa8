"""The statistics of a comparison: what a difference between paired runs says, and what process starts say."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from reports.records.comparison import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, Interval, Speedup, Verdict

SIGNIFICANCE = 0.05
POWER = 0.8
MOST_SEEDS = 1000
DEVIATIONS = 200  # that stand for all a sample can have
LOOKS = 3  # how often whoever adds seeds may ask for the verdict
MAX_SEEDS = 20  # of a comparison that adds them


@dataclass(frozen=True)
class Judgement:
    """What paired runs say of a difference. `deviation` is that of one pair, `looks` that of `judge`."""

    verdict: Verdict
    difference: Interval
    margin: float
    deviation: float
    looks: int = 1

    def seeds_needed(self, most: int = MOST_SEEDS) -> int | None:
        """The fewest pairs, of at most `most`, that decide with 80% power if these are the true values; else None.

        None too for a verdict that is not INCONCLUSIVE.
        """
        if self.verdict != INCONCLUSIVE or self.margin <= 0 or self.deviation <= 0:
            return None
        counts = np.arange(2, most + 1)
        power = _power(counts, self.difference.value, self.deviation, self.margin, SIGNIFICANCE / self.looks)
        deciding = counts[power >= POWER]
        return int(deciding[0]) if deciding.size else None


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return statistics.fmean(values) if values else None


def median(values: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return statistics.median(values) if values else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values or where one is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return statistics.stdev(values)


def pooled_deviation(groups: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """The standard deviation within groups that are taken to have one, and its degrees of freedom; None without any."""
    freedom = sum(len(group) - 1 for group in groups if group)
    squares = sum((len(group) - 1) * statistics.variance(group) for group in groups if len(group) > 1)
    return (math.sqrt(squares / freedom) if freedom else None), freedom


def judge(
    differences: Sequence[float], margin: float, higher_is_better: bool, resolution: float = 0.0, looks: int = 1
) -> Judgement | None:
    """The verdict on paired differences to FP32, one a seed, in the unit of `margin`; None for fewer than two.

    EQUIVALENT: two one-sided t-tests at 5% reject a difference beyond the margin on either side (Schuirmann
    1987, https://doi.org/10.1007/BF01068419): the 90% interval lies within it. Otherwise WORSE or BETTER where
    the 95% interval lies on one side of zero, and INCONCLUSIVE where it holds zero.
    `resolution` is the smallest step in which the metric moves, for an accuracy one sample's share: seeds that
    agree by chance do not make an interval narrower than it allows. Each of `looks` tests at 5% / `looks`
    (Bonferroni), which keeps false alarms at 5% where all looks were planned. To add seeds, unplanned, until a
    verdict comes gives more, because the earlier looks were not tested so strictly.
    Raises ValueError for differences that are not finite.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError(f"differences must be finite, not {list(differences)}")
    count = len(differences)
    if count < 2:
        return None
    value = statistics.fmean(differences)
    # A value known to the nearest step is off by a uniform error, whose deviation is step / sqrt(12); of two, sqrt(6).
    deviation = max(statistics.stdev(differences), resolution / math.sqrt(6))
    error, significance = deviation / math.sqrt(count), SIGNIFICANCE / looks
    wide, narrow = (error * _quantile(1 - tail, count - 1) for tail in (significance / 2, significance))
    interval = Interval(value=value, low=value - wide, high=value + wide)
    if abs(value) + narrow < margin:
        verdict = EQUIVALENT
    elif interval.low > 0 or interval.high < 0:
        verdict = BETTER if (value > 0) == higher_is_better else WORSE
    else:
        verdict = INCONCLUSIVE
    return Judgement(verdict, interval, margin, deviation, looks)


def population(differences: Sequence[Sequence[int]], width: float, judged: Judgement) -> Interval:
    """The interval of the difference on new samples of the same kind, at the level of `judged`.

    `differences` has, for each pair of runs, +1 for a sample that only the one run gets right, -1 for one that only
    the FP32 run does, and 0 for the others; `width` is the range of the metric. Seeds and samples are both drawn, so
    their variances add: that of the mean over seeds, and that of the mean over samples (McNemar's for one seed). What
    varies with both is in both, so the interval is rather too wide (Owen 2007,
    https://doi.org/10.1214/07-AOAS122). Two further samples that differ in each direction keep few samples without a
    difference from saying that there is none (Agresti and Coull 1998, https://doi.org/10.1080/00031305.1998.10480550).
    The degrees of freedom are Welch and Satterthwaite's.
    """
    table = np.asarray(differences, dtype=np.float64)
    pairs, samples = table.shape
    by_sample = np.concatenate([table.mean(axis=0), (1, 1, -1, -1)])
    of_seeds, of_samples = judged.deviation**2 / pairs, width**2 * by_sample.var(ddof=1) / len(by_sample)
    variance = of_seeds + of_samples
    freedom = variance**2 / (of_seeds**2 / (pairs - 1) + of_samples**2 / (samples + 3))
    half = float(stats.t.ppf(1 - SIGNIFICANCE / judged.looks / 2, freedom)) * math.sqrt(variance)
    value = judged.difference.value
    return Interval(value=value, low=value - half, high=value + half)


@cache
def _quantile(share: float, freedom: int) -> float:
    """Of Student's t."""
    return float(stats.t.ppf(share, freedom))


def narrow_over_wide(pairs: int, looks: int) -> float:
    """The width of the interval that decides equivalence over that of the other one, for as many pairs."""
    tail = SIGNIFICANCE / looks
    return _quantile(1 - tail, pairs - 1) / _quantile(1 - tail / 2, pairs - 1)


def seeds_for_next_look(count: int, needed: Sequence[int | None], most: int, last: bool) -> int:
    """How many seeds the next look has after one with `count`: what the open verdicts need, for the last one `most`.

    `needed` holds how many seeds would decide each of them, None for too many; with none open, `count` stays.
    """
    if not needed:
        return count
    return most if last else min(most, max(count + 1, *(seeds or most for seeds in needed)))


def _power(
    counts: NDArray[np.int64], difference: float, deviation: float, margin: float, significance: float
) -> NDArray[np.float64]:
    """The chance of any verdict but INCONCLUSIVE of `judge`, for each number of pairs in `counts`.

    Given a sample's standard error, the mean is normal and each verdict an interval of it; the chance is the mean of
    that over equally likely standard errors (chi square).
    """
    one_sided, two_sided = (stats.t.ppf(1 - tail, counts - 1)[:, None] for tail in (significance, significance / 2))
    true_error = (deviation / np.sqrt(counts))[:, None]
    error = true_error * _relative_deviations(int(counts[-1]))[: len(counts)]
    equivalent, apart = np.fmax(margin - one_sided * error, 0.0), two_sided * error

    def within(limit: NDArray[np.float64]) -> NDArray[np.float64]:
        share: NDArray[np.float64] = ndtr((limit - difference) / true_error) - ndtr((-limit - difference) / true_error)
        return share

    # Where both limits leave nothing between them, every mean is a verdict.
    chance = np.where(equivalent >= apart, 1.0, within(equivalent) + 1 - within(apart))
    power: NDArray[np.float64] = chance.mean(axis=1)
    return power


@cache
def _relative_deviations(most: int) -> NDArray[np.float64]:
    """Equally likely sample deviations over the true one: a row for each number of pairs from 2 to `most`."""
    freedom = np.arange(1, most)[:, None]
    shares = (np.arange(DEVIATIONS) + 0.5) / DEVIATIONS
    deviations: NDArray[np.float64] = np.sqrt(stats.chi2.ppf(shares, freedom) / freedom)
    return deviations


def log_ratio(baseline: Sequence[float], other: Sequence[float]) -> float:
    """The median over rounds of the log of how many times as fast `other` was: what one process start says.

    `baseline` and `other` are seconds of equal work, block by block; above 0 means that `other` is faster.
    """
    return statistics.median(math.log(one / another) for one, another in zip(baseline, other, strict=True))


def speedup(log_ratios: Sequence[float]) -> Speedup:
    """Geometric mean over process starts, each with its `log_ratio`, and the two-sided 95% t interval over them.

    Ratios are averaged by their logarithms (Fleming and Wallace 1986, https://doi.org/10.1145/5666.5673). The sample is
    one of starts: rounds of one process share what chance gave it, and an interval over them closes on that (Georges et
    al. 2007, https://doi.org/10.1145/1297027.1297033). Raises ValueError without a start.
    """
    if not log_ratios:
        raise ValueError("a speed-up needs one process start at least")
    centre, count = statistics.fmean(log_ratios), len(log_ratios)
    value, interval = math.exp(centre), None
    if count > 1:
        half = _quantile(1 - SIGNIFICANCE / 2, count - 1) * statistics.stdev(log_ratios) / math.sqrt(count)
        interval = Interval(value=value, low=math.exp(centre - half), high=math.exp(centre + half))
    return Speedup(value=value, interval=interval, starts=count)

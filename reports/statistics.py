"""The statistics of a comparison."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 4000


@dataclass(frozen=True)
class Interval:
    """An estimate with its two-sided 95% interval."""

    value: float
    low: float
    high: float


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return statistics.fmean(values) if values else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation (n - 1); None for fewer than two values or where one is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return statistics.stdev(values)


def speedup(baseline: Sequence[float], other: Sequence[float]) -> Interval:
    """Median of the ratios of neighbouring blocks, with a percentile bootstrap over the rounds.

    `baseline` and `other` are seconds of equal work, block by block; above 1 means that `other` is faster.
    Efron and Tibshirani 1993, *An Introduction to the Bootstrap*, section 13.3.
    """
    ratios = np.asarray(baseline, dtype=np.float64) / np.asarray(other, dtype=np.float64)
    value = float(np.median(ratios))
    if np.ptp(ratios) == 0:
        return Interval(value, value, value)
    found = stats.bootstrap(
        (ratios,), np.median, confidence_level=0.95, n_resamples=RESAMPLES, method="percentile", rng=0
    )
    return Interval(value, float(found.confidence_interval.low), float(found.confidence_interval.high))

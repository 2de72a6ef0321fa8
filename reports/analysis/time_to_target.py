"""How long a precision trains until it is as good as FP32 is in the end."""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from reports.records import layout
from reports.records.comparison import Comparison
from reports.records.metrics import History, read_history

ROUNDING = 1e-9  # relative: a mean of equal values may differ from them in its last bit


@dataclass(frozen=True)
class TimeToTarget:
    """Of the finished `runs` of a precision, how many `reached` the target; medians over all of them.

    `steps` and `seconds` are None where half of the runs never reach it, `seconds` also without a measured speed.
    """

    precision: str
    runs: int
    reached: int
    steps: float | None
    seconds: float | None


def times_to_target(folder: Path, comparison: Comparison) -> list[TimeToTarget]:
    """A value for each precision; none without a finished FP32 run. `folder` has the runs.

    The target is the mean of FP32's final values, and a run reaches it at its first evaluation that is at least as
    good. Seconds are these steps at the speed of the benchmark, which measures the precisions side by side.
    """
    baseline, benchmark = comparison.row(layout.BASELINE), comparison.benchmark
    if baseline is None or baseline.mean is None or baseline.metric is None:
        return []
    key, sign = baseline.metric.key, 1 if baseline.metric.higher_is_better else -1
    target = sign * baseline.mean - ROUNDING * abs(baseline.mean)
    times = []
    for row in comparison.rows:
        runs = [run for run in comparison.runs_of(row.precision) if run.finished]
        histories = [read_history(folder / run.name / layout.METRICS) for run in runs]
        firsts = [_first_step(history, key, sign, target) for history in histories]
        median = statistics.median(firsts) if firsts else math.inf
        steps = median if math.isfinite(median) else None
        seconds = None
        if steps is not None and benchmark and row.samples_per_sec:
            seconds = steps * benchmark.starts[0].samples_per_step / row.samples_per_sec
        times.append(TimeToTarget(row.precision, len(runs), sum(map(math.isfinite, firsts)), steps, seconds))
    return times


def _first_step(history: History, key: str, sign: int, target: float) -> float:
    """The step of the first evaluation that is at least the `target`, infinite where there is none."""
    steps = (step for step, value in sorted(history.series(key).items()) if sign * value >= target)
    return next(steps, math.inf)

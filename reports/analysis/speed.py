"""What a benchmark's blocks say: speeds, speed-ups vs FP32, drift, and the operator that grew most."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from reports.analysis.statistics import drift, speedup
from reports.records.benchmark import Benchmark
from reports.records.comparison import Drift, Interval, OperatorGrowth, RunResult
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record
from reports.records.layout import BASELINE


def samples_per_second(benchmark: Benchmark, precision: str) -> float:
    """Of the median block."""
    return benchmark.samples_per_step * benchmark.block_steps / statistics.median(benchmark.seconds[precision])


def speedup_of(benchmark: Benchmark, precision: str) -> Interval | None:
    """Over FP32; None where one of the two was not measured."""
    pair = _paired(benchmark, precision)
    return speedup(*pair) if pair else None


def drift_of(benchmark: Benchmark, precision: str) -> Drift | None:
    """The drift of the speed-up; None where there is none, or no speed-up."""
    pair = _paired(benchmark, precision)
    return drift(*pair) if pair else None


def slower_in(benchmark: Benchmark, precision: str) -> OperatorGrowth | None:
    """The operator whose time grew most over FP32; None where none grew."""
    operators = benchmark.operators_ms
    if precision == BASELINE or not {BASELINE, precision} <= operators.keys():
        return None
    here, there = operators[precision], operators[BASELINE]
    # An operator that is not among FP32's longest takes no more there than the shortest of them.
    shortest = min(there.values(), default=0.0)
    name = max(here, key=lambda name: here[name] - there.get(name, shortest), default=None)
    if name is None or here[name] <= there.get(name, shortest):
        return None
    return OperatorGrowth(name=name, fp32_ms=there.get(name), ms=here[name])


def read_benchmark(
    path: Path, runs: Sequence[RunResult] = (), publish: bool = False
) -> tuple[Benchmark | None, str | None]:
    """The benchmark of the experiment of `runs`, or the reason why none may be shown.

    Its configuration and device must be those of the runs; to `publish` it, its source must be a commit.
    """
    if not path.exists():
        return None, "its speed was not measured"
    try:
        benchmark = read_record(Benchmark, path)
    except ValueError as error:
        return None, f"its speed is left out: {error}"
    finished = [run for run in runs if run.finished]
    for key in ("config_sha256", "device"):
        if finished and getattr(benchmark, key) not in {getattr(run, key) for run in finished}:
            return None, f"its speed is left out: {key} of {path.name} is not that of the runs"
    if publish and benchmark.smoke:
        return None, f"its speed is left out: {path.name} is of a smoke run"
    if publish and not benchmark.git.committed:
        return None, f"its speed is left out: the source of {path.name} {UNCOMMITTED}"
    return benchmark, None


def _paired(benchmark: Benchmark, precision: str) -> tuple[list[float], list[float]] | None:
    seconds = benchmark.seconds
    if precision == BASELINE or not {BASELINE, precision} <= seconds.keys():
        return None
    return seconds[BASELINE], seconds[precision]

"""What a benchmark's blocks say: speeds, seconds paired with those of FP32, and the operator that grew most."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from reports.records.benchmark import Benchmark
from reports.records.comparison import OperatorGrowth, RunResult
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record
from reports.records.layout import BASELINE


def samples_per_second(benchmark: Benchmark | None, precision: str) -> float | None:
    """Of the median block; None where it was not measured."""
    if benchmark is None or precision not in benchmark.seconds:
        return None
    return benchmark.samples_per_step * benchmark.block_steps / statistics.median(benchmark.seconds[precision])


def paired_seconds(benchmark: Benchmark | None, precision: str) -> tuple[list[float], list[float]] | None:
    """The blocks of FP32 and of `precision`; None where one of the two was not measured, and for FP32 itself."""
    seconds = benchmark.seconds if benchmark else {}
    if precision == BASELINE or not {BASELINE, precision} <= seconds.keys():
        return None
    return seconds[BASELINE], seconds[precision]


def slower_in(benchmark: Benchmark | None, precision: str) -> OperatorGrowth | None:
    """The operator whose time grew most over FP32; None where none grew."""
    operators = benchmark.operators_ms if benchmark else {}
    if precision == BASELINE or not {BASELINE, precision} <= operators.keys():
        return None
    here, there = operators[precision], operators[BASELINE]
    # An operator that is not among FP32's longest takes no more there than the shortest of them.
    shortest = min(there.values(), default=0.0)
    growth = {name: time - there.get(name, shortest) for name, time in here.items()}
    name = max(growth, key=lambda name: growth[name], default=None)
    if name is None or growth[name] <= 0:
        return None
    return OperatorGrowth(name=name, fp32_ms=there.get(name), ms=here[name])


def read_benchmark(
    path: Path, runs: Sequence[RunResult] = (), publish: bool = False
) -> tuple[Benchmark | None, str | None]:
    """The benchmark of the finished `runs`, or the reason why none may be shown.

    Its configuration and device must be those of the runs; to `publish` it, its source must be a commit.
    """
    if not path.exists():
        return None, "its speed was not measured"
    try:
        benchmark = read_record(Benchmark, path)
        for key in ("config_sha256", "device"):
            if runs and getattr(benchmark, key) not in {getattr(run.summary, key) for run in runs}:
                raise ValueError(f"{key} of {path.name} is not that of the runs")
        if publish and benchmark.smoke:
            raise ValueError(f"{path.name} is of a smoke run")
        if publish and not benchmark.git.committed:
            raise ValueError(f"the source of {path.name} {UNCOMMITTED}")
    except ValueError as error:
        return None, f"its speed is left out: {error}"
    return benchmark, None

"""What benchmarks say: speeds, speed-ups over FP32, the operator that grew most, and what the engine costs."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from reports.analysis.statistics import log_ratio, median, speedup
from reports.records.benchmark import Benchmark, Start
from reports.records.comparison import OperatorGrowth, RunResult, Speedup
from reports.records.engine_benchmark import EngineBenchmark
from reports.records.environment import UNCOMMITTED
from reports.records.files import read_record
from reports.records.layout import BASELINE


def samples_per_second(benchmark: Benchmark | None, precision: str) -> float | None:
    """The median over starts, each with its median block; None where it was not measured."""
    speeds = [
        start.samples_per_step * start.block_steps / statistics.median(start.seconds[precision])
        for start in _starts_of(benchmark, precision)
    ]
    return median(speeds)


def speedup_of(benchmark: Benchmark | None, precision: str) -> Speedup | None:
    """Over FP32 in the same processes; None where the two were not measured so, and for FP32 itself."""
    starts = [] if precision == BASELINE else _starts_of(benchmark, precision, BASELINE)
    return (
        speedup([log_ratio(start.seconds[BASELINE], start.seconds[precision]) for start in starts]) if starts else None
    )


def slower_in(benchmark: Benchmark | None, precision: str) -> OperatorGrowth | None:
    """The operator whose time grew most over FP32, in the first start of both; None where none grew."""
    both = (start.operators_ms for start in _starts_of(benchmark, precision, BASELINE))
    operators = next((one for one in both if {BASELINE, precision} <= one.keys()), None)
    if precision == BASELINE or operators is None:
        return None
    here, there = operators[precision], operators[BASELINE]
    # An operator that is not among FP32's longest takes no more there than the shortest of them.
    shortest = min(there.values(), default=0.0)
    growth = {name: time - there.get(name, shortest) for name, time in here.items()}
    name = max(growth, key=lambda name: growth[name], default=None)
    if name is None or growth[name] <= 0:
        return None
    return OperatorGrowth(name=name, fp32_ms=there.get(name), ms=here[name])


def engine_ratios(record: EngineBenchmark) -> dict[str, Speedup]:
    """Step time of the engine over the plain loop's, and throughput of the other precisions over FP32's, by title."""

    def ratio(first: str, second: str) -> Speedup:
        """Seconds of the first over those of the second."""
        return speedup([log_ratio(start.seconds[first], start.seconds[second]) for start in record.starts])

    precisions = [name.removeprefix("engine ") for name in record.starts[0].seconds if name.startswith("engine ")]
    ratios = {
        f"step time, engine / plain loop, {name}": ratio(f"engine {name}", f"plain {name}") for name in precisions
    }
    for name in precisions:
        for kind, label in (("plain", "plain loop"), ("engine", "engine")):
            if name != BASELINE:
                title = f"throughput, {name} / {BASELINE}, {label}"
                ratios[title] = ratio(f"{kind} {BASELINE}", f"{kind} {name}")
    return ratios


def read_benchmark(
    path: Path, runs: Sequence[RunResult] = (), publish: bool = False
) -> tuple[Benchmark | None, str | None]:
    """The benchmark of the finished `runs`, and the reason why none may be shown or why it is incomplete.

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
        if publish and not all(source.committed for source in benchmark.sources):
            raise ValueError(f"the source of {path.name} {UNCOMMITTED}")
    except ValueError as error:
        return None, f"its speed is left out: {error}"
    return benchmark, why_incomplete(benchmark)


def why_incomplete(benchmark: Benchmark) -> str | None:
    """Why there are fewer starts than were asked for; None where there are all."""
    if benchmark.reason is None:
        return None
    count = len(benchmark.starts)
    measured = f"measured in {count} process start{'s' if count > 1 else ''} alone" if count else "not measured"
    return f"its speed was {measured}: {benchmark.reason}"


def _starts_of(benchmark: Benchmark | None, *precisions: str) -> list[Start]:
    """The starts in which all `precisions` were measured."""
    return [start for start in benchmark.starts if start.has(precisions)] if benchmark else []

"""The speed of a comparison, from the blocks of its benchmark.json."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from reports.analysis.statistics import Interval, drift, speedup
from reports.records.environment import UNCOMMITTED, Source
from reports.records.files import Part, read_as
from reports.records.run import BASELINE
from reports.records.summary import FINISHED

Seconds = Annotated[float, Field(gt=1e-9, lt=1e9, allow_inf_nan=False)]  # no clock measures less, nobody waits for more

Count = Annotated[int, Field(gt=0, lt=2**53)]


class Benchmark(Part):
    """What is read of benchmark.json: the seconds of equally many blocks of each precision, taken in turns."""

    samples_per_step: Count
    block_steps: Count
    seconds: dict[str, list[Seconds]]
    operators_ms: dict[str, dict[str, float]] = Field(default_factory=dict)
    config_sha256: str
    device: str
    torch: str | None = None
    smoke: bool = False
    git: Source = Field(default_factory=Source)

    @model_validator(mode="after")
    def _in_turns(self) -> "Benchmark":
        counts = {name: len(blocks) for name, blocks in self.seconds.items()}
        if len(set(counts.values())) != 1 or min(counts.values()) < 2:
            raise ValueError(f"blocks must be equally many and at least 2, not {counts}")
        return self

    def samples_per_second(self, precision: str) -> float:
        """Of the median block."""
        return self.samples_per_step * self.block_steps / statistics.median(self.seconds[precision])

    def speedup(self, precision: str) -> Interval | None:
        """Over FP32, where both were measured."""
        return speedup(self.seconds[BASELINE], self.seconds[precision]) if self._compared(precision) else None

    def drift(self, precision: str) -> list[float] | None:
        """`statistics.drift` of the speed-up, where both were measured."""
        found = drift(self.seconds[BASELINE], self.seconds[precision]) if self._compared(precision) else None
        return list(found) if found else None

    def slower_in(self, precision: str) -> list[Any] | None:
        """The operator that takes so much longer than in FP32 that no other costs more: its name and both ms a step."""
        if precision == BASELINE or not {BASELINE, precision} <= self.operators_ms.keys():
            return None
        here, there = self.operators_ms[precision], self.operators_ms[BASELINE]
        # One that is not among FP32's longest takes there no more than the shortest of them.
        least = min(there.values(), default=0.0)
        name = max(here, key=lambda name: here[name] - there.get(name, least), default=None)
        if name is None or here[name] <= there.get(name, least):
            return None
        return [name, there.get(name), here[name]]

    def _compared(self, precision: str) -> bool:
        return precision != BASELINE and {BASELINE, precision} <= self.seconds.keys()


def read_benchmark(
    path: Path, runs: Sequence[Mapping[str, Any]] = (), publish: bool = False
) -> tuple[Benchmark | None, str | None]:
    """The benchmark in `path` of the experiment of `runs`, or why there is none that may be shown.

    One of another configuration or device than the finished runs' is not theirs; to `publish` it, it must not be of
    a smoke run, and its source must be a commit.
    """
    if not path.exists():
        return None, "its speed was not measured"
    try:
        found = read_as(Benchmark, path, "one")
    except ValueError as error:
        return None, f"its speed is left out: benchmark.json {error}"
    for key in ("config_sha256", "device"):
        known, own = {run[key] for run in runs if run["status"] == FINISHED}, getattr(found, key)
        if known and own not in known:
            return None, f"its speed is left out: {key} of benchmark.json is not that of the runs"
    if publish and found.smoke:
        return None, "its speed is left out: benchmark.json is of a smoke run"
    if publish and not found.git.committed:
        return None, f"its speed is left out: the source of benchmark.json {UNCOMMITTED}"
    return found, None

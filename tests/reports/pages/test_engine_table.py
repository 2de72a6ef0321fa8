"""The engine's own benchmark as a table."""

from pathlib import Path

import numpy as np
import pytest

from reports.analysis.reproduction import RESULTS
from reports.analysis.speed import engine_ratios
from reports.pages.engine_table import engine_table, memory_growth
from reports.records.benchmark import Blocks
from reports.records.engine_benchmark import EngineBenchmark
from reports.records.environment import Machine, Source
from reports.records.files import read_record, write_record
from reports.records.memory_growth import MemoryGrowth

NAME = "engine_benchmark.json"


def test_the_committed_benchmark_is_a_table_of_its_ratios() -> None:
    record, text = read_record(EngineBenchmark, RESULTS / NAME), engine_table(RESULTS / NAME)
    assert text.startswith("ResNet-20, ")
    ratios = engine_ratios(record)
    assert len(ratios) == 7
    for name, ratio in ratios.items():
        assert f"| {name} | {ratio.value:.3f} | " in text


def test_ratios_of_the_engine_have_an_interval_over_process_starts_and_none_of_one(tmp_path: Path) -> None:
    record = read_record(EngineBenchmark, RESULTS / NAME).model_copy(
        update={"environment": Machine(git=Source(commit="0123", dirty=False))}
    )
    starts = [
        Blocks(block_steps=1, seconds={"plain fp32": [1.0, 1.0], "engine fp32": [ratio, ratio]})
        for ratio in (1.0, 1.21)
    ]
    write_record(tmp_path / NAME, record.model_copy(update={"starts": starts}))
    # The mean is 1.1, and Student's t of one degree of freedom 12.7062: exp(12.7062 log(1.21) / 2) is 3.3572.
    row = f"| step time, engine / plain loop, fp32 | 1.100 | {1.1 / 3.3572:.3f} to {1.1 * 3.3572:.3f} |"
    assert row in engine_table(tmp_path / NAME)
    write_record(tmp_path / NAME, record.model_copy(update={"starts": starts[1:]}))
    assert "| step time, engine / plain loop, fp32 | 1.210 | one start |" in engine_table(tmp_path / NAME)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tiny": True}, "is of a trial of the command"),
        ({"environment": Machine(git=Source(commit="0123", dirty=True))}, "had changes that are in no commit"),
        ({"environment": Machine()}, "its commit is not known"),
    ],
)
def test_a_benchmark_that_may_not_be_shown_says_why(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    record = read_record(EngineBenchmark, RESULTS / NAME)
    write_record(tmp_path / NAME, record.model_copy(update=change))
    with pytest.raises(ValueError, match=reason):
        engine_table(tmp_path / NAME)


def test_a_missing_benchmark_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=NAME):
        engine_table(tmp_path / NAME)


def test_thousands_of_emulated_steps_leave_the_memory_flat() -> None:
    record = read_record(MemoryGrowth, RESULTS / "memory_growth.json")
    assert record.steps[-1] >= 5000
    slope, _ = np.polyfit(record.steps, 1024 * np.array(record.rss_mib), 1)
    assert abs(slope) < 1
    assert f"{slope:+.2f} KiB a step over 5,000 steps" in memory_growth(RESULTS / "memory_growth.json")

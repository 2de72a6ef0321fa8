"""The engine's own benchmark as a table."""

from pathlib import Path

import pytest

from reports.analysis.reproduction import RESULTS
from reports.pages.engine_table import engine_table
from reports.records.engine_benchmark import EngineBenchmark
from reports.records.environment import Machine, Source
from reports.records.files import read_record, write_record

NAME = "engine_benchmark.json"


def test_the_committed_benchmark_is_a_table_of_its_ratios() -> None:
    record, text = read_record(EngineBenchmark, RESULTS / NAME), engine_table(RESULTS / NAME)
    assert text.startswith("ResNet-20, ")
    for name, (value, low, high) in record.ratios.items():
        assert f"| {name} | {value:.3f} | {low:.3f} to {high:.3f} |" in text


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

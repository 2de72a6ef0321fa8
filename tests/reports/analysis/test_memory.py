"""Peak memory from short runs: whose it is, and where it is shown."""

from pathlib import Path
from typing import Any

import pytest

from reports.pages import table
from reports.records.environment import Source
from reports.records.files import read_record, write_record
from reports.records.short_runs import ShortRuns
from reports.records.summary import Summary
from tests.reports.made_runs import COMMIT, CPU, compared, rows_of, write_three


def write_short_runs(folder: Path, **changes: Any) -> None:
    """memory.json of the runs that `write_three` makes."""
    record = ShortRuns(
        config_sha256="c" * 64,
        overrides=["max_steps=40"],
        steps=40,
        device=CPU,
        torch="2.14.1",
        git=COMMIT,
        peaks_mib={"fp32": [20.0, 16.0], "fp16": [24.0, 30.0]},
    )
    write_record(folder / "memory.json", record.model_copy(update=changes))


def test_the_peak_and_ratio_of_an_emulated_precision_are_those_of_the_short_runs(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_short_runs(tmp_path)
    rows = rows_of(compared(tmp_path, publish=True))
    assert (rows["fp16"].peak_memory_mib, rows["fp16"].peak_ratio) == (30.0, 30.0 / 20.0)
    assert rows["fp16"].status == "finished"
    assert (rows["fp32"].peak_memory_mib, rows["bf16"].peak_memory_mib, rows["bf16"].peak_ratio) == (61.0, 61.0, 1.0)


def test_the_page_says_that_a_peak_is_from_short_runs(tmp_path: Path) -> None:
    write_three(tmp_path)
    about = "fp16's peak memory is from short runs: 40 steps on Some CPU, 2 threads, the largest of 2."
    assert not any("short runs" in note for note in table.notes(compared(tmp_path)))
    write_short_runs(tmp_path)
    assert f"{about} Its ratio is to FP32's there, 20 MiB." in table.notes(compared(tmp_path))


def test_without_short_runs_an_emulated_peak_is_that_of_its_runs(tmp_path: Path) -> None:
    write_three(tmp_path)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row.peak_memory_mib, row.peak_ratio) == (61.0, 1.0)
    write_short_runs(tmp_path, peaks_mib={"fp32": [20.0], "fp8": [24.0]})
    assert rows_of(compared(tmp_path))["fp16"].peak_memory_mib == 61.0


def test_runs_that_record_no_peak_show_none(tmp_path: Path) -> None:
    write_three(tmp_path)
    for file in tmp_path.glob("fp16-s*/summary.json"):
        summary = read_record(Summary, file)
        del summary.final["memory/peak_rss_mib"]
        write_record(file, summary)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row.peak_memory_mib, row.peak_ratio, row.status) == (None, None, "finished")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config_sha256": "d" * 64}, "config_sha256 of memory.json is not that of the runs"),
        ({"git": Source(commit="a", dirty=True)}, "the source of memory.json had changes"),
        ({"peaks_mib": {"fp32": [1.0], "fp16": [1.0, 2.0]}}, "equally many"),
        ({"peaks_mib": {"fp32": [1.0], "fp16": [0.0]}}, "greater than 0"),
    ],
)
def test_short_runs_that_are_not_of_these_runs_are_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    write_three(tmp_path)
    write_short_runs(tmp_path, **changes)
    rows = rows_of(compared(tmp_path, publish=True))
    assert "its peak memory is left out: " in str(rows["fp16"].reason)
    assert reason in str(rows["fp16"].reason)
    assert rows["fp32"].reason is rows["bf16"].reason is None

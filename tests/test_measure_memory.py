"""Which experiments get a memory.json, and when one is measured again."""

from pathlib import Path

import pytest

from reports.records.files import read_record, write_record
from reports.records.short_runs import ShortRuns
from reports.records.summary import Summary
from scripts import measure_memory
from tests.reports.made_runs import COMMIT, CPU, write_run
from train.engine.errors import Refused


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The precisions of the short runs, none of which is trained."""
    precisions: list[str] = []

    def short_run(config: Path, precision: str) -> ShortRuns:
        precisions.append(precision)
        return record(precision, float(len(precisions)))

    monkeypatch.setattr(measure_memory, "short_run", short_run)
    return precisions


def record(precision: str, peak: float, device: str = CPU) -> ShortRuns:
    return ShortRuns(
        config_sha256="c" * 64,
        overrides=measure_memory.OVERRIDES,
        steps=measure_memory.STEPS,
        device=device,
        torch="2.14.1",
        git=COMMIT,
        peaks_mib={precision: [peak]},
    )


def forget_peak(run: Path) -> None:
    summary = read_record(Summary, run / "summary.json")
    del summary.final["memory/peak_rss_mib"]
    write_record(run / "summary.json", summary)


def test_experiments_whose_emulated_runs_record_no_peak_are_measured(tmp_path: Path) -> None:
    for name in ("has_peaks", "lacks_fp16", "lacks_bf16"):
        for precision in ("fp32", "bf16", "fp16"):
            write_run(tmp_path / name, precision)
    forget_peak(tmp_path / "lacks_fp16" / "fp16-s0")
    forget_peak(tmp_path / "lacks_bf16" / "bf16-s0")
    assert measure_memory.without_peak(tmp_path) == [tmp_path / "lacks_fp16"]


def test_every_run_is_of_both_precisions_and_recorded_ones_are_not_repeated(
    tmp_path: Path, measured: list[str]
) -> None:
    for precision in ("fp32", "bf16", "fp16"):
        write_run(tmp_path, precision)
    assert measure_memory.measure_folder(tmp_path, 1) == 0
    assert measured == ["fp32", "fp16"]
    assert measure_memory.measure_folder(tmp_path, 2) == 0
    assert measure_memory.measure_folder(tmp_path, 2) == 0
    assert measured == ["fp32", "fp16"] * 2
    written = read_record(ShortRuns, tmp_path / "memory.json")
    assert written.peaks_mib == {"fp32": [1.0, 3.0], "fp16": [2.0, 4.0]}
    assert (written.peak("fp16"), written.ratio("fp16"), written.peak("bf16")) == (4.0, 4 / 3, None)


def test_a_record_of_another_method_is_measured_again(tmp_path: Path, measured: list[str]) -> None:
    for precision in ("fp32", "fp16"):
        write_run(tmp_path, precision)
    old = record("fp32", 9.0).model_copy(update={"overrides": ["max_steps=2"]})
    write_record(tmp_path / "memory.json", old)
    assert measure_memory.measure_folder(tmp_path, 1) == 0
    assert read_record(ShortRuns, tmp_path / "memory.json").peaks_mib == {"fp32": [1.0], "fp16": [2.0]}


def test_runs_of_two_machines_do_not_stand_together() -> None:
    assert measure_memory.together(record("fp32", 1.0), record("fp32", 2.0, device="another")).peaks_mib == {
        "fp32": [2.0]
    }


def test_an_experiment_that_is_not_emulated_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "bf16")
    with pytest.raises(Refused, match="no run whose arithmetic is emulated"):
        measure_memory.measure_folder(tmp_path, 1)


@pytest.mark.slow
def test_a_short_run_has_the_peak_of_a_training_of_the_recorded_experiment() -> None:
    config = measure_memory.RESULTS / "lenet5_digits" / "fp32-s0" / "config.yaml"
    measured = measure_memory.short_run(config, "fp16")
    assert set(measured.peaks_mib) == {"fp16"}
    assert 1 < measured.peaks_mib["fp16"][0] < 100


def test_a_short_run_that_fails_says_why(tmp_path: Path) -> None:
    run = write_run(tmp_path, "fp32")
    with pytest.raises(ValueError, match=r"No module named train\.tinynet"):
        measure_memory.short_run(run / "config.yaml", "fp16")

"""The table's texts: what a reader sees in the terminal, in Markdown and in CSV."""

import csv
import io
from pathlib import Path

import pytest

from reports.pages import table
from reports.pages.text_table import number
from reports.records.benchmark import Benchmark
from reports.records.comparison import Comparison, Interval, Speedup
from reports.records.files import read_record, write_record
from reports.records.layout import COLUMNS
from reports.records.metric import Metric
from reports.records.summary import to_hex
from tests.reports.made_runs import EMULATED, compared, rows_of, write_benchmark, write_run, write_starts, write_three

BALANCED = Metric(name="balanced_accuracy_pct", unit="%", range=(0, 100), higher_is_better=True, decimals=1)


def texts(comparison: Comparison, precision: str) -> dict[str, str]:
    made = table.results(comparison)
    return dict(zip(made.titles, made.rows[comparison.precisions.index(precision)], strict=True))


def read_csv(comparison: Comparison) -> dict[str, dict[str, str]]:
    return {row["precision"]: row for row in csv.DictReader(io.StringIO(table.as_csv(comparison)))}


def test_csv_has_the_columns_of_the_contract_and_full_digits(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert table.as_csv(comparison).splitlines()[0] == ",".join(COLUMNS)
    for precision, row in read_csv(comparison).items():
        known = rows_of(comparison)[precision]
        for column in ("mean", "sd", "samples_per_sec", "speedup", "saved_ratio", "peak_memory_mib"):
            value = known.speedup.value if column == "speedup" and known.speedup else getattr(known, column)
            assert (float(row[column]) if row[column] else None) == value


def test_ratios_can_be_recomputed_from_the_csv(tmp_path: Path) -> None:
    write_three(tmp_path)
    rows = read_csv(compared(tmp_path))
    for row in rows.values():
        saved = float(row["saved_for_backward_mib"]) / float(rows["fp32"]["saved_for_backward_mib"])
        assert float(row["saved_ratio"]) == pytest.approx(saved)
    for name in ("bf16", "fp16"):
        ratio = float(rows[name]["samples_per_sec"]) / float(rows["fp32"]["samples_per_sec"])
        assert float(rows[name]["speedup"]) == pytest.approx(ratio)
        assert float(rows[name]["difference"]) == pytest.approx(float(rows[name]["mean"]) - float(rows["fp32"]["mean"]))


def test_three_seeds_show_mean_spread_and_number(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert texts(comparison, "fp32")["accuracy"] == "91.00% ± 1.00 (n=3)"
    assert texts(comparison, "bf16")["accuracy"] == "91.00% ± 0.50 (n=3)"
    assert "single run" not in table.results(comparison).markdown()


def test_one_seed_is_called_a_single_run(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1)
    comparison = compared(tmp_path, seeds=1)
    assert texts(comparison, "bf16")["accuracy"] == "90.50% (single run)"
    assert any("single run" in note for note in table.notes(comparison))


def test_the_speed_of_emulated_arithmetic_is_called_that(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert texts(comparison, "fp16")["speed-up [95%]"] == "0.80x [0.80, 0.80] (emulated)"
    assert texts(comparison, "bf16")["speed-up [95%]"] == "2.00x [2.00, 2.00]"
    rows_of(comparison)["fp16"].speedup = None
    assert texts(comparison, "fp16")["speed-up [95%]"] == "n/a"


def test_the_peak_memory_of_emulated_arithmetic_is_called_that(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert texts(comparison, "fp16")["peak memory"] == "61 MiB (1.00x) (emulated)"
    assert texts(comparison, "bf16")["peak memory"] == "61 MiB (1.00x)"
    assert "61 MiB (1.00x) (emulated)" in table.results(comparison).latex()
    rows_of(comparison)["fp16"].peak_memory_mib = rows_of(comparison)["fp16"].peak_ratio = None
    assert texts(comparison, "fp16")["peak memory"] == "n/a"


def test_a_cpu_says_which_operations_its_autocast_leaves_in_16_bits(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert table.AUTOCAST_ON_CPU in table.notes(comparison)
    assert not any("those of fp16" in note for note in table.notes(comparison))
    environment = comparison.environment
    assert environment
    environment.device.type = "cuda"
    assert table.AUTOCAST_ON_CPU not in table.notes(comparison)
    environment.device.type = "cpu"
    for run in comparison.runs:
        run.summary.precision.effective.autocast_policy = "cuda"
    assert table.AUTOCAST_ON_CPU not in table.notes(comparison)


def test_slower_is_called_slower(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    found = texts(comparison, "bf16")
    assert found["speed-up [95%]"] == "0.40x [0.40, 0.40]"
    assert found["saved for backward"] == "50.0 MiB (1.25x)"
    assert found["peak memory"] == "60 MiB (1.00x)"
    assert texts(comparison, "fp32")["saved for backward"] == "40.0 MiB"


@pytest.mark.parametrize(
    ("fp32", "bf16", "reason"),
    [
        (
            {"aten::conv": 5.0, "aten::add": 1.0},
            {"aten::conv": 25.5, "aten::add": 2.0},
            "conv: 25.5 ms of a step, 5 ms",
        ),
        (
            {"aten::add": 1.0},
            {"aten::copy_": 3.0, "aten::add": 2.0},
            "copy_: 3 ms of a step, too little to be listed in FP32",
        ),
    ],
)
def test_a_slower_precision_says_where_it_loses_most(
    tmp_path: Path, fp32: dict[str, float], bf16: dict[str, float], reason: str
) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    write_benchmark(tmp_path, fp32=[1.0] * 3, bf16=[2.0] * 3)
    record = read_record(Benchmark, tmp_path / "benchmark.json")
    record.starts[0].operators_ms = {"fp32": fp32, "bf16": bf16}
    write_record(tmp_path / "benchmark.json", record)
    (note,) = [note for note in table.notes(compared(tmp_path, "fp32,bf16", seeds=1)) if "slower" in note]
    assert f"bf16 is slower than FP32 here; the operator that grew most is {reason}" in note


def test_a_missing_partner_is_not_a_number(tmp_path: Path) -> None:
    write_run(tmp_path, "bf16")
    write_benchmark(tmp_path, bf16=[1.0, 1.0])
    found = texts(compared(tmp_path, "fp32,bf16", seeds=1), "bf16")
    assert (found["difference vs FP32 [95%]"], found["speed-up [95%]"]) == ("n/a", "n/a")
    assert found["saved for backward"] == "20.0 MiB"
    assert read_csv(compared(tmp_path, "fp32,bf16", seeds=1))["bf16"]["speedup"] == ""


def test_the_hardware_says_what_the_cpu_has_for_16_bit_arithmetic(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert table.hardware(compared(tmp_path)) == "Some CPU, 2 threads (CPU; 16-bit instruction sets: avx512_bf16)"


def test_fp16_that_is_computed_in_fp32_is_said_to_be(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert any(
        EMULATED in note and "those of this emulation, not of fp16 hardware" in note
        for note in table.notes(compared(tmp_path))
    )


def test_a_run_that_did_not_finish_shows_its_reason(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="step 3: a | b")
    comparison = compared(tmp_path)
    assert "(n=2) (diverged: seed 1: step 3: a | b)" in texts(comparison, "bf16")["accuracy"]
    assert "step 3: a \\| b" in table.results(comparison).markdown()


def test_a_reason_of_several_lines_leaves_the_markdown_table_whole(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="failed", reason="RuntimeError: first\n\n  second\nthird")
    made = table.results(compared(tmp_path))
    lines = made.markdown().splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {line.replace("\\|", "").count("|") for line in rows} == {len(made.titles) + 1}
    assert "RuntimeError: first second third" in rows[3]


def test_what_was_measured_of_a_precision_is_shown_though_its_runs_failed(tmp_path: Path) -> None:
    write_three(tmp_path)
    for seed in range(3):
        write_run(tmp_path, "bf16", seed, status="failed", reason="the reason")
    comparison = compared(tmp_path)
    found = texts(comparison, "bf16")
    assert found["accuracy"] == "failed: seed 0: the reason; seed 1: the reason; seed 2: the reason"
    assert found["speed-up [95%]"].startswith("2.00x")
    assert found["samples/s"] == "160"
    assert found["difference vs FP32 [95%]"] == found["saved for backward"] == found["skipped steps"] == "n/a"


def test_a_smoke_comparison_is_said_to_be_one(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1, smoke=True)
    assert "smoke" in table.notes(compared(tmp_path, seeds=1))[0]


def test_the_metric_says_how_its_figures_read(tmp_path: Path) -> None:
    for seed in range(3):
        for precision, value in (("fp32", 90.0 + seed), ("bf16", 91.0 + seed)):
            final = {"eval/balanced_accuracy_pct": value, "eval/loss": 0.25}
            metrics = [BALANCED, Metric(name="loss", unit="nats", range=(0, None), higher_is_better=False)]
            best = {BALANCED.key: value}
            write_run(tmp_path, precision, seed, final=final, metric=BALANCED.key, metrics=metrics, best=best)
    write_benchmark(tmp_path, fp32=[1.0, 1.0], bf16=[1.0, 1.0])
    comparison = compared(tmp_path, "fp32,bf16")
    found = texts(comparison, "bf16")
    assert found["balanced accuracy pct"] == "92.0% ± 1.0 (n=3)"
    assert found["difference vs FP32 [95%]"].startswith("+1.0 points [")
    assert found["loss (difference)"] == "0.2500 nats ± 0.0000 (+0.0000)"
    row = read_csv(comparison)["bf16"]
    assert (row["metric"], float(row["mean"]), float(row["margin"])) == ("eval/balanced_accuracy_pct", 92.0, 0.5)
    assert [float(row[column]) for column in ("loss", "loss_sd", "loss_difference")] == [0.25, 0.0, 0.0]
    (rule,) = [note for note in table.notes(comparison) if note.startswith("Verdict")]
    assert "within 0.5 points either way" in rule


def test_a_loss_has_its_unit_and_a_margin_in_it(tmp_path: Path) -> None:
    for seed in range(3):
        for precision in ("fp32", "bf16"):
            final = {"eval/loss": 2.0 + seed / 1000}
            best = {"eval/loss": 2.0}
            write_run(tmp_path, precision, seed, final=final, metric="eval/loss", higher_is_better=False, best=best)
    write_benchmark(tmp_path, fp32=[1.0, 1.0], bf16=[1.0, 1.0])
    comparison = compared(tmp_path, "fp32,bf16")
    assert texts(comparison, "bf16")["loss"] == "2.0010 nats ± 0.0010 (n=3)"
    assert texts(comparison, "bf16")["accuracy (difference)"] == "90.00% ± 0.00 (+0.00)"
    assert any("within 0.5% of FP32's loss either way" in note for note in table.notes(comparison))


def test_flat_rows_have_equal_columns_and_the_union_over_comparisons_in_csv(tmp_path: Path) -> None:
    write_three(tmp_path / "one")
    write_three(tmp_path / "two")
    one, two = compared(tmp_path / "one"), compared(tmp_path / "two")
    for row in two.rows:
        for other in row.others:
            other.metric = Metric(name="perplexity", higher_is_better=False)
    columns = [list(row) for row in table.flat_rows(one)]
    assert columns[0][: len(COLUMNS)] == list(COLUMNS)
    assert columns.count(columns[0]) == 3
    header = table.as_csv(one, two).splitlines()[0]
    assert header == ",".join(list(dict.fromkeys([*columns[0], *table.flat_rows(two)[0]])))


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.9612, 0.99921), "0.98x [0.96, 0.999]"),
        ((0.9978, 1.0001), "0.98x [1.00, 1.00]"),
        ((1.00004, 1.1), "0.98x [1.00004, 1.10]"),
    ],
)
def test_an_interval_that_excludes_one_does_not_read_as_if_it_held_it(ends: tuple[float, float], text: str) -> None:
    assert table.estimate(Interval(value=0.98, low=ends[0], high=ends[1]), 2, "x", reference=1) == text


def test_what_is_not_measured_is_no_number() -> None:
    assert number(None) == number(None, 2, "MiB") == "n/a"
    assert number(1234.5, 1, "MiB") == "1,234.5 MiB"
    difference = Interval(value=0.005, low=-0.001, high=0.011)
    assert table.estimate(difference, 2, "points", reference=0, scale=100) == "+0.50 points [-0.10, 1.10]"


def test_wider_intervals_and_fewer_pairs_are_said(tmp_path: Path) -> None:
    write_three(tmp_path)
    row = rows_of(compared(tmp_path))["bf16"]
    row.looks, row.pairs = 3, 2
    assert table.difference(row).endswith("] at 98.3% (n=2)")
    row.verdict = None
    assert [table.verdict(row.model_copy(update={"pairs": pairs})) for pairs in (1, 0)] == ["single pair", "no pair"]
    row.speedup = Speedup(value=0.5, interval=Interval(value=0.5, low=0.4, high=0.6), starts=3)
    assert table.speedup(row) == "0.50x [0.40, 0.60]"


def test_one_process_start_is_a_speedup_without_an_interval_and_said_to_be_once(tmp_path: Path) -> None:
    write_three(tmp_path)
    note = "Speed was measured in one process start alone: no interval, since another start may differ."
    assert note not in table.notes(compared(tmp_path))
    write_starts(tmp_path, {"fp32": [1.0, 1.0], "bf16": [2.0, 2.0], "fp16": [1.5, 1.5]})
    comparison = compared(tmp_path)
    assert texts(comparison, "bf16")["speed-up [95%]"] == "0.50x"
    assert texts(comparison, "fp16")["speed-up [95%]"] == "0.67x (emulated)"
    assert table.notes(comparison).count(note) == 1
    assert not any("slower" in text for text in table.notes(comparison)), "that takes an interval"
    row = read_csv(comparison)["bf16"]
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == ("0.5", "", "")


def test_a_speed_measured_with_another_version_of_pytorch_is_said_to_be(tmp_path: Path) -> None:
    write_three(tmp_path)
    record = read_record(Benchmark, tmp_path / "benchmark.json")
    for version, said in (("2.14.1+cu130", False), ("2.13.0", True)):
        write_record(tmp_path / "benchmark.json", record.model_copy(update={"torch": version}))
        note = "Runs and speed are of more than one version of PyTorch: 2.14.1, 2.13.0."
        assert (note in table.notes(compared(tmp_path))) is said


def test_runs_of_several_commits_are_said_to_be(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert not any("commit" in note for note in table.notes(compared(tmp_path)))
    write_run(tmp_path, "bf16", 1, environment={"git": {"commit": "fedcba9876543210", "dirty": False}})
    assert "Runs and speed are of more than one commit: 01234567, fedcba98." in table.notes(compared(tmp_path))


def test_the_verdict_names_its_samples_and_new_ones_stand_beside_it(tmp_path: Path) -> None:
    for precision, wrong in (("fp32", 100), ("bf16", 98)):
        for seed in range(3):
            right = to_hex([index >= wrong + seed for index in range(1000)])
            write_run(tmp_path, precision, seed, (1000 - wrong - seed) / 1000, right=right)
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[0.5, 0.5, 0.5])
    notes = table.notes(compared(tmp_path, "fp32,bf16"))
    rule = "Verdict on these 1,000 samples: EQUIVALENT when the 90% interval lies within 0.5 points either way "
    assert any(note.startswith(rule) for note in notes)
    # Four samples differ in some seeds, with squares of 10 / 9, and four are added: 1.96 * sqrt(5.11) / 1004 = 0.0044.
    beside = "bf16 on new samples, with seeds and samples both drawn: +0.20 points [-0.24, 0.64]"
    assert f"{beside}, not within the margin." in notes

"""The table's texts: what a reader sees in the terminal, in Markdown and in CSV."""

import csv
import io

import pytest

from reports.analysis.comparison import COLUMNS
from reports.pages import table
from reports.records.files import read_json, to_line, write_json
from tests.reports.made_runs import COMMAND, EMULATED, compared, rows_of, write_benchmark, write_run, write_three


def texts(comparison, precision):
    return dict(zip(table.header(comparison), table.cells(rows_of(comparison)[precision]), strict=True))


def read_csv(comparison):
    return {row["precision"]: row for row in csv.DictReader(io.StringIO(table.as_csv(comparison)))}


def test_csv_has_the_columns_of_the_contract_and_full_digits(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert table.as_csv(comparison).splitlines()[0] == ",".join(COLUMNS)
    for precision, row in read_csv(comparison).items():
        known = rows_of(comparison)[precision]
        for column in ("mean", "sd", "samples_per_sec", "speedup", "saved_ratio", "peak_memory_mib"):
            assert (float(row[column]) if row[column] else None) == known[column]


def test_ratios_can_be_recomputed_from_the_csv(tmp_path):
    write_three(tmp_path)
    rows = read_csv(compared(tmp_path))
    for row in rows.values():
        saved = float(row["saved_for_backward_mib"]) / float(rows["fp32"]["saved_for_backward_mib"])
        assert float(row["saved_ratio"]) == pytest.approx(saved)
    for name in ("bf16", "fp16"):
        ratio = float(rows[name]["samples_per_sec"]) / float(rows["fp32"]["samples_per_sec"])
        assert float(rows[name]["speedup"]) == pytest.approx(ratio)
        assert float(rows[name]["difference"]) == pytest.approx(float(rows[name]["mean"]) - float(rows["fp32"]["mean"]))


def test_three_seeds_show_mean_spread_and_number(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert texts(comparison, "fp32")["accuracy"] == "91.00% ± 1.00 (n=3)"
    assert texts(comparison, "bf16")["accuracy"] == "91.00% ± 0.50 (n=3)"
    assert "single run" not in table.markdown(comparison)


def test_one_seed_is_called_a_single_run(tmp_path):
    write_three(tmp_path, seeds=1)
    comparison = compared(tmp_path, seeds=1)
    assert texts(comparison, "bf16")["accuracy"] == "90.50% (single run)"
    assert any("single run" in note for note in table.notes(comparison))


def test_the_speed_of_emulated_arithmetic_is_called_that(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert texts(comparison, "fp16")["speed-up [95%]"] == "0.80x [0.80, 0.80] (emulated)"
    assert texts(comparison, "bf16")["speed-up [95%]"] == "2.00x [2.00, 2.00]"
    rows_of(comparison)["fp16"]["speedup"] = None
    assert texts(comparison, "fp16")["speed-up [95%]"] == "n/a"


def test_slower_is_called_slower(tmp_path):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    found = texts(comparison, "bf16")
    assert found["speed-up [95%]"] == "0.40x [0.40, 0.40]"
    assert found["saved for backward"] == "50.0 MiB (1.250x)"
    assert found["peak memory"] == "60 MiB (1.00x)"
    assert texts(comparison, "fp32")["saved for backward"] == "40.0 MiB"
    assert "bf16 is slower than FP32 here: 0.40x." in table.notes(comparison)


@pytest.mark.parametrize(
    ("fp32", "bf16", "reason"),
    [
        (
            {"aten::conv": 5.0, "aten::add": 1.0},
            {"aten::conv": 25.5, "aten::add": 2.0},
            "conv: 25.5 ms of a step, 5 ms",
        ),
        ({"aten::add": 1.0}, {"aten::copy_": 3.0, "aten::add": 2.0}, "copy_: 3 ms of a step, too little in FP32"),
    ],
)
def test_a_slower_precision_says_where_it_loses_most(tmp_path, fp32, bf16, reason):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    write_benchmark(tmp_path, fp32=[1.0] * 3, bf16=[2.0] * 3)
    record = read_json(tmp_path / "benchmark.json")
    write_json(tmp_path / "benchmark.json", {**record, "operators_ms": {"fp32": fp32, "bf16": bf16}})
    (note,) = [note for note in table.notes(compared(tmp_path, "fp32,bf16", seeds=1)) if "slower" in note]
    assert f"bf16 is slower than FP32 here: 0.50x; the operator that grew most is {reason}" in note


def test_a_missing_partner_is_not_a_number(tmp_path):
    write_run(tmp_path, "bf16")
    write_benchmark(tmp_path, bf16=[1.0, 1.0])
    found = texts(compared(tmp_path, "fp32,bf16", seeds=1), "bf16")
    assert (found["difference to FP32 [95%]"], found["speed-up [95%]"]) == ("n/a", "n/a")
    assert found["saved for backward"] == "20.0 MiB"
    assert read_csv(compared(tmp_path, "fp32,bf16", seeds=1))["bf16"]["speedup"] == ""


def test_the_header_says_what_the_cpu_has_for_16_bit_arithmetic(tmp_path):
    write_three(tmp_path / "tiny")
    first = table.markdown(compared(tmp_path / "tiny")).splitlines()[0]
    assert first == "**tiny** on Some CPU, 2 threads (CPU; 16-bit instruction sets: avx512_bf16)"
    assert f"`{COMMAND}`" in table.markdown(compared(tmp_path / "tiny"))


def test_fp16_that_is_computed_in_fp32_is_said_to_be(tmp_path):
    write_three(tmp_path)
    assert any(
        EMULATED in note and "not of hardware with fp16 units" in note for note in table.notes(compared(tmp_path))
    )


def test_a_run_that_did_not_finish_shows_its_reason(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="step 3: a | b")
    comparison = compared(tmp_path)
    assert "(n=2) (diverged: seed 1: step 3: a | b)" in texts(comparison, "bf16")["accuracy"]
    assert "step 3: a \\| b" in table.markdown(comparison)


def test_a_reason_of_several_lines_leaves_the_markdown_table_whole(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="failed", reason="RuntimeError: first\n\n  second\nthird")
    lines = table.markdown(compared(tmp_path)).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {line.replace("\\|", "").count("|") for line in rows} == {len(table.header(compared(tmp_path))) + 1}
    assert "RuntimeError: first second third" in rows[3]


def test_what_was_measured_of_a_precision_is_shown_though_its_runs_failed(tmp_path):
    write_three(tmp_path)
    for seed in range(3):
        write_run(tmp_path, "bf16", seed, status="failed", reason="the reason")
    comparison = compared(tmp_path)
    found = texts(comparison, "bf16")
    assert found["accuracy"] == "failed: seed 0: the reason; seed 1: the reason; seed 2: the reason"
    assert found["speed-up [95%]"].startswith("2.00x")
    assert found["samples/s"] == "160"
    assert found["difference to FP32 [95%]"] == found["saved for backward"] == found["skipped steps"] == "n/a"


def test_a_smoke_comparison_is_said_to_be_one(tmp_path):
    write_three(tmp_path, seeds=1, smoke=True)
    assert "smoke" in table.notes(compared(tmp_path, seeds=1))[0]


def test_another_metric_than_accuracy_is_a_plain_number(tmp_path):
    final = {"eval/perplexity": 12.5, "memory/saved_for_backward_mib": 40.0}
    for precision in ("fp32", "bf16"):
        best = {"eval/perplexity": 12.5}
        folder = write_run(tmp_path, precision, metric="eval/perplexity", final=final, best=best)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(to_line({"train/step": 4, "eval/perplexity": 12.5}))
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    assert texts(comparison, "bf16")["perplexity"].startswith("12.5000 (single run)")
    assert texts(comparison, "bf16")["difference to FP32 [95%]"] == "+0.0000"


def test_runs_of_several_commits_are_said_to_be(tmp_path):
    write_three(tmp_path)
    assert not any("commit" in note for note in table.notes(compared(tmp_path)))
    write_run(tmp_path, "bf16", 1, environment={"git": {"commit": "fedcba9876543210", "dirty": False}})
    assert "Its runs are of more than one commit: 01234567, fedcba98." in table.notes(compared(tmp_path))

"""From run folders to rows: which figures come out, and which runs stay out of them."""

import math
import shutil
import statistics

import numpy as np
import pytest
from scipy import stats

from reports.analysis.comparison import COLUMNS, compare, comparisons_in, succeeded
from reports.analysis.statistics import mean, speedup, standard_deviation
from reports.pages import table
from reports.records.files import read_json, read_lines, to_line, write_json
from tests.reports.made_runs import compared, rows_of, write_benchmark, write_run, write_three


def test_means_over_three_seeds(tmp_path):
    write_three(tmp_path)
    rows = rows_of(compared(tmp_path))
    assert [rows[name]["seeds"] for name in ("fp32", "bf16")] == [3, 3]
    assert rows["fp32"]["mean"] == pytest.approx(0.91)
    assert rows["bf16"]["mean"] == pytest.approx(0.91)
    assert rows["fp32"]["sd"] == pytest.approx(statistics.stdev([0.90, 0.91, 0.92]))
    assert rows["bf16"]["difference"] == pytest.approx(0, abs=1e-12)
    assert rows["fp32"]["difference"] is None


def test_every_figure_is_that_of_the_records(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert succeeded(comparison)
    row = rows_of(comparison)["bf16"]
    assert set(COLUMNS) <= set(row)
    assert row["samples_per_sec"] == pytest.approx(8 * 10 / 0.5)
    assert row["speedup"] == pytest.approx(2.0)
    assert row["saved_for_backward_mib"] == 20.0
    assert row["saved_ratio"] == 0.5
    assert row["peak_memory_mib"] == 62.0
    assert rows_of(comparison)["fp16"]["skipped_steps"] == 3


def test_slower_and_larger_are_ratios_like_others(tmp_path):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    rows = rows_of(compared(tmp_path, "fp32,bf16", seeds=1))
    assert rows["fp32"]["samples_per_sec"] == pytest.approx(80.0)
    assert rows["bf16"]["samples_per_sec"] == pytest.approx(32.0)
    assert rows["bf16"]["speedup"] == pytest.approx(0.4)
    assert rows["bf16"]["saved_ratio"] == 1.25


@pytest.mark.parametrize("missing", ["run", "blocks", "benchmark"])
def test_without_fp32_there_is_no_ratio(tmp_path, missing):
    write_run(tmp_path, "bf16")
    if missing != "run":
        write_run(tmp_path, "fp32")
    if missing != "benchmark":
        write_benchmark(tmp_path, bf16=[1.0, 1.0], **({} if missing == "blocks" else {"fp32": [1.0, 1.0]}))
    row = rows_of(compared(tmp_path, "fp32,bf16", seeds=1))["bf16"]
    if missing == "run":
        assert row["difference"] is None
        assert row["saved_ratio"] is None
    else:
        assert row["speedup"] is None
        assert row["speedup_low"] is None


@pytest.mark.parametrize("status", ["failed", "diverged", "interrupted"])
def test_a_run_that_did_not_finish_is_named_and_not_averaged(tmp_path, status):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, accuracy=0.1, status=status, reason="the reason")
    comparison = compared(tmp_path)
    row = rows_of(comparison)["bf16"]
    assert not succeeded(comparison)
    assert (row["status"], row["seeds"]) == (status, 2)
    assert row["reason"] == "seed 1: the reason"
    assert row["mean"] == pytest.approx((0.905 + 0.91) / 2)
    assert row["difference"] == pytest.approx((0.905 + 0.91) / 2 - (0.90 + 0.92) / 2)


def test_a_precision_of_which_nothing_is_there_is_a_row(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path, "fp32,bf16,fp16,fp8")
    row = rows_of(comparison)["fp8"]
    assert len(comparison["rows"]) == 4
    assert (row["status"], row["seeds"], row["mean"]) == ("missing", 0, None)
    assert "no summary.json" in row["reason"]
    assert not succeeded(comparison)


def test_a_run_without_its_metric_has_failed(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "fp16", 2, accuracy=None)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row["status"], row["seeds"], row["reason"]) == ("failed", 2, "seed 2: no eval/accuracy in its record")


@pytest.mark.parametrize("key", ["initial_weights_sha256", "data_order_sha256", "config_sha256", "device"])
def test_runs_that_are_no_pair_are_flagged_and_not_averaged(tmp_path, key):
    write_three(tmp_path)
    environment = {"device": {"name": "another"}} if key == "device" else None
    write_run(tmp_path, "bf16", 1, accuracy=0.1, environment=environment, **{key: "another"})
    rows = rows_of(compared(tmp_path))
    assert {row["seeds"] for row in rows.values()} == {2}
    for row in rows.values():
        assert row["status"] == "failed"
        assert f"seed 1: not paired: {key} differs" in row["reason"]


def test_seeds_of_different_configurations_are_not_averaged(tmp_path):
    write_three(tmp_path)
    for precision in ("fp32", "bf16", "fp16"):
        write_run(tmp_path, precision, 2, accuracy=0.1, config_sha256="another")
    comparison = compared(tmp_path)
    assert not succeeded(comparison)
    assert {row["mean"] for row in comparison["rows"]} == {None}
    assert "config_sha256 differs" in comparison["rows"][0]["reason"]


def test_a_run_extended_to_other_epochs_is_not_averaged(tmp_path):
    write_three(tmp_path)
    attempts = [{"started": "a", "changed": {}}, {"started": "b", "changed": {"epochs": [2, 4]}}]
    write_run(tmp_path, "fp32", 0, accuracy=0.99, environment={"attempts": attempts})
    row = rows_of(compared(tmp_path))["fp32"]
    assert (row["status"], row["seeds"]) == ("failed", 2)
    assert "different length" in row["reason"]
    assert row["mean"] == pytest.approx(0.915)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"attempts": 5}', "attempts: input should be a valid list, not 5"),
        ('{"attempts": [{"changed": [2, 4]}]}', "attempts.0.changed: input should be a valid object"),
        ('{"cpu": {"instruction_sets": [null]}}', "cpu.instruction_sets.0: input should be a valid string, not null"),
        ('{"device": "Some CPU"}', 'device: input should be a valid object, not "Some CPU"'),
        ("[1]", "input should be a valid object"),
        ("{", "is not readable as JSON"),
    ],
)
def test_a_run_with_an_environment_of_another_shape_is_named_and_not_averaged(tmp_path, content, fault):
    write_three(tmp_path)
    file = tmp_path / "fp32-s0" / "environment.json"
    file.write_text(content)
    comparison = compared(tmp_path)
    row = rows_of(comparison)["fp32"]
    assert (row["status"], row["seeds"]) == ("failed", 2)
    assert row["reason"].startswith(f"seed 0: {file} is not ")
    assert fault in row["reason"]
    assert row["mean"] == pytest.approx(0.915)
    assert comparison["environment"]["device"]["name"] == "Some CPU, 2 threads"  # of another run


def test_a_smoke_run_marks_the_comparison(tmp_path):
    write_three(tmp_path, seeds=1, smoke=True)
    assert compared(tmp_path, seeds=1)["smoke"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_named_and_never_averaged_in(tmp_path, value):
    write_three(tmp_path)
    write_run(tmp_path, "fp16", 0, accuracy=value)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row["seeds"], row["mean"]) == (2, 0.90)
    assert row["reason"] == f"seed 0: its eval/accuracy is {value}"


def test_the_verdict_is_that_of_the_paired_differences(tmp_path):
    for seed, (fp32, bf16, fp16) in enumerate([(0.90, 0.901, 0.87), (0.91, 0.909, 0.88), (0.92, 0.921, 0.889)]):
        for precision, accuracy in (("fp32", fp32), ("bf16", bf16), ("fp16", fp16)):
            write_run(tmp_path, precision, seed, accuracy)
    rows = rows_of(compared(tmp_path))
    assert (rows["fp32"]["verdict"], rows["bf16"]["verdict"], rows["fp16"]["verdict"]) == (None, "EQUIVALENT", "WORSE")
    expected = stats.ttest_1samp([-0.03, -0.03, -0.031], 0.0).confidence_interval(0.95)
    assert (rows["fp16"]["difference_low"], rows["fp16"]["difference_high"]) == pytest.approx(
        (expected.low, expected.high)
    )


def test_the_margin_of_a_loss_is_a_share_of_that_of_fp32(tmp_path):
    for seed in range(3):
        for precision, loss in (("fp32", 2.0), ("bf16", 2.0 + 0.001 * seed)):
            final = {"eval/loss": loss}
            write_run(tmp_path, precision, seed, metric="eval/loss", final=final, higher_is_better=False)
    row = rows_of(compared(tmp_path, "fp32,bf16"))["bf16"]
    assert row["margin"] == pytest.approx(0.005 * 2.0)
    assert row["verdict"] == "EQUIVALENT"


def test_one_seed_is_a_single_run(tmp_path):
    write_three(tmp_path, seeds=1)
    assert rows_of(compared(tmp_path, seeds=1))["bf16"]["verdict"] is None
    assert table.verdict(rows_of(compared(tmp_path, seeds=1))["bf16"]) == "single run"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"smoke": True}, "a smoke run"),
        ({"environment": {"git": {"commit": "1", "dirty": True}}}, "changes that are in no commit"),
        ({"environment": {"git": {"commit": None, "dirty": None}}}, "its commit is not known"),
    ],
)
def test_what_must_not_be_published_is_left_out_with_its_reason(tmp_path, change, reason):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, **change)
    row = rows_of(compare(tmp_path, ["fp32", "bf16"], range(3), "python", 0.005, publish=True))["bf16"]
    assert row["seeds"] == 2
    assert reason in row["reason"]


def test_a_run_with_torn_lines_is_left_out(tmp_path):
    write_three(tmp_path)
    with (tmp_path / "bf16-s1" / "metrics.jsonl").open("a") as file:
        file.write('{"train/step": 9, "train/l')
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row["seeds"], row["reason"]) == (2, "seed 1: its metrics.jsonl has torn lines: 1")


SUMMARY = {
    '{"status": "finis': "its summary.json is not readable as JSON: ",
    "[1]": "its summary.json is not one of a run: input should be a valid object",
}


@pytest.mark.parametrize("text", SUMMARY)
def test_a_torn_summary_is_no_missing_run(tmp_path, text):
    write_three(tmp_path)
    (tmp_path / "bf16-s0" / "summary.json").write_text(text)
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row["status"], row["seeds"]) == ("failed", 2)
    assert SUMMARY[text] in row["reason"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"final": None}, "final: input should be a valid object, not null"),
        ({"final": {"eval/accuracy": "0.99"}}, "its eval/accuracy is 0.99"),
        ({"final": {"eval/accuracy": 99.4}}, "its eval/accuracy is 99.4, not from 0 to 1"),
        ({"final": {"eval/accuracy": 0.915, "eval/loss": [1]}}, "final.eval/loss"),
        ({"skipped_steps": "2"}, 'skipped_steps: input should be a valid integer, not "2"'),
        ({"higher_is_better": None}, "whether a higher eval/accuracy is better is not in its record"),
        ({"seed": 0}, "its record is of precision bf16 (effective bf16) and seed 0"),
        (
            {"precision": {"requested": "bf16", "effective": {"name": "fp32"}}},
            "its record is of precision bf16 (effective fp32) and seed 1",
        ),
        ({"steps": {"attempted": 8}}, "its metrics.jsonl ends at step 4 of 8"),
        ({"steps": {"planned": 8, "attempted": 4}}, "it finished after 4 of 8 steps"),
        ({"steps": {}}, "it finished after None of None steps"),
        ({"data_order_sha256": ""}, "no data_order_sha256 in its record"),
        (
            {"final": {"eval/accuracy": 0.915, "eval/accuracy_fp32": 42.0}},
            "eval/accuracy_fp32 is 42.0, not from 0 to 1",
        ),
        ({"final": {"eval/accuracy": 0.915, "eval/loss": -3.0}}, "its eval/loss is -3.0, less than 0"),
        ({"final": {"eval/accuracy": 0.915, "eval/loss": 1.7e308}}, "its eval/loss is 1.7e+308"),
        ({"status": "running"}, "its status is 'running'"),
        ({"initial_weights_sha256": None}, "no initial_weights_sha256 in its record"),
        ({"device": None}, "no device in its record"),
        ({"eval_samples": None}, "no eval_samples in its record"),
        ({"eval_samples": 0}, "eval_samples: input should be greater than 0, not 0"),
        ({"skipped_steps": -7}, "skipped_steps: input should be greater than or equal to 0, not -7"),
        ({"final": {"eval/accuracy": 0.915, "memory/peak_rss_mib": math.inf}}, "its memory/peak_rss_mib is inf"),
        ({"final": {"eval/accuracy": 0.915, "memory/saved_for_backward_mib": -1}}, "saved_for_backward_mib is -1"),
        ({"final": {"eval/accuracy": 0.915, "throughput/samples_per_sec": "many"}}, "samples_per_sec is many"),
    ],
)
def test_a_summary_that_is_not_that_of_its_run_is_named_and_not_averaged(tmp_path, changes, reason):
    write_three(tmp_path)
    file = write_run(tmp_path, "bf16", 1, 0.915) / "summary.json"
    write_json(file, read_json(file) | changes)
    row = rows_of(compared(tmp_path))["bf16"]
    assert row["seeds"] == 2
    assert row["status"] != "finished"
    assert reason in row["reason"]
    assert row["mean"] == pytest.approx((0.905 + 0.91) / 2)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda text: "", "its metrics.jsonl is missing or empty"),
        (lambda text: text + text, "its metrics.jsonl goes back to an earlier step"),
        (lambda text: text.replace("2.0", "null"), "line 1 of its metrics.jsonl has no figure in train/loss"),
        (lambda text: text.replace("2.0", '"two"'), "line 1 of its metrics.jsonl has no figure in train/loss"),
        (lambda text: text.replace('"train/step": 1,', '"train/step": "x",'), "no figure in train/step"),
        (
            lambda text: "".join(text.splitlines(True)[:-2]),
            "its metrics.jsonl has no eval/accuracy of step 4",
        ),
        (lambda text: "".join(text.splitlines(True)[:3]), "its metrics.jsonl ends at step 2 of 4"),
        (lambda text: "".join(2 * line for line in text.splitlines(True)), "has train/loss of step 1 twice"),
        (lambda text: text.replace("0.4575", "1.7"), "eval/accuracy in line 3 of its metrics.jsonl is 1.7, not from"),
        (lambda text: text.replace("0.4575", "0.99"), "its best eval/accuracy is 0.915 in summary.json and 0.99 in"),
        (
            lambda text: text.replace('"eval/loss": 1.0', '"eval/loss": -5'),
            "eval/loss in line 3 of its metrics.jsonl is",
        ),
        (lambda text: "".join(text.splitlines(True)[3:]), "has no train/loss between the steps 0 and 3"),
        (lambda text: "".join(text.splitlines(True)[:4] + text.splitlines(True)[5:]), "no train/loss of step 4"),
        (lambda text: text.replace('"train/step": 2, "eval', '"eval'), "line 3 of its metrics.jsonl has no train/step"),
        (
            lambda text: text.replace('"eval/loss": 1.0', '"eval/held_out_loss": -1.0'),
            "eval/held_out_loss in line 3 of its metrics.jsonl is -1.0, less than 0",
        ),
        (lambda text: text.replace("2.0", "9" * 400), "line 1 of its metrics.jsonl has no figure in train/loss"),
        (lambda text: text.replace("2.0", "1e39"), "line 1 of its metrics.jsonl has no figure in train/loss"),
    ],
)
def test_a_history_that_does_not_end_in_the_summary_is_named_and_not_averaged(tmp_path, edit, reason):
    write_three(tmp_path)
    file = write_run(tmp_path, "bf16", 1, 0.915, losses=(2.0, 1.1, 0.6, 0.2)) / "metrics.jsonl"
    file.write_text(edit(file.read_text()))
    row = rows_of(compared(tmp_path))["bf16"]
    assert row["seeds"] == 2
    assert reason in row["reason"]


def test_a_source_that_had_changes_in_an_earlier_attempt_is_not_published(tmp_path):
    write_three(tmp_path)
    changed, clean = {"commit": "a", "dirty": True}, {"commit": "a", "dirty": False}
    for seed, first in ((0, changed), (1, clean)):
        attempts = [{"started": "a", "git": first, "changed": {}}, {"started": "b", "git": clean, "changed": {}}]
        write_run(tmp_path, "bf16", seed, environment={"attempts": attempts})
    row = rows_of(compare(tmp_path, ["fp32", "bf16"], range(3), "command", 0.005, publish=True))["bf16"]
    assert (row["seeds"], row["pairs"]) == (2, 2)
    assert row["reason"].startswith("seed 0: its source had changes")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config_sha256": "another"}, "config_sha256 of benchmark.json is not that of the runs"),
        ({"device": "another"}, "device of benchmark.json is not that of the runs"),
        ({"device": None}, "device: input should be a valid string, not null"),
        ({"seconds": None}, "seconds: input should be a valid object, not null"),
        ({"seconds": {"fp32": [1.0, 1.0], "bf16": [1.0]}}, "blocks must be equally many and at least 2"),
        ({"seconds": {"fp32": [1.0], "bf16": [1.0]}}, "blocks must be equally many and at least 2"),
        ({"seconds": {"fp32": [1.0, 0.0], "bf16": [1.0, 1.0]}}, "input should be greater than 0.000000001, not 0.0"),
        ({"seconds": {"fp32": [1.0, math.nan], "bf16": [1.0, 1.0]}}, 'input should be a finite number, not "NaN"'),
        ({"smoke": True}, "benchmark.json is of a smoke run"),
        ({"git": {"commit": "a", "dirty": True}}, "the source of benchmark.json had changes"),
    ],
)
def test_a_benchmark_that_is_not_of_these_runs_is_named_and_no_speed(tmp_path, changes, reason):
    write_three(tmp_path)
    file = tmp_path / "benchmark.json"
    write_json(file, read_json(file) | changes)
    row = rows_of(compare(tmp_path, ["fp32", "bf16"], [0], "command", 0.005, publish=True))["bf16"]
    assert (row["samples_per_sec"], row["speedup"], row["status"]) == (None, None, "failed")
    assert reason in row["reason"]
    assert row["seeds"] == 1


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("batch_size: 16", "its config.yaml is not that of fp32-s0: batch_size is 16 in place of 8"),
        (
            "optimizer: {name: sgd, lr: 0.2}",
            "its config.yaml is not that of fp32-s0: optimizer.lr is 0.2 in place of 0.1",
        ),
        (
            "batch_size: many",
            'config.yaml is not one of a run: batch_size: input should be a valid integer, not "many"',
        ),
        ("data: 5", "its config.yaml is not one of a run: data: input should be a valid object, not 5"),
        ("batch_size: [", "its config.yaml is not readable: "),
    ],
)
def test_a_run_of_another_or_no_recipe_is_named_and_not_averaged(tmp_path, lines, reason):
    write_three(tmp_path)
    with (tmp_path / "bf16-s1" / "config.yaml").open("a") as file:
        file.write(lines + "\n")  # of a key that stands twice YAML takes the later
    row = rows_of(compared(tmp_path))["bf16"]
    assert row["seeds"] == 2
    assert reason in row["reason"]


def test_what_is_no_part_of_the_recipe_may_differ(tmp_path):
    write_three(tmp_path)
    with (tmp_path / "bf16-s1" / "config.yaml").open("a") as file:
        file.write("log_every: 5\nmargin: 0.01\nworkers: 2\n")
    assert rows_of(compared(tmp_path))["bf16"]["seeds"] == 3


def test_a_run_without_its_recipe_is_named_and_not_averaged(tmp_path):
    write_three(tmp_path)
    (tmp_path / "bf16-s1" / "config.yaml").unlink()
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row["seeds"], row["reason"]) == (2, "seed 1: its config.yaml is missing")


def test_the_record_of_another_run_is_named_and_not_averaged(tmp_path):
    write_three(tmp_path)
    shutil.copy(tmp_path / "bf16-s1" / "environment.json", tmp_path / "bf16-s0" / "environment.json")
    shutil.copy(tmp_path / "fp32-s2" / "environment.json", tmp_path / "fp16-s2" / "environment.json")
    rows = rows_of(compared(tmp_path))
    assert rows["bf16"]["reason"] == "seed 0: its environment.json is of precision bf16 and seed 1"
    assert rows["fp16"]["reason"] == "seed 2: its environment.json is of precision fp32 and seed 2"


def test_copies_of_a_run_are_named_and_not_averaged(tmp_path):
    write_three(tmp_path)
    for seed in range(2):
        write_run(tmp_path, "bf16", seed, environment={"run_id": "0123abcd"})
    write_run(tmp_path, "bf16", 2, environment={"run_id": "4567cdef"})
    row = rows_of(compared(tmp_path))["bf16"]
    assert row["seeds"] == 1
    assert row["reason"] == "; ".join(f"seed {seed}: bf16-s0 and bf16-s1 are one run, 0123abcd" for seed in range(2))


@pytest.mark.parametrize(("key", "value"), [("metric", "eval/loss"), ("eval_samples", 10), ("higher_is_better", False)])
def test_a_pair_that_was_judged_by_another_measure_is_no_pair(tmp_path, key, value):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, final={"eval/loss": 0.5}, **{key: value})
    rows = rows_of(compared(tmp_path))
    assert [rows[name]["seeds"] for name in ("fp32", "bf16", "fp16")] == [0, 0, 0] or rows["bf16"]["seeds"] == 2
    assert f"{key} differs between" in rows["bf16"]["reason"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda run: (run / "environment.json").unlink(), "no environment.json: whether it was trained in one go"),
        (
            lambda run: write_json(run / "environment.json", {"precision": {"requested": "bf16"}, "seed": 1}),
            "no run_id in its environment.json",
        ),
        (lambda run: (run / "config.yaml").unlink(), "its config.yaml is missing"),
        (lambda run: (run / "config.yaml").write_text(""), "its config.yaml is not one of a run: "),
        (lambda run: (run / "config.yaml").write_text("&a {b: *a}"), "its config.yaml is not one of a run: "),
        (
            lambda run: (run / "config.yaml").write_text((run / "config.yaml").read_text() + "more: &a {b: *a}\n"),
            "its config.yaml is not readable: Circular reference detected",
        ),
        (
            lambda run: (run / "config.yaml").write_text((run / "config.yaml").read_text() + "margin: null\n"),
            "margin: input should be a valid number, not null",
        ),
    ],
)
def test_a_run_without_its_other_files_is_named_and_not_averaged(tmp_path, spoil, reason):
    write_three(tmp_path)
    spoil(tmp_path / "bf16-s1")
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row["seeds"], row["mean"]) == (2, pytest.approx((0.905 + 0.91) / 2))
    assert reason in row["reason"]


def test_the_recipe_of_most_runs_is_that_of_the_comparison(tmp_path):
    write_three(tmp_path)
    file = tmp_path / "fp32-s0" / "config.yaml"
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 3"))
    rows = rows_of(compared(tmp_path))
    assert [rows[precision]["seeds"] for precision in ("fp32", "bf16", "fp16")] == [2, 3, 3]
    assert rows["fp32"]["reason"] == "seed 0: its config.yaml is not that of fp32-s1: epochs is 3 in place of 2"
    file.write_text(file.read_text().replace("epochs: 3", "epochs: .nan"))
    assert "epochs: " in rows_of(compared(tmp_path))["fp32"]["reason"]


@pytest.mark.parametrize("key", ["memory/saved_for_backward_mib", "amp/skipped_steps"])
def test_what_a_summary_says_last_is_what_its_history_says_last(tmp_path, key):
    write_three(tmp_path)
    lines = (tmp_path / "fp16-s1" / "metrics.jsonl").read_text()
    (tmp_path / "fp16-s1" / "metrics.jsonl").write_text(lines + to_line({"train/step": 4, key: 9999}))
    row = rows_of(compared(tmp_path))["fp16"]
    assert row["seeds"] == 2
    assert f"seed 1: its last {key} is " in row["reason"]
    assert "in summary.json and 9999 in metrics.jsonl" in row["reason"]


def test_seeds_of_different_devices_are_not_averaged(tmp_path):
    write_three(tmp_path)
    for precision in ("fp32", "bf16", "fp16"):
        write_run(tmp_path, precision, 2, device="Another", environment={"device": {"name": "Another"}})
    assert all("device differs between the seeds" in row["reason"] for row in compared(tmp_path)["rows"])
    write_run(tmp_path, "bf16", 2, environment={"device": {"name": "Another"}})
    reason = rows_of(compared(tmp_path))["bf16"]["reason"]
    assert "seed 2: its environment.json is of Another, and its summary.json of Some CPU, 2 threads" in reason


def test_memory_is_compared_within_each_seed(tmp_path):
    write_three(tmp_path)
    for seed, (fp32, bf16) in enumerate([(100.0, 60.0), (200.0, 110.0), (300.0, 150.0)]):
        write_run(tmp_path, "fp32", seed, final={"memory/saved_for_backward_mib": fp32})
        write_run(tmp_path, "bf16", seed, final={"memory/saved_for_backward_mib": bf16})
    row = rows_of(compared(tmp_path))["bf16"]
    assert row["saved_ratio"] == pytest.approx(0.55)
    assert row["saved_for_backward_mib"] == 150.0
    assert row["peak_ratio"] == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seeds": [0, 0, 1, 2]}, "seeds: must have each once"),
        ({"precisions": ["fp32", "bf16", "bf16", "fp16"]}, "precisions: must have each once"),
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"looks": 0}, "looks: input should be greater than 0, not 0"),
        ({"looks": 10**400}, "looks: input should be less than or equal to 3"),
        ({"precisions": ["fp32", "../bf16"]}, "precisions.1: string should match pattern"),
        ({"margin": -1.0}, "margin: input should be greater than 0, not -1.0"),
        ({"margin": math.nan}, "margin: "),
        ({"seeds": [0, 2]}, "tiny/comparison.json does not count bf16-s1, fp16-s1, fp32-s1"),
        ({"margin": 0.05}, "tiny/comparison.json has the margin 0.05, and the config.yaml of bf16-s0 has 0.005"),
    ],
)
def test_a_comparison_that_is_not_that_of_all_its_runs_is_left_out(tmp_path, change, reason):
    folder = tmp_path / "tiny"
    write_three(folder)
    for run in folder.glob("*-s*"):
        with (run / "config.yaml").open("a") as file:
            file.write("margin: 0.005\n")
    write_json(folder / "comparison.json", compared(folder))
    assert comparisons_in(tmp_path)[1] == {}
    write_json(folder / "comparison.json", compared(folder) | change)
    found, left_out = comparisons_in(tmp_path)
    assert found == {}
    assert reason in left_out["tiny"]


def test_a_copy_of_an_experiment_is_not_one_more(tmp_path):
    write_three(tmp_path / "tiny")
    write_json(tmp_path / "tiny" / "comparison.json", compared(tmp_path / "tiny"))
    shutil.copytree(tmp_path / "tiny", tmp_path / "tiny (copy)")
    found, _ = comparisons_in(tmp_path)
    rows = found[tmp_path / "tiny (copy)"]["rows"]
    assert [row["seeds"] for row in rows] == [0, 0, 0]
    assert "seed 0: its record is of the experiment tiny" in rows[0]["reason"]


def test_pairs_are_counted_apart_from_runs(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "fp32", 1, 0.1, status="failed", reason="the reason")
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row["seeds"], row["pairs"]) == (3, 2)
    assert table.difference(row).endswith("] (n=2)")
    assert table.verdict({**row, "verdict": None, "pairs": 1}) == "single pair"
    assert table.verdict({**row, "verdict": None, "pairs": 0}) == "no pair"


def test_losses_of_zero_have_a_margin_of_zero_and_no_number_of_seeds(tmp_path):
    for seed in range(3):
        for precision in ("fp32", "bf16"):
            final = {"eval/loss": 0.0}
            write_run(tmp_path, precision, seed, metric="eval/loss", final=final, higher_is_better=False)
    row = rows_of(compared(tmp_path, "fp32,bf16"))["bf16"]
    assert (row["verdict"], row["seeds_needed"]) == ("INCONCLUSIVE", None)


def test_what_comparisons_there_are_and_why_others_are_left_out(tmp_path):
    write_three(tmp_path / "good")
    write_json(tmp_path / "good" / "comparison.json", compared(tmp_path / "good"))
    contents = {"torn": "{", "other": '{"precisions": "fp32"}', "unended": None}
    for name, text in contents.items():
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "comparison.json").write_text(text)
    found, left_out = comparisons_in(tmp_path)
    assert list(found) == [tmp_path / "good"]
    assert left_out["torn"].startswith("torn/comparison.json is not readable as JSON: ")
    assert left_out["other"].startswith("other/comparison.json is not that of a comparison: precisions: input should")
    assert left_out["unended"] == "no comparison.json: its comparison did not end"


def test_torn_lines_are_left_out_and_counted(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"train/step": 1, "train/loss": "NaN"}\n{"train/step": 2, "tra\n7\n{"train/step": 3}\n')
    rows, torn = read_lines(path)
    assert [row["train/step"] for row in rows] == [1, 3]
    assert math.isnan(rows[0]["train/loss"])
    assert torn == 2


def test_an_empty_folder_is_a_comparison_of_missing_rows(tmp_path):
    comparison = compare(tmp_path, ["fp32", "bf16"], [0], "python", 0.005)
    assert [row["status"] for row in comparison["rows"]] == ["missing", "missing"]
    assert comparison["metric"] is None
    assert not succeeded(comparison)


def test_the_speedup_of_a_precision_over_itself_holds_one():
    generator = np.random.default_rng(0)
    first, second = generator.lognormal(0, 0.05, (2, 21))
    found = speedup(first, second)
    assert found.low <= 1 <= found.high
    assert found.low < found.value < found.high


def test_the_speedup_of_exactly_half_the_seconds_is_two():
    found = speedup([1.0, 1.2, 0.9], [0.5, 0.6, 0.45])
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


def test_the_speedup_is_the_median_within_rounds_and_the_same_every_time():
    baseline, other = [1.0, 10.0, 1.0, 1.0, 1.0], [0.5, 4.0, 0.4, 0.5, 0.8]
    found = speedup(baseline, other)
    assert found.value == pytest.approx(np.median(np.array(baseline) / np.array(other)))
    assert found == speedup(baseline, other)


def test_mean_and_standard_deviation_against_numpy():
    values = np.random.default_rng(1).normal(size=7).tolist()
    assert mean(values) == pytest.approx(np.mean(values))
    assert standard_deviation(values) == pytest.approx(np.std(values, ddof=1))
    assert mean([]) is None
    assert standard_deviation([0.9]) is None
    assert standard_deviation([0.9, math.inf]) is None

"""From run folders to rows: which figures come out, and which runs stay out of them."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reports.analysis.comparison import compare, comparisons_in
from reports.analysis.statistics import mean, standard_deviation
from reports.pages import table
from reports.records.benchmark import Benchmark
from reports.records.comparison import OperatorGrowth, Plan, Speedup
from reports.records.files import read_record, write_record
from reports.records.metric import Metric
from reports.records.metrics import read_history
from tests.reports.made_runs import compared, rows_of, write_benchmark, write_run, write_starts, write_three


def edit(file: Path, **changes: Any) -> None:
    """Replace keys of a JSON record, also by what its schema refuses."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_means_over_three_seeds(tmp_path: Path) -> None:
    write_three(tmp_path)
    rows = rows_of(compared(tmp_path))
    assert [rows[name].seeds for name in ("fp32", "bf16")] == [3, 3]
    assert rows["fp32"].mean == pytest.approx(0.91)
    assert rows["bf16"].mean == pytest.approx(0.91)
    assert rows["fp32"].sd == pytest.approx(statistics.stdev([0.90, 0.91, 0.92]))
    assert rows["bf16"].difference == pytest.approx(0, abs=1e-12)
    assert rows["fp32"].difference is None


def test_every_figure_is_that_of_the_records(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    assert comparison.succeeded
    row = rows_of(comparison)["bf16"]
    assert row.samples_per_sec == pytest.approx(8 * 10 / 0.5)
    assert row.speedup
    assert row.speedup.value == pytest.approx(2.0)
    assert row.saved_for_backward_mib == 20.0
    assert row.saved_ratio == 0.5
    assert row.peak_memory_mib == 61.0
    assert rows_of(comparison)["fp16"].skipped_steps == 3


def test_slower_and_larger_are_ratios_like_others(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    rows = rows_of(compared(tmp_path, "fp32,bf16", seeds=1))
    assert rows["fp32"].samples_per_sec == pytest.approx(80.0)
    assert rows["bf16"].samples_per_sec == pytest.approx(32.0)
    assert rows["bf16"].speedup
    assert rows["bf16"].speedup.value == pytest.approx(0.4)
    assert rows["bf16"].saved_ratio == 1.25


@pytest.mark.parametrize("missing", ["run", "blocks", "benchmark"])
def test_without_fp32_there_is_no_ratio(tmp_path: Path, missing: str) -> None:
    write_run(tmp_path, "bf16")
    if missing != "run":
        write_run(tmp_path, "fp32")
    if missing != "benchmark":
        write_benchmark(tmp_path, bf16=[1.0, 1.0], **({} if missing == "blocks" else {"fp32": [1.0, 1.0]}))
    row = rows_of(compared(tmp_path, "fp32,bf16", seeds=1))["bf16"]
    if missing == "run":
        assert row.difference is None
        assert row.saved_ratio is None
    else:
        assert row.speedup is None


@pytest.mark.parametrize("status", ["failed", "diverged", "interrupted"])
def test_a_run_that_did_not_finish_is_named_and_not_averaged(tmp_path: Path, status: str) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, accuracy=0.1, status=status, reason="the reason")
    comparison = compared(tmp_path)
    row = rows_of(comparison)["bf16"]
    assert not comparison.succeeded
    assert (row.status, row.seeds) == (status, 2)
    assert row.reason == "seed 1: the reason"
    assert row.mean == pytest.approx((0.905 + 0.91) / 2)
    assert row.difference == pytest.approx((0.905 + 0.91) / 2 - (0.90 + 0.92) / 2)


def test_a_precision_of_which_nothing_is_there_is_a_row(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path, "fp32,bf16,fp16,fp8")
    row = rows_of(comparison)["fp8"]
    assert len(comparison.rows) == 4
    assert (row.status, row.seeds, row.mean) == ("missing", 0, None)
    assert "no summary.json" in str(row.reason)
    assert not comparison.succeeded


def test_a_run_without_its_metric_has_failed(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "fp16", 2, accuracy=None)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row.status, row.seeds, row.reason) == ("failed", 2, "seed 2: its eval/accuracy is None")


@pytest.mark.parametrize("key", ["initial_weights_sha256", "data_order_sha256", "config_sha256", "device"])
def test_runs_that_are_no_pair_are_flagged_and_not_averaged(tmp_path: Path, key: str) -> None:
    write_three(tmp_path)
    changes: dict[str, Any] = {key: "another"}
    write_run(tmp_path, "bf16", 1, accuracy=0.1, **changes)
    rows = rows_of(compared(tmp_path))
    assert {row.seeds for row in rows.values()} == {2}
    for row in rows.values():
        assert row.status == "failed"
        assert f"seed 1: not paired: {key} differs" in str(row.reason)


PLACE = {"device": "cpu", "threads": 2, "cpu": "Some CPU", "versions": {"torch": "2"}, "builds": {"blas": "mkl"}}


def recorded(folder: Path, **changes: object) -> dict[str, Any]:
    """Keywords of a run that records its whole identity, with changes of it."""
    place = {**PLACE, **{key: value for key, value in changes.items() if key in PLACE}}
    hashes = {"source_sha256": "s", "data_sha256": "d"} | {
        key: value for key, value in changes.items() if key not in PLACE
    }
    return {"environment": {"attempts": [{"place": place, "changed": {}}]}, **hashes}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"source_sha256": "other"}, "source_sha256"),
        ({"data_sha256": "other"}, "data_sha256"),
        ({"threads": 1}, "threads"),
        ({"cpu": "Some CPU of another generation"}, "cpu"),
        ({"versions": {"torch": "3"}}, "versions.torch"),
        ({"builds": {"blas": "openblas"}}, "builds.blas"),
    ],
)
def test_runs_of_another_identity_are_not_averaged(tmp_path: Path, changes: dict[str, object], key: str) -> None:
    for seed in range(3):
        for precision in ("fp32", "bf16", "fp16"):
            other = changes if (precision, seed) == ("bf16", 1) else {}
            write_run(tmp_path, precision, seed, **recorded(tmp_path, **other))
    comparison = compared(tmp_path)
    assert comparison.not_recorded == []
    assert {row.seeds for row in comparison.rows} == {2}
    assert f"seed 1: not paired: {key} differs between the precisions of seed 1" in str(comparison.rows[1].reason)


def test_seeds_of_another_identity_are_not_averaged(tmp_path: Path) -> None:
    for seed in range(2):
        for precision in ("fp32", "bf16", "fp16"):
            write_run(tmp_path, precision, seed, **recorded(tmp_path, source_sha256=str(seed)))
    comparison = compared(tmp_path, seeds=2)
    assert {row.seeds for row in comparison.rows} == {0}
    assert "source_sha256 differs between the seeds" in str(comparison.rows[0].reason)


def test_what_some_runs_do_not_record_is_not_compared_and_said_once(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, **recorded(tmp_path))
    comparison = compared(tmp_path)
    assert {row.seeds for row in comparison.rows} == {3}
    assert comparison.not_recorded == [
        *("source of the model", "content of the data", "CPU", "versions of each attempt"),
        "builds of the numerical libraries",
    ]
    [note] = [note for note in table.notes(comparison) if "ot recorded" in note]
    assert note == f"Not recorded by all runs, and so not compared: {', '.join(comparison.not_recorded)}."


def test_a_run_that_was_continued_on_another_machine_is_not_averaged(tmp_path: Path) -> None:
    write_three(tmp_path)
    attempts = [{"changed": {}}, {"changed": {"threads": [1, 2], "log_every": [1, 5]}}]
    write_run(tmp_path, "bf16", 1, environment={"attempts": attempts})
    row = rows_of(compared(tmp_path))["bf16"]
    assert row.seeds == 2
    assert "seed 1: trained in parts on different machines (threads); retrain it with --resume never" in str(row.reason)


def test_seeds_of_different_configurations_are_not_averaged(tmp_path: Path) -> None:
    write_three(tmp_path)
    for precision in ("fp32", "bf16", "fp16"):
        write_run(tmp_path, precision, 2, accuracy=0.1, config_sha256="another")
    comparison = compared(tmp_path)
    assert not comparison.succeeded
    assert {row.mean for row in comparison.rows} == {None}
    assert "config_sha256 differs" in str(comparison.rows[0].reason)


def test_a_run_extended_to_other_epochs_is_not_averaged(tmp_path: Path) -> None:
    write_three(tmp_path)
    attempts = [{"started": "a", "changed": {}}, {"started": "b", "changed": {"epochs": [2, 4]}}]
    write_run(tmp_path, "fp32", 0, accuracy=0.99, environment={"attempts": attempts})
    row = rows_of(compared(tmp_path))["fp32"]
    assert (row.status, row.seeds) == ("failed", 2)
    assert "different length" in str(row.reason)
    assert row.mean == pytest.approx(0.915)


@pytest.mark.parametrize(
    ("content", "fault"),
    [('{"attempts": 5}', "attempts: input should be a valid list, not 5"), ("{", "not readable as JSON: ")],
)
def test_a_run_with_an_environment_that_is_none_is_named_and_not_averaged(
    tmp_path: Path, content: str, fault: str
) -> None:
    write_three(tmp_path)
    file = tmp_path / "fp32-s0" / "environment.json"
    file.write_text(content)
    comparison = compared(tmp_path)
    row = rows_of(comparison)["fp32"]
    assert (row.status, row.seeds) == ("failed", 2)
    assert str(row.reason).startswith(f"seed 0: {file.relative_to(tmp_path)}: {fault}")
    assert row.mean == pytest.approx(0.915)
    assert comparison.environment is not None
    assert comparison.environment.device.name == "Some CPU, 2 threads"  # of another run


def test_a_smoke_run_marks_the_comparison(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1, smoke=True)
    assert compared(tmp_path, seeds=1).smoke


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_is_named_and_never_averaged_in(tmp_path: Path, value: float) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "fp16", 0, accuracy=value)
    row = rows_of(compared(tmp_path))["fp16"]
    assert (row.seeds, row.mean) == (2, 0.90)
    assert row.reason == f"seed 0: its eval/accuracy is {value}"


def test_the_verdict_is_that_of_the_paired_differences(tmp_path: Path) -> None:
    for seed, (fp32, bf16, fp16) in enumerate([(0.90, 0.901, 0.87), (0.91, 0.909, 0.88), (0.92, 0.921, 0.889)]):
        for precision, accuracy in (("fp32", fp32), ("bf16", bf16), ("fp16", fp16)):
            write_run(tmp_path, precision, seed, accuracy)
    rows = rows_of(compared(tmp_path))
    assert (rows["fp32"].verdict, rows["bf16"].verdict, rows["fp16"].verdict) == (None, "EQUIVALENT", "WORSE")
    expected = stats.ttest_1samp([-0.03, -0.03, -0.031], 0.0).confidence_interval(0.95)
    interval = rows["fp16"].interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_the_margin_of_a_loss_is_a_share_of_that_of_fp32(tmp_path: Path) -> None:
    for seed in range(3):
        for precision, loss in (("fp32", 2.0), ("bf16", 2.0 + 0.001 * seed)):
            final = {"eval/loss": loss}
            write_run(tmp_path, precision, seed, metric="eval/loss", final=final, higher_is_better=False)
    row = rows_of(compared(tmp_path, "fp32,bf16"))["bf16"]
    assert row.margin == pytest.approx(0.005 * 2.0)
    assert row.verdict == "EQUIVALENT"


@pytest.mark.parametrize("name", ["f1", "bleu"])
def test_a_metric_that_the_task_declares_decides_and_the_others_stand_beside_it(tmp_path: Path, name: str) -> None:
    decides = Metric(name=name, unit="%", range=(0, 1), higher_is_better=True)
    metrics = [decides, Metric(name="regret", higher_is_better=False)]
    for seed in range(3):
        for precision, value in (("fp32", 0.8), ("bf16", 0.8 + seed / 1000)):
            final = {decides.key: value, "eval/regret": 2.0 * seed + value}
            write_run(tmp_path, precision, seed, final=final, metric=decides.key, metrics=metrics)
    row = rows_of(compared(tmp_path, "fp32,bf16"))["bf16"]
    assert row.metric == decides
    assert row.mean == pytest.approx(0.801)
    assert row.difference == pytest.approx(0.001)
    assert row.margin == 0.005
    (regret,) = row.others
    assert regret.metric == metrics[1]
    assert regret.mean == pytest.approx(2.801)
    assert regret.sd == pytest.approx(statistics.stdev([0.8, 2.801, 4.802]))
    assert regret.difference == pytest.approx(0.001)


def test_one_seed_has_no_verdict(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1)
    row = rows_of(compared(tmp_path, seeds=1))["bf16"]
    assert (row.verdict, row.interval, row.pairs) == (None, None, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"smoke": True}, "a smoke run"),
        ({"environment": {"git": {"commit": "1", "dirty": True}}}, "changes that are in no commit"),
        ({"environment": {"git": {"commit": None, "dirty": None}}}, "its commit is not known"),
    ],
)
def test_what_must_not_be_published_is_left_out_with_its_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, **change)
    row = rows_of(compared(tmp_path, "fp32,bf16", publish=True))["bf16"]
    assert row.seeds == 2
    assert reason in str(row.reason)


def test_a_run_with_damaged_lines_is_left_out(tmp_path: Path) -> None:
    write_three(tmp_path)
    with (tmp_path / "bf16-s1" / "metrics.jsonl").open("a") as file:
        file.write('{"train/step": 9, "train/l')
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row.seeds, row.reason) == (2, "seed 1: its metrics.jsonl is missing or damaged")


@pytest.mark.parametrize(
    ("text", "fault"), [('{"status": "finis', "not readable as JSON: "), ("[1]", "input should be a valid object")]
)
def test_a_damaged_summary_is_no_missing_run(tmp_path: Path, text: str, fault: str) -> None:
    write_three(tmp_path)
    file = tmp_path / "bf16-s0" / "summary.json"
    file.write_text(text)
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row.status, row.seeds) == ("failed", 2)
    assert f"seed 0: {file.relative_to(tmp_path)}: {fault}" in str(row.reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"final": None}, "final: input should be a valid object, not null"),
        ({"final": {"eval/accuracy": "0.99"}}, "its eval/accuracy is 0.99"),
        ({"final": {"eval/accuracy": 99.4}}, "its eval/accuracy is 99.4"),
        ({"final": {"eval/accuracy": 0.915, "eval/accuracy_fp32": 42.0}}, "its eval/accuracy_fp32 is 42.0"),
        ({"final": {"eval/accuracy": 0.915, "eval/loss": -3.0}}, "its eval/loss is -3.0"),
        ({"seed": 0}, "its record is of precision bf16 (effective bf16) and seed 0"),
        (
            {"precision": {"requested": "bf16", "effective": {"name": "fp32"}}},
            "its record is of precision bf16 (effective fp32) and seed 1",
        ),
        ({"steps": {"attempted": 8}}, "its metrics.jsonl does not follow the steps up to 8"),
        ({"metrics": [], "metric": None, "final": {}}, "no metric in its record"),
        ({"status": "running"}, "status: input should be 'finished', 'failed'"),
    ],
)
def test_a_summary_that_is_not_that_of_its_run_is_named_and_not_averaged(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    write_three(tmp_path)
    edit(write_run(tmp_path, "bf16", 1, 0.915) / "summary.json", **changes)
    row = rows_of(compared(tmp_path))["bf16"]
    assert row.seeds == 2
    assert row.status != "finished"
    assert reason in str(row.reason)
    assert row.mean == pytest.approx((0.905 + 0.91) / 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: "", "its metrics.jsonl is missing or damaged"),
        (lambda text: text + text, "its metrics.jsonl does not follow the steps up to 4"),
        (lambda text: "".join(text.splitlines(True)[:3]), "its metrics.jsonl does not follow the steps up to 4"),
    ],
)
def test_a_history_that_is_not_that_of_the_run_is_named_and_not_averaged(
    tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    write_three(tmp_path)
    file = write_run(tmp_path, "bf16", 1, 0.915, losses=(2.0, 1.1, 0.6, 0.2)) / "metrics.jsonl"
    file.write_text(change(file.read_text()))
    row = rows_of(compared(tmp_path))["bf16"]
    assert row.seeds == 2
    assert reason in str(row.reason)


def test_a_source_that_had_changes_in_an_earlier_attempt_is_not_published(tmp_path: Path) -> None:
    write_three(tmp_path)
    changed, clean = {"commit": "a", "dirty": True}, {"commit": "a", "dirty": False}
    for seed, first in ((0, changed), (1, clean)):
        attempts = [{"started": "a", "git": first, "changed": {}}, {"started": "b", "git": clean, "changed": {}}]
        write_run(tmp_path, "bf16", seed, environment={"attempts": attempts})
    row = rows_of(compared(tmp_path, "fp32,bf16", publish=True))["bf16"]
    assert (row.seeds, row.pairs) == (2, 2)
    assert str(row.reason).startswith("seed 0: its source had changes")


def of_one_start(**changes: Any) -> dict[str, Any]:
    """One process start as JSON has it."""
    seconds = {"fp32": [1.0, 1.0], "bf16": [1.0, 1.0]}
    return {"starts": [{"samples_per_step": 8, "block_steps": 10, "git": {}, "seconds": seconds, **changes}]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config_sha256": "another"}, "config_sha256 of benchmark.json is not that of the runs"),
        ({"device": "another"}, "device of benchmark.json is not that of the runs"),
        ({"device": None}, "device: input should be a valid string, not null"),
        ({"starts": None}, "starts: input should be a valid list, not null"),
        (of_one_start(seconds=None), "starts.0.seconds: input should be a valid object, not null"),
        (of_one_start(seconds={"fp32": [1.0, 0.0]}), "input should be greater than 0.000000001, not 0.0"),
        (of_one_start(seconds={"fp32": [1.0, math.nan]}), 'input should be a finite number, not "NaN"'),
        ({"smoke": True}, "benchmark.json is of a smoke run"),
        (of_one_start(git={"commit": "a", "dirty": True}), "the source of benchmark.json had changes"),
    ],
)
def test_a_benchmark_that_is_not_of_these_runs_is_named_and_no_speed(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    write_three(tmp_path)
    edit(tmp_path / "benchmark.json", **changes)
    row = rows_of(compared(tmp_path, "fp32,bf16", seeds=1, publish=True))["bf16"]
    assert (row.samples_per_sec, row.speedup, row.status) == (None, None, "failed")
    assert reason in str(row.reason)
    assert row.seeds == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "config.yaml: not readable as YAML: "),
        ("batch_size: [", "config.yaml: not readable as YAML: "),
        ("arch: 5", "config.yaml: model: field required"),
    ],
)
def test_a_run_without_its_recipe_is_named_and_not_averaged(tmp_path: Path, text: str | None, reason: str) -> None:
    write_three(tmp_path)
    file = tmp_path / "bf16-s1" / "config.yaml"
    file.unlink()
    if text:
        file.write_text(text)
    row = rows_of(compared(tmp_path))["bf16"]
    assert row.seeds == 2
    assert row.mean == pytest.approx((0.905 + 0.91) / 2)
    assert reason in str(row.reason)


@pytest.mark.parametrize(("key", "value"), [("metric", "eval/loss"), ("eval_samples", 10)])
def test_a_pair_that_was_judged_by_another_measure_is_no_pair(tmp_path: Path, key: str, value: object) -> None:
    write_three(tmp_path)
    changes: dict[str, Any] = {key: value}
    write_run(tmp_path, "bf16", 1, final={"eval/loss": 0.5}, **changes)
    rows = rows_of(compared(tmp_path))
    assert [rows[name].seeds for name in ("fp32", "bf16", "fp16")] == [2, 2, 2]
    assert f"{key} differs between the precisions of seed 1" in str(rows["bf16"].reason)


def test_seeds_of_different_devices_are_not_averaged(tmp_path: Path) -> None:
    write_three(tmp_path)
    for precision in ("fp32", "bf16", "fp16"):
        write_run(tmp_path, precision, 2, device="Another")
    assert all("device differs between the seeds" in str(row.reason) for row in compared(tmp_path).rows)


def test_a_comparison_that_was_stopped_before_its_speed_has_no_failed_rows(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1, smoke=True)
    (tmp_path / "benchmark.json").unlink()
    plan = Plan(command="", margin=0.005, precisions=["fp32", "bf16", "fp16"], seeds=[0])
    stopped = compare(tmp_path, plan.model_copy(update={"partial": "SIGINT: the comparison was stopped"}))
    assert {(row.status, row.reason) for row in stopped.rows} == {("finished", None)}
    assert "90.00% (single run)" in table.results(stopped).markdown()
    assert "failed" not in table.results(stopped).markdown()
    assert table.notes(stopped).count("The speed was not measured yet.") == 1
    whole = compare(tmp_path, plan)
    assert {(row.status, row.reason) for row in whole.rows} == {("failed", "its speed was not measured")}
    assert "The speed was not measured yet." not in table.notes(whole)


def test_memory_and_its_ratio_are_medians(tmp_path: Path) -> None:
    for seed, (fp32, bf16) in enumerate([(10.0, 20.0), (12.0, 18.0), (11.0, 800.0)]):
        write_run(tmp_path, "fp32", seed, final={"memory/peak_rss_mib": fp32, "memory/saved_for_backward_mib": fp32})
        write_run(tmp_path, "bf16", seed, final={"memory/peak_rss_mib": bf16, "memory/saved_for_backward_mib": bf16})
    rows = rows_of(compared(tmp_path, "fp32,bf16"))
    assert (rows["fp32"].peak_memory_mib, rows["fp32"].saved_for_backward_mib) == (11.0, 11.0)
    assert (rows["bf16"].peak_memory_mib, rows["bf16"].saved_for_backward_mib) == (20.0, 20.0)
    assert (rows["bf16"].peak_ratio, rows["bf16"].saved_ratio) == (2.0, 2.0)


def test_memory_is_compared_within_each_seed(tmp_path: Path) -> None:
    write_three(tmp_path)
    for seed, (fp32, bf16) in enumerate([(100.0, 60.0), (200.0, 110.0), (300.0, 150.0)]):
        write_run(tmp_path, "fp32", seed, final={"memory/saved_for_backward_mib": fp32})
        write_run(tmp_path, "bf16", seed, final={"memory/saved_for_backward_mib": bf16})
    row = rows_of(compared(tmp_path))["bf16"]
    assert row.saved_ratio == pytest.approx(0.55)
    assert row.saved_for_backward_mib == 110.0
    assert row.peak_ratio == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seeds": []}, "seeds: list should have at least 1 item"),
        ({"looks": 0}, "looks: input should be greater than 0, not 0"),
        ({"margin": -1.0}, "margin: input should be greater than 0, not -1.0"),
        ({"seeds": [0, 2]}, "tiny/comparison.json: does not count bf16-s1, fp16-s1, fp32-s1"),
    ],
)
def test_a_comparison_that_is_not_that_of_all_its_runs_is_left_out(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    folder = tmp_path / "tiny"
    write_three(folder)
    write_record(folder / "comparison.json", compared(folder))
    assert comparisons_in(tmp_path)[1] == {}
    edit(folder / "comparison.json", **change)
    comparisons, left_out = comparisons_in(tmp_path)
    assert comparisons == {}
    assert reason in left_out["tiny"]


def test_pairs_are_counted_apart_from_runs(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "fp32", 1, 0.1, status="failed", reason="the reason")
    row = rows_of(compared(tmp_path))["bf16"]
    assert (row.seeds, row.pairs) == (3, 2)


def test_losses_of_zero_have_a_margin_of_zero_and_no_number_of_seeds(tmp_path: Path) -> None:
    for seed in range(3):
        for precision in ("fp32", "bf16"):
            final = {"eval/loss": 0.0}
            write_run(tmp_path, precision, seed, metric="eval/loss", final=final, higher_is_better=False)
    row = rows_of(compared(tmp_path, "fp32,bf16"))["bf16"]
    assert (row.verdict, row.seeds_needed) == ("INCONCLUSIVE", None)


def test_what_comparisons_there_are_and_why_others_are_left_out(tmp_path: Path) -> None:
    write_three(tmp_path / "good")
    write_record(tmp_path / "good" / "comparison.json", compared(tmp_path / "good"))
    contents = {"damaged": "{", "other": '{"precisions": "fp32"}', "unended": None}
    for name, text in contents.items():
        (tmp_path / name).mkdir()
        if text:
            (tmp_path / name / "comparison.json").write_text(text)
    comparisons, left_out = comparisons_in(tmp_path)
    assert list(comparisons) == [tmp_path / "good"]
    assert left_out["damaged"].startswith("damaged/comparison.json: not readable as JSON: ")
    assert left_out["other"].startswith("other/comparison.json: command: field required")
    assert left_out["unended"] == "no comparison.json: its comparison did not end"


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"train/step": 1, "train/loss": "NaN"}\n{"train/step": 2, "tra\n7\n{"train/step": 3}\n')
    history = read_history(path)
    assert [row["train/step"] for row in history.rows] == [1, 3]
    assert math.isnan(history.rows[0]["train/loss"])
    assert history.damaged == 2


def test_an_empty_folder_is_a_comparison_of_missing_rows(tmp_path: Path) -> None:
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    assert [row.status for row in comparison.rows] == ["missing", "missing"]
    assert comparison.metric is None
    assert not comparison.succeeded


def test_the_speedup_is_over_process_starts_and_not_over_the_rounds_of_one(tmp_path: Path) -> None:
    """Each start says its own median ratio of rounds; starts that disagree leave a wide interval."""
    for precision in ("fp32", "bf16"):
        write_run(tmp_path, precision)
    ratios = [[2.0, 2.0, 9.0], [4.0, 4.0, 0.1], [8.0, 8.0, 8.0]]
    write_starts(tmp_path, *({"fp32": ratio, "bf16": [1.0, 1.0, 1.0]} for ratio in ratios))
    row = rows_of(compared(tmp_path, "fp32,bf16", seeds=1))["bf16"]
    assert row.speedup is not None
    assert row.speedup.interval is not None
    assert row.speedup.value == pytest.approx(4.0)
    assert row.speedup.starts == 3
    # The logarithms of 2, 4 and 8 have the deviation log 2, and Student's t of 2 degrees of freedom is 4.3027.
    factor = 2 ** (4.302653 / math.sqrt(3))
    assert (row.speedup.interval.low, row.speedup.interval.high) == pytest.approx((4 / factor, 4 * factor), rel=1e-5)
    assert row.samples_per_sec == pytest.approx(80.0)


def test_a_benchmark_of_one_process_keeps_its_speedup_and_claims_no_interval(tmp_path: Path) -> None:
    """As those were recorded that had all rounds in one process."""
    for precision in ("fp32", "bf16"):
        write_run(tmp_path, precision)
    text = """{"config_sha256": "%s", "precisions": ["fp32", "bf16"], "device": "Some CPU, 2 threads",
        "torch": "2.14.1", "smoke": false, "git": {"commit": "0123456789abcdef", "dirty": false}, "samples_per_step": 8,
        "block_steps": 10, "operators_ms": {"fp32": {"aten::mm": 1.0}, "bf16": {"aten::mm": 2.0}},
        "seconds": {"fp32": [1.0, 1.0, 1.1], "bf16": [2.0, 2.0, 2.5]}}"""
    (tmp_path / "benchmark.json").write_text(text % ("c" * 64))
    comparison = compared(tmp_path, "fp32,bf16", seeds=1, publish=True)
    row = rows_of(comparison)["bf16"]
    assert comparison.succeeded
    assert row.speedup == Speedup(value=math.exp(-math.log(2.0)), interval=None, starts=1)
    assert (row.samples_per_sec, row.slower_in) == (40.0, OperatorGrowth(name="aten::mm", fp32_ms=1.0, ms=2.0))


def test_a_measurement_of_speed_that_failed_says_why(tmp_path: Path) -> None:
    write_three(tmp_path)
    measured = read_record(Benchmark, tmp_path / "benchmark.json")
    for starts, said in ((0, "was not measured"), (1, "was measured in 1 process start alone")):
        reason = "RuntimeError: this model cannot be copied"
        record = measured.model_copy(update={"starts": measured.starts[:starts], "reason": reason})
        write_record(tmp_path / "benchmark.json", record)
        comparison = compared(tmp_path)
        assert not comparison.succeeded
        assert {row.reason for row in comparison.rows} == {f"its speed {said}: {reason}"}
        row = rows_of(comparison)["bf16"]
        assert (row.seeds, row.speedup is not None) == (3, bool(starts))


def test_mean_and_standard_deviation_against_numpy() -> None:
    values = np.random.default_rng(1).normal(size=7).tolist()
    assert mean(values) == pytest.approx(np.mean(values))
    assert standard_deviation(values) == pytest.approx(np.std(values, ddof=1))
    assert mean([]) is None
    assert standard_deviation([0.9]) is None
    assert standard_deviation([0.9, math.inf]) is None


def test_a_row_of_failed_runs_has_the_device_and_one_of_a_single_pair_the_margin(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", accuracy=0.91)
    write_run(tmp_path, "fp16", status="diverged", reason="loss is NaN")
    rows = rows_of(compared(tmp_path, seeds=1))
    assert [rows[name].device for name in ("fp32", "bf16", "fp16")] == ["Some CPU, 2 threads"] * 3
    assert (rows["bf16"].margin, rows["bf16"].verdict) == (0.005, None)
    assert rows["fp32"].margin is rows["fp16"].margin is None

"""`train.sync`: a record reaches Weights & Biases whole, once, and as what it is, whatever is there already."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.records.comparison import Comparison, Interval, Plan, Row, RunResult
from reports.records.config import read_config
from reports.records.environment import Environment
from reports.records.files import read_record, write_record, write_text
from reports.records.metric import Metric
from reports.records.metrics import read_lines, to_line
from reports.records.summary import read_summary
from tests.experiment.harness import offline_records
from tests.tracking.conftest import RESULTS, assert_rows, assert_whole, machine_of
from tests.tracking.wandb_server import ServedRun, WandbServer
from train import sync
from train.comparison_view import comparison_view
from train.experiment.folder import lock_folder
from train.tracking import wandb_run
from train.tracking.runs import replay, track_comparison

Output = pytest.CaptureFixture[str]


def edit(file: Path, **changes: object) -> None:
    """Change keys of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def cut(file: Path) -> None:
    """Leave the first half of a file, as a full disk may."""
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


def test_a_record_that_was_never_tracked_arrives_whole(server: WandbServer, record: Path, capfd: Output) -> None:
    assert sync.main([str(record)]) == 0
    [(run_id, there)] = server.runs.items()
    assert_whole(there, record)
    assert there.project == "amp-zoo"
    assert there.upserted["groupName"] == "resnet20_digits-37034051"
    assert there.upserted["jobType"] == "fp16"
    assert there.upserted["displayName"] == "resnet20_digits-fp16-s0"
    assert there.upserted["tags"] == ["resnet", "resnet20", "digits_16x16", "fp16"]
    config = {name: entry["value"] for name, entry in there.config.items() if name != "_wandb"}
    assert config == {
        **read_config(record / "config.yaml").model_dump(),
        **machine_of(record),
        "precision": "fp16",
        "seed": 0,
    }
    axes = there.config["_wandb"]["value"]["m"]
    names = [axis.get("1", axis.get("2")) for axis in axes]
    axis_of = {name: names[axis["5"] - 1] for name, axis in zip(names, axes, strict=True) if "5" in axis}
    assert axis_of == {"*": "train/step", "eval/accuracy": "train/step"}
    values = [row["eval/accuracy"] for row in read_lines(record / "metrics.jsonl")[0] if "eval/accuracy" in row]
    assert there.summary["eval/accuracy"] == {"max": max(values), "last": values[-1]}
    saved = read_summary(record / "summary.json").final["memory/saved_for_backward_mib"]
    assert there.summary["memory/saved_for_backward_mib"] == saved
    assert "throughput/reason" not in there.summary, "it was measured in the end"
    assert f"W&B: {server.url}/tester/amp-zoo/runs/{run_id}" in capfd.readouterr().out
    assert "wandb-metadata.json" not in there.files, "this machine is not the run's"


def test_given_twice_nothing_is_there_twice(server: WandbServer, record: Path) -> None:
    for _ in range(2):
        assert sync.main([str(record), str(record)]) == 0
    [there] = server.runs.values()
    assert_whole(there, record)
    assert [first for first, _ in there.requests] == [0]


@pytest.mark.parametrize("rows_there", [1, 5, 62])
def test_what_a_live_run_left_undone_is_completed(rows_there: int, server: WandbServer, record: Path) -> None:
    assert sync.main([str(record)]) == 0
    [there] = server.runs.values()
    del there.lines[rows_there:]
    there.summary = {"status": "interrupted", "final": {"amp/other": 1.0}, "of_an_older_version": 3, "_step": 0}
    there.exit_code = None
    there.requests.clear()
    assert sync.main([str(record)]) == 0
    assert [first for first, _ in there.requests[:1]] == [rows_there][: rows_there < 62]
    assert_whole(there, record)


def test_what_the_server_refused_follows_when_it_takes_it(server: WandbServer, record: Path) -> None:
    server.refuses_history = True
    sync.main([str(record)])
    [there] = server.runs.values()
    assert there.lines == []
    server.refuses_history = False
    assert sync.main([str(record)]) == 0
    assert_whole(there, record)


def test_a_killed_run_is_uploaded_up_to_its_last_whole_line(server: WandbServer, record: Path, capfd: Output) -> None:
    rows = read_lines(record / "metrics.jsonl")[0][:4]
    rows[2]["train/loss"] = math.nan
    (record / "metrics.jsonl").write_text("".join(map(to_line, rows)) + '{"train/loss": 0.3, "tra')
    (record / "summary.json").unlink()
    assert sync.main([str(record), "--project", "other"]) == 0
    assert "4 rows, failed; damaged lines left out of metrics.jsonl: 1" in capfd.readouterr().out
    [there] = server.runs.values()
    assert there.project == "other"
    assert_rows(there, rows)
    assert there.summary["memory/saved_for_backward_mib"] == rows[-1]["memory/saved_for_backward_mib"]
    assert "throughput/reason" not in there.summary, "that of the warm-up"
    assert (there.summary["status"], there.exit_code) == ("failed", 1)
    assert there.summary["reason"] == "no summary.json: the run was killed"


def _killed_smoke(folder: Path) -> None:
    (folder / "summary.json").unlink()
    attempt = {"command": "python -m train.resnet tiny.yaml --precision fp16 --smoke"}
    edit(folder / "environment.json", attempts=[attempt])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: edit(folder / "summary.json", status="done"), "fp16-s1/summary.json: status: input should be"),
        (lambda folder: cut(folder / "summary.json"), "fp16-s1/summary.json: not readable as JSON"),
        (lambda folder: edit(folder / "environment.json", seed="zero"), "fp16-s1/environment.json: seed: input"),
        (lambda folder: edit(folder / "environment.json", run_id=None), "fp16-s1/environment.json: run_id, seed"),
        (lambda folder: cut(folder / "config.yaml"), "fp16-s1/config.yaml: "),
        (lambda folder: (folder / "metrics.jsonl").write_text('{"train/loss": 0.'), "fp16-s1 has no metrics: "),
        (lambda folder: edit(folder / "summary.json", smoke=True), "fp16-s1 is a smoke run"),
        (_killed_smoke, "fp16-s1 is a smoke run"),
        (lambda folder: (folder / "config.yaml").unlink(), "fp16-s1 is not the folder of a run: it has no config.yaml"),
        (shutil.rmtree, "fp16-s1 is not the folder of a run: it has no environment.json; runs near it: "),
    ],
)
def test_what_is_no_record_is_named_before_anything_is_uploaded(
    spoil: Callable[[Path], object], message: str, server: WandbServer, record: Path, capfd: Output
) -> None:
    other = record.with_name("fp16-s1")
    shutil.copytree(record, other)
    spoil(other)
    assert sync.main([str(record), str(other)]) == 2
    assert message in capfd.readouterr().err
    assert not server.runs
    assert not list(record.rglob("*.wandb"))


def test_a_run_that_goes_on_is_left_alone(server: WandbServer, record: Path, capfd: Output) -> None:
    with lock_folder(record):
        assert sync.main([str(record)]) == 2
    assert f"{record} is in use by another process" in capfd.readouterr().err
    assert not server.runs


@pytest.mark.parametrize(
    ("mode", "project", "message"),
    [
        ("disabled", "mine", "WANDB_MODE is 'disabled'"),
        ("online", "a/b", "Invalid project name 'a/b'"),
        ("online", "", "project: the name is empty"),
    ],
)
def test_a_wrong_mode_or_project_is_refused(
    mode: str, project: str, message: str, record: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    assert sync.main([str(record), "--project", project]) == 2
    assert message in capfd.readouterr().err


def test_without_a_key_it_is_written_offline_once_and_never_asks(
    record: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr("sys.stdin", None)
    for earlier in (0, 1):
        assert sync.main([str(record)]) == 0
        [path] = record.glob("wandb/offline-run-*/*.wandb")
        assert len(list(record.glob("wandb/superseded/*/*.wandb"))) == earlier
        [line] = [line for line in capfd.readouterr().out.splitlines() if "W&B" in line]
        assert line == f"W&B offline: `wandb sync {path.parent}` uploads it"


def test_a_server_that_is_away_is_exit_status_1(
    server: WandbServer, record: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    server.shutdown()
    server.server_close()
    monkeypatch.setattr(wandb_run, "START_SECONDS", 2.0)
    assert sync.main([str(record)]) == 1
    assert f"{record} was not uploaded whole; the same command resumes from there" in capfd.readouterr().err


ACCURACY = Metric(name="accuracy", unit="%", range=(0, 1), higher_is_better=True, decimals=2)


@pytest.fixture
def experiment(record: Path) -> Path:
    """The folder of a comparison of three runs, one of which left no record."""
    folder = record.parent
    shutil.copytree(RESULTS / "fp32-s0", folder / "fp32-s0")
    absent = Row(experiment=folder.name, precision="bf16", seeds=0, pairs=0, status="missing", reason="killed")
    finished = {"seeds": 2, "status": "finished", "reason": None, "metric": ACCURACY, "samples_per_sec": 500.0}
    baseline = absent.model_copy(update={**finished, "precision": "fp32", "mean": 0.98})
    difference = {"difference": 0.01, "interval": Interval(value=0.01, low=-0.01, high=0.03), "verdict": "INCONCLUSIVE"}
    speed = {"speedup": Interval(value=1.2, low=1.1, high=1.3)}
    mixed = baseline.model_copy(update={**difference, **speed, "precision": "fp16", "pairs": 2, "mean": 0.99})
    rows = [baseline, mixed, absent]
    runs = [RunResult(precision=row.precision, seed=0, status=row.status, metrics=[ACCURACY]) for row in rows]
    names, command = [row.precision for row in rows], "python -m train.compare"
    environment = read_record(Environment, folder / "fp32-s0" / "environment.json")
    plan = Plan(command=command, margin=0.005, precisions=names, seeds=[0])
    comparison = Comparison(**dict(plan), experiment=folder.name, rows=rows, runs=runs, environment=environment)
    write_record(folder / "comparison.json", comparison)
    write_text(folder / "report.html", "<!DOCTYPE html><title>a report</title>")
    return folder


def comparison_on(server: WandbServer) -> ServedRun:
    """The only comparison there."""
    [there] = [run for run in server.runs.values() if run.upserted["jobType"] == "comparison"]
    return there


def results_on(server: WandbServer) -> list[dict[str, Any]]:
    """The artifacts with the records of comparisons."""
    return [artifact for artifact in server.artifacts if artifact["artifactTypeName"] == "results"]


def test_a_comparison_has_its_report_its_charts_and_every_figure(
    server: WandbServer, experiment: Path, capfd: Output
) -> None:
    assert sync.main([str(experiment)]) == 0
    assert f"left out: {experiment / 'bf16-s0'} is not the folder of a run" in capfd.readouterr().out
    assert len(server.runs) == 3
    for name in ("fp32-s0", "fp16-s0"):
        assert_whole(server.runs[str(replay(experiment / name).environment.run_id)], experiment / name)
    there = comparison_on(server)
    assert there.upserted["jobType"] == "comparison"
    assert there.upserted["notes"] == (
        "fp16: INCONCLUSIVE, accuracy 99.00% (n=2), difference vs FP32 +1.00 points [-1.00, 3.00], "
        "speed-up 1.20x.\nbf16: missing, killed."
    )
    config = {name: entry["value"] for name, entry in there.config.items() if name != "_wandb"}
    assert config == {
        **read_config(experiment / "fp32-s0" / "config.yaml").model_dump(),
        **machine_of(experiment / "fp32-s0"),
    }
    [artifact] = results_on(server)
    assert artifact["artifactCollectionName"] == "resnet20_digits-37034051"
    assert there.upserted["displayName"] == "resnet20_digits-comparison"
    assert there.exit_code == 1, "one of its rows is missing"
    comparison = read_record(Comparison, experiment / "comparison.json")
    for row in comparison.rows:
        assert there.summary[row.precision] == json.loads(row.model_dump_json(exclude_none=True))
    view = comparison_view(experiment, comparison)
    assert view.pages["report"] == (experiment / "report.html").read_text()
    assert {"charts/loss", "charts/scale"} <= view.pages.keys()
    for name, page in view.pages.items():
        assert there.files[there.summary[name]["path"]].decode() == page
        assert name == "report" or page.count("<img ") == 1
    table: dict[str, Any] = json.loads(there.files[there.summary["comparison"]["path"]])
    figures = [dict(zip(table["columns"], cells, strict=True)) for cells in table["data"]]
    assert [(row["precision"], row["mean"], row["difference_low"]) for row in figures] == [
        ("fp32", 0.98, None),
        ("fp16", 0.99, -0.01),
        ("bf16", None, None),
    ]


def test_a_comparison_given_twice_is_one_row_until_its_report_changes(server: WandbServer, experiment: Path) -> None:
    rows = []
    for change in ("", "", "<!-- other figures -->"):
        report = experiment / "report.html"
        report.write_text(report.read_text() + change)
        assert sync.main([str(experiment)]) == 0
        there = comparison_on(server)
        rows.append(len(there.lines))
        assert there.summary["fp16"]["verdict"] == "INCONCLUSIVE"
        assert there.files[there.summary["report"]["path"]] == report.read_bytes()
    assert rows == [1, 1, 2]
    assert len(results_on(server)) == 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: edit(folder / "comparison.json", seeds=3), "comparison.json: seeds: input should be"),
        (lambda folder: edit(folder / "comparison.json", smoke=True), "is a smoke comparison"),
        (lambda folder: cut(folder / "fp16-s0" / "summary.json"), "fp16-s0/summary.json: not readable as JSON"),
        (lambda folder: list(map(shutil.rmtree, folder.glob("*-s0"))), "has no record of a run"),
    ],
)
def test_a_comparison_that_is_damaged_or_has_a_damaged_run_is_refused_whole(
    spoil: Callable[[Path], object], message: str, server: WandbServer, experiment: Path, capfd: Output
) -> None:
    spoil(experiment)
    assert sync.main([str(experiment)]) == 2
    error = capfd.readouterr().err
    assert error.startswith(f"error: {experiment}")
    assert message in error
    assert not server.runs


def test_the_records_of_a_comparison_are_an_artifact(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("results.csv", "results.md", "benchmark.json"):
        write_text(experiment / name, "a record")
    assert sync.main([str(experiment)]) == 0
    [path] = experiment.glob("wandb/offline-run-*/*.wandb")
    artifacts = [record.artifact for record in offline_records(path) if record.artifact.type == "results"]
    files = {entry.path: entry.local_path for artifact in artifacts for entry in artifact.manifest.contents}
    names = ("comparison.json", "results.csv", "results.md", "benchmark.json", "report.html")
    assert files == {name: str(experiment / name) for name in names}


def test_equal_comparisons_of_two_machines_are_two_runs(server: WandbServer, experiment: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / experiment.name
    shutil.copytree(experiment, other)
    edit(other / "fp32-s0" / "environment.json", run_id="00000001")
    edit(other / "comparison.json", environment=json.loads((other / "fp32-s0" / "environment.json").read_text()))
    assert sync.main([str(experiment), str(other)]) == 0
    assert len([run for run in server.runs.values() if run.upserted["jobType"] == "comparison"]) == 2


def test_a_view_that_failed_is_sent_by_the_next_upload(
    server: WandbServer, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("wandb.Table", lambda **given: 1 / 0)
        assert sync.main([str(experiment)]) == 1
    assert "view_sha256" not in comparison_on(server).summary
    assert sync.main([str(experiment)]) == 0
    assert comparison_on(server).summary["comparison"]["path"]


def test_a_smoke_comparison_is_not_tracked(server: WandbServer, experiment: Path) -> None:
    comparison = read_record(Comparison, experiment / "comparison.json").model_copy(update={"smoke": True})
    config = read_config(experiment / "fp32-s0" / "config.yaml")
    tracker = track_comparison(experiment, config, comparison, comparison_view(experiment, comparison))
    assert tracker.location() is None
    assert not server.runs
    assert not list(experiment.rglob("wandb"))

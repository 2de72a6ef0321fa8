"""The comparison, through the command that people use."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from reports.analysis.comparison import COLUMNS
from train import compare
from train.cli import child
from train.engine.errors import Interrupted

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "resnet20_digits.yaml"
SMALL = [
    "epochs=null",
    "max_steps=8",
    "data.train_samples=64",
    "data.eval_samples=32",
    "batch_size=8",
    "log_every=1",
    "schedule.warmup=0",
]


def command(out: Path, *arguments: str) -> list[str]:
    module = [sys.executable, "-m", "train.compare", str(CONFIG)]
    return [*module, "--out", str(out), "--device", "cpu", *arguments]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "WANDB_MODE": "disabled", "PYTHONPATH": str(ROOT), **extra}


def run(out: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(out, *arguments), cwd=ROOT, env=environment(**extra), capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("comparison")
    done = run(out, "--precisions", "fp32,bf16,fp16", "--seeds", "1", *SMALL, WANDB_MODE="offline")
    return out / "resnet20_digits", done


def test_every_file_of_the_contract_is_written(finished):
    folder, done = finished
    assert done.returncode == 0, done.stderr
    for name in ("comparison.json", "benchmark.json", "report.html", "results.md", "results.csv"):
        assert (folder / name).stat().st_size > 0
    for precision in ("fp32", "bf16", "fp16"):
        run_folder = folder / f"{precision}-s0"
        assert {path.name for path in run_folder.iterdir()} >= {
            "config.yaml",
            "environment.json",
            "metrics.jsonl",
            "summary.json",
            "checkpoints",
        }
        assert list(run_folder.glob("wandb/offline-run-*/*.wandb"))
    assert list(folder.glob("wandb/offline-run-*/*.wandb")), "the comparison is a W&B run too"


def test_the_table_is_the_record(finished):
    folder, done = finished
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["precision"] for row in rows] == ["fp32", "bf16", "fp16"]
    for row in rows:
        summary = json.loads((folder / f"{row['precision']}-s0" / "summary.json").read_text())
        assert float(row["mean"]) == summary["final"]["eval/accuracy"]
        assert int(row["skipped_steps"]) == summary["skipped_steps"]
        assert float(row["saved_ratio"]) == pytest.approx(
            float(row["saved_for_backward_mib"]) / float(rows[0]["saved_for_backward_mib"])
        )
        assert row["status"] == "finished"
        assert f"| {row['precision']} |" in done.stdout
    assert float(rows[1]["saved_ratio"]) <= 0.65
    assert float(rows[2]["saved_ratio"]) <= 0.65
    assert "single run" in done.stdout


def test_a_pair_shares_weights_and_data_order(finished):
    folder, _ = finished
    summaries = [json.loads(path.read_text()) for path in folder.glob("*/summary.json")]
    assert len(summaries) == 3
    for key in ("initial_weights_sha256", "data_order_sha256", "config_sha256"):
        assert len({summary[key] for summary in summaries}) == 1


def test_finished_runs_are_reused_and_missing_ones_filled_in(finished):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("fp*-s0/metrics.jsonl")}
    weights = json.loads((folder / "bf16-s0" / "summary.json").read_text())["final_weights_sha256"]
    shutil.rmtree(folder / "bf16-s0")
    done = run(folder.parent, "--precisions", "fp32,bf16,fp16", "--seeds", "1", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished already, reused") == 2
    assert "speed measured already, reused" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert json.loads((folder / "bf16-s0" / "summary.json").read_text())["final_weights_sha256"] == weights


def test_a_precision_in_which_the_model_is_refused_is_a_row_that_says_why(finished, tmp_path, monkeypatch):
    shutil.copytree(finished[0], tmp_path / "resnet20_digits")
    shutil.rmtree(tmp_path / "resnet20_digits" / "bf16-s0")
    program = (
        "from train.engine.errors import Refused; from train.cli.options import finish; import sys\n"
        "def run(): raise Refused('scatter fails in bf16')\n"
        "sys.exit(finish(run))"
    )
    real = subprocess.Popen
    monkeypatch.setattr(
        child.subprocess, "Popen", lambda _, **options: real([sys.executable, "-c", program], **options)
    )
    monkeypatch.setenv("WANDB_MODE", "disabled")
    arguments = [str(CONFIG), "--out", str(tmp_path), "--device", "cpu", "--seeds", "1", *SMALL]
    assert compare.main(arguments) == 1
    rows = json.loads((tmp_path / "resnet20_digits" / "comparison.json").read_text())["rows"]
    assert [row["status"] for row in rows if row["precision"] == "bf16"] == ["failed"]
    assert "refused: scatter fails in bf16" in next(row["reason"] for row in rows if row["precision"] == "bf16")
    shutil.rmtree(tmp_path / "resnet20_digits")
    assert compare.main(arguments) == 2  # nothing was trained: the command is refused


def test_runs_of_another_configuration_are_refused_before_any_work(finished, capsys):
    folder, _ = finished
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    assert compare.main([str(CONFIG), "--out", str(folder.parent), "--seeds", "1", *SMALL, "optimizer.lr=0.07"]) == 2
    assert "optimizer.lr is 0.05 there and 0.07 here" in capsys.readouterr().err
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precisions", "fp32,fp8"], "unknown precision 'fp8'"),
        (["--precisions", "fp32,tf32"], "It can run: fp32, bf16, fp16"),
        (["--seeds", "0"], "--seeds: 0 is not at least 1"),
        (["optimiser.lr=0.1"], "did you mean 'optimizer'?"),
    ],
)
def test_wrong_usage_is_refused_before_any_work(tmp_path, capsys, arguments, message):
    assert compare.main([str(CONFIG), "--device", "cpu", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wrong_option_is_refused_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as stopped:
        compare.main([str(CONFIG), "--seed", "3"])
    assert stopped.value.code == 2
    assert "did you mean --seeds?" in capsys.readouterr().err


def test_a_diverged_run_is_a_row_with_its_reason(tmp_path):
    # A scale that may not fall is under its floor after the first overflow.
    scaler = ["scaler.init_scale=1e30", "scaler.min_scale=1e29"]
    done = run(tmp_path, "--precisions", "fp32,fp16", "--seeds", "1", "--smoke", *scaler)
    assert done.returncode == 3
    assert "fell to" in done.stdout
    rows = json.loads((tmp_path / "smoke" / "resnet20_digits" / "comparison.json").read_text())["rows"]
    assert [row["status"] for row in rows] == ["finished", "diverged"]
    assert rows[1]["mean"] is None
    assert rows[0]["mean"] is not None


def started(out: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A comparison of FP32 alone whose run has logged three steps, and the folder of that run."""
    shown = command(out, "--precisions", "fp32", "--seeds", "1", *SMALL, *arguments)
    process = subprocess.Popen(shown, cwd=ROOT, env=environment(), stderr=subprocess.PIPE)
    folder = out / "resnet20_digits" / "fp32-s0"
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    return process, folder


def status_of(folder: Path) -> str:
    return json.loads((folder / "summary.json").read_text())["status"]


def test_an_interrupted_comparison_goes_on(tmp_path):
    process, folder = started(tmp_path, "max_steps=80")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75
    assert status_of(folder) == "interrupted"
    done = run(tmp_path, "--precisions", "fp32", "--seeds", "1", *SMALL, "max_steps=80")
    assert done.returncode == 0, done.stderr
    assert "going on from step" in done.stdout
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["train/step"] for line in lines if '"train/loss"' in line]
    assert steps == list(range(1, 81))


def test_a_hangup_interrupts_a_comparison_as_sigterm_does(tmp_path):
    process, folder = started(tmp_path, "max_steps=100000")
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 75
    assert status_of(folder) == "interrupted"


def test_a_killed_comparison_leaves_no_run_behind(tmp_path):
    process, folder = started(tmp_path, "max_steps=100000")
    (orphan,) = psutil.Process(process.pid).children()
    try:
        process.kill()
        process.wait(timeout=60)
        orphan.wait(timeout=30)  # raises when it goes on
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    assert status_of(folder) == "interrupted"


def test_a_signal_while_a_run_is_being_started_stops_that_run(monkeypatch):
    started, start = child.Child(), subprocess.Popen

    def interrupted(*arguments, **options):
        process = start(*arguments, **options)
        started.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(child.subprocess, "Popen", interrupted)
    with pytest.raises(Interrupted):
        started.call(["timeit", "--number", "1", "--repeat", "1", "import time; time.sleep(20)"])
    assert started.process.returncode == -signal.SIGTERM

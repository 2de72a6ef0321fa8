"""The comparison: its files, what it reuses and refuses, and how it is stopped."""

import contextlib
import csv
import functools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor, nn

from reports.records.files import read_record
from reports.records.layout import COLUMNS
from reports.records.metrics import LOSS, read_history
from reports.records.summary import Summary
from tests.comparisons import TASK, Compared, copy_of, run_comparison
from tests.experiment.harness import DIGITS_SHORT, ROOT, start, wait
from train import compare
from train.cli import child
from train.engine.errors import Interrupted
from train.engine.step import Batch
from train.experiment.tasks import classify_images

PRECISIONS = ("fp32", "bf16", "fp16")
LENET = ROOT / "configs" / "lenet5_digits.yaml"
SLEEP = ["timeit", "--number", "1", "--repeat", "1", "import time; time.sleep(20)"]
SHORT = [*DIGITS_SHORT, "schedule.warmup=0", "eval_every=100"]


def test_every_file_of_the_contract_is_written(compared: Compared) -> None:
    assert compared.status == 0, compared.err
    for name in ("comparison.json", "benchmark.json", "report.html", "results.md", "results.csv"):
        assert (compared.folder / name).stat().st_size > 0
    for run in compared.comparison.runs:
        folder = compared.folder / run.name
        parts = {"config.yaml", "environment.json", "metrics.jsonl", "summary.json", "checkpoints"}
        assert {path.name for path in folder.iterdir()} >= parts
        assert list(folder.glob("wandb/offline-run-*/*.wandb"))
    assert list(compared.folder.glob("wandb/offline-run-*/*.wandb")), "the comparison is a W&B run too"


def test_the_table_is_the_record(compared: Compared) -> None:
    with (compared.folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[: len(COLUMNS)] == COLUMNS
    assert [row["precision"] for row in rows] == list(PRECISIONS)
    for row in rows:
        runs = [compared.summary(f"{row['precision']}-s{seed}") for seed in (0, 1)]
        values = [run.figure("eval/accuracy") or 0.0 for run in runs]
        assert float(row["mean"]) == sum(values) / 2
        assert int(row["skipped_steps"]) == sum(run.skipped_steps or 0 for run in runs)
        assert float(row["saved_ratio"]) == pytest.approx(
            float(row["saved_for_backward_mib"]) / float(rows[0]["saved_for_backward_mib"])
        )
        assert row["status"] == "finished"
        assert f"| {row['precision']} |" in compared.out
    assert float(rows[1]["saved_ratio"]) <= 0.65
    assert float(rows[2]["saved_ratio"]) <= 0.65


def test_a_pair_shares_weights_and_data_order(compared: Compared) -> None:
    assert len(compared.comparison.runs) == 6
    for seed in (0, 1):
        summaries = [compared.summary(f"{precision}-s{seed}") for precision in PRECISIONS]
        assert len({summary.initial_weights_sha256 for summary in summaries}) == 1
        assert len({summary.data_order_sha256 for summary in summaries}) == 1
        assert len({summary.config_sha256 for summary in summaries}) == 1


def test_finished_runs_are_reused_and_missing_ones_filled_in(compared: Compared, tmp_path: Path) -> None:
    folder = copy_of(compared, tmp_path)
    before = written(folder, "fp*-s0/metrics.jsonl")
    shutil.rmtree(folder / "bf16-s0")
    again = run_comparison(tmp_path, "--seeds", "1")
    assert again.status == 0, again.err
    assert again.out.count("finished already, reused") == 5
    assert "speed measured already, reused" in again.out
    assert again.comparison.seeds == [0, 1]  # fewer seeds later keep the larger result
    assert written(folder, "fp*-s0/metrics.jsonl").items() >= before.items()
    weights = compared.summary("bf16-s0").final_weights_sha256
    assert again.summary("bf16-s0").final_weights_sha256 == weights


def scatter(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Fails under autocast alone: the accumulator is float32."""
    logits, labels = classify_images(model, batch)
    return torch.zeros(logits.shape).scatter_add(1, torch.zeros_like(logits, dtype=torch.int64), logits), labels


def test_a_precision_in_which_the_model_is_refused_is_a_row_that_says_why(compared: Compared, tmp_path: Path) -> None:
    shutil.rmtree(copy_of(compared, tmp_path) / "bf16-s0")
    task = replace(TASK, forward=scatter)
    done = run_comparison(tmp_path, "--seeds", "1", task=task)
    assert done.status == 1
    row = done.comparison.row("bf16")
    assert row is not None
    assert row.status == "failed"
    assert row.reason is not None
    assert "refused: tiny: torch.Tensor.scatter_add" in row.reason
    nothing = run_comparison(tmp_path / "other", "--seeds", "1", "--precisions", "bf16", task=task)
    assert nothing.status == 2  # nothing was trained: the command is refused
    assert "bf16-s0 was refused, for the reason above" in nothing.err


def test_a_run_that_a_signal_killed_is_a_row_that_says_which(compared: Compared, tmp_path: Path) -> None:
    class Killed(child.Child):
        def call(self, arguments: Sequence[str]) -> int:
            return -signal.SIGKILL

    shutil.rmtree(copy_of(compared, tmp_path) / "bf16-s0")
    done = run_comparison(tmp_path, "--seeds", "1", child=Killed)
    assert done.status == 1
    killed = {run.name: run.reason for run in done.comparison.runs if run.reason}
    assert killed == {"bf16-s0": "killed by signal 9"}


def test_a_run_by_itself_gives_its_exit_status_and_why() -> None:
    started = child.Child()
    assert started.call(["train.lenet", "configs/nothing.yaml", "--precision", "fp32"]) == 2
    assert "unknown configuration file 'configs/nothing.yaml'" in started.reason


def test_runs_of_another_configuration_are_refused_before_any_work(compared: Compared) -> None:
    before = written(compared.folder, "**/*")
    refused = run_comparison(compared.folder.parent, "--seeds", "1", "optimizer.lr=0.07")
    assert refused.status == 2
    assert "optimizer.lr is 0.05 there and 0.07 here" in refused.err
    assert written(compared.folder, "**/*") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--precisions", "fp32,fp8"], "unknown precision 'fp8'"),
        (["--precisions", "fp32,tf32"], "It can run: fp32, bf16, fp16"),
        (["--seeds", "0"], "--seeds: 0 is not at least 1"),
        (["optimiser.lr=0.1"], "did you mean 'optimizer'?"),
    ],
)
def test_wrong_usage_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert compare.main([str(LENET), "--device", "cpu", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_wrong_option_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        compare.main([str(LENET), "--seed", "3"])
    assert stopped.value.code == 2
    assert "did you mean --seeds?" in capsys.readouterr().err


def test_a_diverged_run_is_a_row_with_its_reason(tmp_path: Path) -> None:
    # A scale that may not fall is under its floor after the first overflow.
    scaler = ["scaler.init_scale=1e30", "scaler.min_scale=1e29"]
    done = run_comparison(tmp_path, "--precisions", "fp32,fp16", "--seeds", "1", "--smoke", *scaler)
    assert done.status == 3
    assert "fell to" in done.out
    fp32, fp16 = done.comparison.rows
    assert (fp32.status, fp16.status) == ("finished", "diverged")
    assert fp16.mean is None
    assert fp32.mean is not None


def comparison_apart(out: Path, log: Path, steps: int) -> tuple[BaseProcess, Path]:
    """A comparison of FP32 alone, in a process of its own, whose run has logged three steps; the run's folder."""
    arguments = [str(LENET), "--out", str(out), "--device", "cpu", "--precisions", "fp32", "--seeds", "1"]
    process = start(functools.partial(compare.main, [*arguments, *SHORT, f"max_steps={steps}"]), log)
    folder = out / LENET.stem / "fp32-s0"
    deadline = time.monotonic() + 120
    while len(losses(folder)) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    return process, folder


def send(process: BaseProcess, number: signal.Signals) -> None:
    assert process.pid is not None
    os.kill(process.pid, number)


def losses(folder: Path) -> dict[int, float]:
    """The training loss by step, each step once."""
    rows = read_history(folder / "metrics.jsonl").rows_with(LOSS)
    by_step = {int(row["train/step"]): row[LOSS] for row in rows}
    assert len(by_step) == len(rows)
    return by_step


def status_of(folder: Path) -> str:
    return read_record(Summary, folder / "summary.json").status


def written(folder: Path, pattern: str) -> dict[Path, int]:
    """When each file was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob(pattern)}


def test_an_interrupted_comparison_resumes(tmp_path: Path, log: Path) -> None:
    process, folder = comparison_apart(tmp_path, log, 400)
    send(process, signal.SIGTERM)
    assert wait(process) == 75
    assert status_of(folder) == "interrupted"
    done = run_comparison(tmp_path, "--precisions", "fp32", "--seeds", "1", *SHORT, "max_steps=400", path=LENET)
    assert done.status == 0, done.err
    assert "resumes from step" in done.out
    assert list(losses(folder)) == list(range(1, 401))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_signal_that_asks_for_an_end_stops_the_run_and_the_comparison(
    number: signal.Signals, tmp_path: Path
) -> None:
    ended: list[int | None] = []

    class Signalled(child.Child):
        def call(self, arguments: Sequence[str]) -> int:
            threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
            try:
                return super().call(SLEEP)
            finally:
                ended.append(self.process.returncode if self.process else None)

    done = run_comparison(tmp_path, "--seeds", "1", child=Signalled)
    assert done.status == 75
    assert done.err == "interrupted: the comparison was stopped; the same command resumes from there\n"
    assert ended == [-signal.SIGTERM], "the first run got the signal, and no other run was started"


def test_a_killed_comparison_leaves_no_run_behind(tmp_path: Path, log: Path) -> None:
    process, folder = comparison_apart(tmp_path, log, 100_000)
    (orphan,) = psutil.Process(process.pid).children()
    try:
        process.kill()
        assert wait(process) == -signal.SIGKILL
        orphan.wait(timeout=30)  # raises when it keeps running
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphan.kill()
    assert status_of(folder) == "interrupted"


def test_a_signal_while_a_run_is_being_started_stops_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, start = child.Child(), subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = start(*arguments, **options)  # type: ignore[call-overload]
        commands.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(child.subprocess, "Popen", interrupted)
    with pytest.raises(Interrupted):
        commands.call(SLEEP)
    assert commands.process is not None
    assert commands.process.returncode == -signal.SIGTERM

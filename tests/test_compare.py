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

from reports.records.config import Experiment
from reports.records.files import read_record
from reports.records.layout import COLUMNS
from reports.records.metrics import LOSS, read_history
from reports.records.summary import Summary
from tests.comparisons import TASK, ChildInThisProcess, Compared, copy_of, run_comparison
from tests.experiment.harness import DIGITS_SHORT, ROOT, start, wait
from train import compare
from train.cli import child
from train.data.specification import DataSpec, Splits
from train.engine.errors import Interrupted
from train.engine.step import Batch
from train.experiment.folder import lock_folder
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
        assert f"\n{row['precision']} " in compared.out
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
    assert "[2/6] bf16 seed 0 (about" in again.out
    assert "speed measured already in 3 process starts, reused" in again.out
    assert again.comparison.seeds == [0, 1]  # fewer seeds later keep the larger result
    assert written(folder, "fp*-s0/metrics.jsonl").items() >= before.items()
    weights = compared.summary("bf16-s0").final_weights_sha256
    assert again.summary("bf16-s0").final_weights_sha256 == weights


def test_a_smaller_comparison_keeps_what_an_earlier_one_has(compared: Compared, tmp_path: Path) -> None:
    copy_of(compared, tmp_path)
    again = run_comparison(tmp_path, "--seeds", "1", "--precisions", "fp32,bf16")
    assert again.status == 0, again.err
    assert "the earlier comparison is kept: seed 1, fp16 stay in it\n" in again.out
    before, after = compared.comparison, again.comparison
    assert (after.seeds, after.precisions) == (before.seeds, before.precisions)
    assert [(row.seeds, row.mean, row.verdict) for row in after.rows] == [
        (row.seeds, row.mean, row.verdict) for row in before.rows
    ]


def test_an_earlier_comparison_of_another_configuration_adds_nothing(compared: Compared, tmp_path: Path) -> None:
    folder = copy_of(compared, tmp_path)
    for run in folder.glob("*-s*"):
        shutil.rmtree(run)
    plan = planned(tmp_path, "optimizer.lr=0.06")
    assert plan[0] == "tiny: 1 run (fp32; 1 seed)"


def planned(out: Path, *arguments: str) -> list[str]:
    """The lines of `--plan` for FP32 and one seed."""
    done = run_comparison(out, "--plan", "--precisions", "fp32", "--seeds", "1", *arguments)
    assert done.status == 0, done.err
    return done.out.splitlines()


def test_the_plan_counts_runs_and_finished_ones_and_starts_nothing(compared: Compared, tmp_path: Path) -> None:
    new = planned(tmp_path)
    assert new[0] == "tiny: 1 run (fp32; 1 seed)"
    assert "time not known before the first run; disk not known" in new[2]
    assert list(tmp_path.iterdir()) == []
    folder = copy_of(compared, tmp_path)
    shutil.rmtree(folder / "fp32-s1")
    before = written(tmp_path, "**/*")
    assert planned(tmp_path, "--seeds", "2", "--precisions", "fp32,fp16") == [
        "tiny: 4 runs (fp32, fp16; 2 seeds), 3 of them finished already",
        *planned(tmp_path, "--seeds", "2", "--precisions", "fp32,fp16")[1:],
    ]
    again = planned(tmp_path, "--seeds", "2", "--precisions", "fp32,fp16")[2]
    assert "about 10 s to train, then the speed; up to 1 MiB of disk" in again
    assert planned(tmp_path, "--seeds", "1")[0] == "tiny: 2 runs (fp32; 2 seeds), 1 of them finished already"
    assert written(tmp_path, "**/*") == before


class StoppedAtOnce(ChildInThisProcess):
    """Gets a SIGINT while the first run that is not finished is being started."""

    def call(self, arguments: Sequence[str]) -> int:
        self.stop(signal.SIGINT, None)
        return super().call(arguments)


def test_a_stopped_comparison_leaves_the_table_of_what_is_finished(compared: Compared, tmp_path: Path) -> None:
    folder = copy_of(compared, tmp_path)
    for name in ("fp16-s0", "fp16-s1", "bf16-s1"):
        shutil.rmtree(folder / name)
    for name in ("comparison.json", "results.md", "results.csv", "report.html"):
        (folder / name).unlink()
    done = run_comparison(tmp_path, "--seeds", "3", child=StoppedAtOnce)
    assert done.status == 75
    assert done.err == "interrupted: SIGINT: the comparison was stopped; the same command resumes from there\n"
    stopped = "Partial, of the runs that are finished and without verdicts: SIGINT: the comparison was stopped"
    assert stopped in " ".join(done.out.split())
    assert done.comparison.partial == "SIGINT: the comparison was stopped"
    assert done.comparison.seeds == [0, 1]
    assert [row.seeds for row in done.comparison.rows] == [2, 1, 0]
    for name in ("results.md", "report.html"):
        assert "Partial, of the runs that are finished" in (folder / name).read_text()
    assert (folder / "results.csv").exists()
    done = run_comparison(tmp_path, "--seeds", "2")
    assert done.status == 0, done.err
    assert done.comparison.partial is None


def scatter(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Fails under autocast alone: the accumulator is float32."""
    logits, labels = classify_images(model, batch)
    return torch.zeros(logits.shape).scatter_add(1, torch.zeros_like(logits, dtype=torch.int64), logits), labels


def test_a_precision_in_which_the_model_is_refused_is_a_row_that_says_why(tmp_path: Path) -> None:
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


class NoChild(child.Child):
    """Fails the test that starts a process."""

    def call(self, arguments: Sequence[str]) -> int:
        raise AssertionError(f"started {arguments}")


def narrower(config: Experiment) -> nn.Module:
    """Another network than that of `comparisons.build`, in another file."""
    return nn.Sequential(nn.Flatten(), nn.Linear(32 * 32, config.num_classes or 0))


def test_finished_runs_of_another_source_are_refused_before_any_work(compared: Compared, tmp_path: Path) -> None:
    folder = copy_of(compared, tmp_path)
    before = written(folder, "**/*.*")
    again = run_comparison(tmp_path, "--seeds", "3", build=narrower, child=NoChild)
    assert again.status == 2
    assert again.err == (
        f"error: {folder / 'fp32-s0'} is finished, but would not be the same run now: another initial weights, "
        "another source of the model. Either delete that folder, or choose another --out; "
        "a run by itself starts again with --resume never\n"
    )
    assert written(folder, "**/*.*") == before


def test_runs_on_other_threads_are_refused_with_the_number_that_fits(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of(compared, tmp_path)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 1)
    again = run_comparison(tmp_path, "--seeds", "2", child=NoChild)
    assert again.status == 2
    assert f"{folder / 'fp32-s0'} is finished, but would not be the same run now: threads {threads} there" in again.err
    assert f" Either set OMP_NUM_THREADS={threads}, delete that folder, or choose another --out; " in again.err


def test_the_data_are_loaded_once_to_reuse_many_runs(
    compared: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of(compared, tmp_path)
    loads: list[object] = []

    @functools.wraps(TASK.load)
    def load(spec: DataSpec) -> Splits:
        loads.append(spec)
        return TASK.load(spec)

    assert run_comparison(tmp_path, "--seeds", "2", task=replace(TASK, load=load), child=NoChild).status == 0
    assert len(loads) == 1


def test_a_second_comparison_of_a_folder_is_refused(compared: Compared, tmp_path: Path) -> None:
    folder = copy_of(compared, tmp_path)
    before = written(folder, "**/*.json")
    with lock_folder(folder):
        second = run_comparison(tmp_path, "--seeds", "2", child=NoChild)
    assert second.status == 2
    assert second.err == f"error: output folder {folder} is in use by another process\n"
    assert written(folder, "**/*.json") == before


@pytest.mark.parametrize("begun", [True, False])
def test_nothing_is_written_into_a_run_that_another_process_holds(
    begun: bool, compared: Compared, tmp_path: Path
) -> None:
    folder = copy_of(compared, tmp_path)
    held = folder / "fp16-s1"
    (held / "summary.json").unlink()
    if not begun:
        for file in held.glob("*.*"):
            file.unlink()
    before = written(held, "*")
    with lock_folder(held):
        second = run_comparison(tmp_path, "--seeds", "2")
    assert second.status == 2
    assert f"error: output folder {held} is in use by another process\n" in second.err
    assert {name: time for name, time in written(held, "*").items() if name.name != ".lock"} == {
        name: time for name, time in before.items() if name.name != ".lock"
    }


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
    scaler = ["scaler.init_scale=1e30", "scaler.max_consecutive_skips=2"]
    done = run_comparison(tmp_path, "--precisions", "fp32,fp16", "--seeds", "1", "--smoke", *scaler)
    assert done.status == 3
    assert "2 steps in a row were skipped as not finite" in done.out
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
    assert done.err == f"interrupted: {number.name}: the comparison was stopped; the same command resumes from there\n"
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

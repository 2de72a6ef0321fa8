"""A run from the command line to its record: resume, signals, pairs, and how a run may end."""

import functools
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reports.analysis.run import read_run
from reports.records.config import Experiment
from reports.records.summary import Steps
from tests.experiment.harness import (
    DIGITS,
    DIGITS_SHORT,
    TINY,
    AtCall,
    Outcome,
    Poisoned,
    TinyNet,
    build,
    folder_of,
    run,
    run_apart,
    script,
    snapshot,
    start,
    wait,
)
from train import resnet
from train.cli import terminal
from train.engine.step import Batch, Trainer
from train.experiment import run as run_module
from train.experiment.config import load
from train.experiment.folder import RunFolder, open_folder
from train.experiment.optimizers import build_schedule
from train.experiment.run import Services, execute, prepare
from train.experiment.setup import Script
from train.experiment.tasks import image_classification
from train.tracking.runs import track_run

TERM = functools.partial(signal.raise_signal, signal.SIGTERM)


def assert_same_run(resumed: Outcome, uninterrupted: Outcome) -> None:
    """Bit-equal weights, and the same lines: each step once, in order."""
    assert resumed.status == 0, resumed.err
    assert resumed.numbers == uninterrupted.numbers
    for name in ("status", "final_weights_sha256", "initial_weights_sha256", "data_order_sha256", "steps", "best"):
        assert getattr(resumed.summary, name) == getattr(uninterrupted.summary, name), name
    assert list(resumed.losses) == list(range(1, 13))
    assert list(resumed.column("eval/accuracy")) == [6, 12]


# Resume


@pytest.mark.parametrize("step", [1, 5, 6, 8])
def test_sigterm_in_a_step_then_resume_is_the_same_run(step: int, finished: Outcome, tmp_path: Path) -> None:
    precision = finished.folder.name.partition("-")[0]
    stopped = run(tmp_path, precision=precision, forward=AtCall(step, TERM))
    reason = "stopped while evaluating" if step == 6 else f"stopped at step {step} of 12"
    assert stopped.status == 75
    assert stopped.err.splitlines() == [
        f"interrupted: SIGTERM: {reason}; the same command resumes from there",
    ]
    assert stopped.summary.status == "interrupted"
    assert stopped.reason == reason
    assert stopped.summary.steps == Steps(planned=12, attempted=step, applied=step)
    resumed = run(tmp_path, precision=precision)
    assert f"resumes from step {step} of 12" in resumed.out
    assert [attempt.from_step for attempt in resumed.environment.attempts] == [0, step]
    assert_same_run(resumed, finished)


@pytest.mark.parametrize(
    ("batch", "number"), [(1, signal.SIGTERM), (4, signal.SIGINT), (5, signal.SIGINT), (8, signal.SIGTERM)]
)
def test_a_signal_in_an_evaluation_then_resume_is_the_same_run(
    batch: int, number: int, fp32: Outcome, tmp_path: Path
) -> None:
    at_batch = AtCall(batch, functools.partial(signal.raise_signal, number), training=False)  # four in an evaluation
    stopped = run(tmp_path, forward=at_batch)
    assert stopped.status == 75
    assert stopped.summary.status == "interrupted"
    assert "eval/accuracy" not in stopped.rows[-1]
    assert_same_run(run(tmp_path), fp32)


class Drawing(TinyNet):
    """Draws random numbers in evaluation too."""

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits + 0.1 * torch.randn_like(logits)


def test_a_signal_in_an_evaluation_that_draws_then_resume_is_the_same_run(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", build=lambda config: Drawing(10))
    assert run(tmp_path, build=lambda config: Drawing(10), forward=AtCall(2, TERM, training=False)).status == 75
    resumed = run(tmp_path, build=lambda config: Drawing(10))
    assert resumed.summary.final_weights_sha256 == whole.summary.final_weights_sha256
    assert resumed.figure("eval/loss") == whole.figure("eval/loss")


def test_a_step_of_more_micro_batches_than_an_epoch_has_ends(tmp_path: Path) -> None:
    done = run(tmp_path, "accumulate=1000000000", "epochs=1", "max_steps=null")
    assert (done.status, done.summary.steps.attempted) == (0, 1)


def test_a_signal_before_the_first_step_then_resume_is_the_same_run(
    fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(*arguments: object, **more: object) -> RunFolder:
        TERM()
        return open_folder(*arguments, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "open_folder", terminated)
        stopped = run(tmp_path)
    assert stopped.status == 75
    assert stopped.summary.steps.attempted in (0, 1)
    assert_same_run(run(tmp_path), fp32)


def test_a_signal_in_the_last_evaluation_in_fp32_then_resume_is_the_same_run(bf16: Outcome, tmp_path: Path) -> None:
    stopped = run(tmp_path, precision="bf16", forward=AtCall(9, TERM, training=False))
    assert stopped.status == 75
    assert_same_run(run(tmp_path, precision="bf16"), bf16)


def test_a_signal_in_the_last_step_loses_nothing(fp32: Outcome, tmp_path: Path) -> None:
    stopped = run(tmp_path, forward=AtCall(12, TERM))
    assert stopped.status in (0, 75)
    assert_same_run(run(tmp_path) if stopped.status else stopped, fp32)


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path, log: Path) -> None:
    assert run_apart(tmp_path, log, forward=AtCall(5, _terminate_twice)) == -signal.SIGTERM
    left = Outcome(0, "", "", folder_of(tmp_path, TINY, "fp32"))
    assert list(left.losses) == [1, 2, 3, 4]
    assert not (left.folder / "summary.json").exists()


def _terminate_twice() -> None:
    TERM()
    TERM()


def test_sigterm_from_outside_stops_the_command_in_time(tmp_path: Path, log: Path) -> None:
    overrides = (*DIGITS_SHORT, "max_steps=20", "eval_every=20")
    arguments = (str(DIGITS), "--precision", "fp32", "--device", "cpu", "--out", str(tmp_path / "stopped"))
    process = start(functools.partial(script, *arguments, *overrides), log)
    metrics = folder_of(tmp_path / "stopped", DIGITS, "fp32") / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    assert wait(process, 10) == 75
    resumed, whole = (
        run(tmp_path / name, *overrides, config=DIGITS, build=resnet.build) for name in ("stopped", "whole")
    )
    assert len(resumed.environment.attempts) == 2
    assert resumed.numbers == whole.numbers
    assert resumed.summary.final_weights_sha256 == whole.summary.final_weights_sha256


@pytest.mark.parametrize("step", [2, 8])
def test_a_killed_run_resumes_from_its_checkpoint(step: int, fp16: Outcome, tmp_path: Path, log: Path) -> None:
    killed = AtCall(step, functools.partial(signal.raise_signal, signal.SIGKILL))
    assert run_apart(tmp_path, log, precision="fp16", forward=killed) == -signal.SIGKILL
    resumed = run(tmp_path, precision="fp16")
    assert resumed.environment.attempts[-1].from_step == step // 3 * 3  # a checkpoint every 3 steps
    assert_same_run(resumed, fp16)


def test_with_rare_log_lines_the_resumed_means_are_those_of_the_whole_window(tmp_path: Path) -> None:
    overrides = ("log_every=4", "ema_decay=0.9", "accumulate=2")
    whole = run(tmp_path / "whole", *overrides)
    stopped = run(tmp_path / "stopped", *overrides, forward=AtCall(9, TERM))
    assert stopped.reason == "stopped at step 5 of 12"
    resumed = run(tmp_path / "stopped", *overrides)
    assert list(resumed.losses) == [4, 8, 12]
    assert resumed.numbers == whole.numbers
    assert resumed.summary.final_weights_sha256 == whole.summary.final_weights_sha256


def test_resume_from_the_best_checkpoint_repeats_the_rest_of_the_run(fp32: Outcome, tmp_path: Path) -> None:
    folder = shutil.copytree(fp32.folder, folder_of(tmp_path, TINY, "fp32"))
    (folder / "summary.json").unlink()
    best = folder / "checkpoints" / "best.pt"
    assert_same_run(run(tmp_path, options=("--resume", str(best))), fp32)


def test_a_checkpoint_without_random_state_is_resumed_with_a_warning(tmp_path: Path) -> None:
    stopped = run(tmp_path, forward=AtCall(5, TERM))
    file = stopped.folder / "checkpoints" / "last.pt"
    state = torch.load(file)
    del state["random"]
    torch.save(state, file)
    resumed = run(tmp_path)
    assert resumed.status == 0
    assert "warning: the checkpoint holds no random state" in resumed.out


def test_a_checkpoint_from_a_gpu_machine_is_resumed_with_a_notice(
    fp32: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    stopped = run(tmp_path, forward=AtCall(5, TERM))
    file = stopped.folder / "checkpoints" / "last.pt"
    state = torch.load(file)
    state["random"]["cuda"] = [torch.zeros(16, dtype=torch.uint8)]
    torch.save(state, file)
    resumed = run(tmp_path)
    assert "warning: 1 CUDA random states in the checkpoint, 0 devices here" in resumed.out
    assert_same_run(resumed, fp32)


def test_resume_with_more_epochs(tmp_path: Path) -> None:
    overrides = ("max_steps=null", "schedule.name=cosine", "eval_every=null", "checkpoint_every=null")
    short = run(tmp_path, *overrides, "epochs=2")
    longer = run(tmp_path, *overrides, "epochs=4")
    assert short.status == longer.status == 0
    assert "resumes from step 16 of 32" in longer.out
    assert "  epochs: 2 -> 4\n" in longer.out
    assert "  the schedule now ends at step 32\n" in longer.out
    assert longer.environment.attempts[1].changed == {"epochs": (2, 4)}
    assert load(longer.folder / "config.yaml").epochs == 4
    before, after = (build_schedule("cosine", total) for total in (16, 32))
    expected = {step: 0.05 * (before if step <= 16 else after)(step - 1) for step in range(1, 33)}
    assert longer.column("train/lr") == pytest.approx(expected)
    assert longer.summary.steps.planned == 32
    assert longer.summary.status == "finished"


def test_a_longer_run_that_is_killed_is_not_taken_for_finished(tmp_path: Path, log: Path) -> None:
    assert run(tmp_path, "max_steps=6").status == 0
    killed = AtCall(4, functools.partial(signal.raise_signal, signal.SIGKILL))  # its own step 10, after a checkpoint
    assert run_apart(tmp_path, log, forward=killed) == -signal.SIGKILL
    resumed = run(tmp_path)
    assert "finished already" not in resumed.out
    assert resumed.summary.steps == Steps(planned=12, attempted=12, applied=12)
    assert list(resumed.losses) == list(range(1, 13))


def test_a_length_that_is_exceeded_already_is_refused(fp32: Outcome, tmp_path: Path) -> None:
    folder = shutil.copytree(fp32.folder, folder_of(tmp_path, TINY, "fp32"))
    before = snapshot(folder)
    shorter = run(tmp_path, "max_steps=6")
    assert shorter.status == 2
    assert "12" in shorter.err
    assert "6" in shorter.err
    assert snapshot(folder) == before


def test_a_run_that_was_killed_before_its_summary_has_no_line_twice(bf16: Outcome, tmp_path: Path) -> None:
    folder = shutil.copytree(bf16.folder, folder_of(tmp_path, TINY, "bf16"))
    (folder / "summary.json").unlink()
    assert_same_run(run(tmp_path, precision="bf16"), bf16)


# Pairs and repeatability


def test_the_precisions_start_alike_and_see_the_same_data(fp32: Outcome, bf16: Outcome, fp16: Outcome) -> None:
    for name in ("initial_weights_sha256", "data_order_sha256", "config_sha256"):
        values = {getattr(done.summary, name) for done in (fp32, bf16, fp16)}
        assert len(values) == 1, name
        assert all(len(value) == 64 for value in values)
    first_losses = [done.losses[1] for done in (fp32, bf16, fp16)]
    assert first_losses == pytest.approx([first_losses[0]] * 3, rel=1e-2)
    assert len({done.summary.final_weights_sha256 for done in (fp32, bf16, fp16)}) == 3


def test_other_work_in_the_process_changes_nothing(fp32: Outcome, tmp_path: Path) -> None:
    torch.rand(100)
    np.random.rand(100)
    random.random()
    assert_same_run(run(tmp_path), fp32)


def test_another_seed_is_another_run(fp32: Outcome, tmp_path: Path) -> None:
    other = run(tmp_path, options=("--seed", "1"))
    for name in ("initial_weights_sha256", "data_order_sha256", "final_weights_sha256"):
        assert getattr(other.summary, name) != getattr(fp32.summary, name), name
    assert other.summary.config_sha256 == fp32.summary.config_sha256


def test_keys_that_only_watch_or_judge_change_no_weight(fp32: Outcome, tmp_path: Path) -> None:
    other = run(tmp_path, "log_every=5", "checkpoint_every=4", "margin=0.1")
    assert other.summary.final_weights_sha256 == fp32.summary.final_weights_sha256


# Evaluation


def test_the_final_weights_are_evaluated_once_more_in_fp32(bf16: Outcome, fp32: Outcome) -> None:
    model = TinyNet(10)
    model.load_state_dict(bf16.weights())
    model.eval()
    config = load(bf16.folder / "config.yaml")
    evaluation = image_classification.data(config, 0, torch.device("cpu"), smoke=False).evaluation
    loss = right = 0.0
    with torch.no_grad():
        for batch in evaluation.epoch(0):
            logits = model(batch["images"])
            loss += F.cross_entropy(logits, batch["labels"], reduction="sum").item()
            right += (logits.argmax(dim=1) == batch["labels"]).sum().item()
    assert bf16.column("eval/loss_fp32") == {12: pytest.approx(loss / 32, rel=1e-6)}
    assert bf16.column("eval/accuracy_fp32") == {12: right / 32}
    assert bf16.summary.final["eval/loss_fp32"] == bf16.column("eval/loss_fp32")[12]
    assert bf16.column("eval/loss")[12] != bf16.column("eval/loss_fp32")[12]
    assert not any("eval/loss_fp32" in row for row in fp32.rows)


# Compute-only throughput


def test_steps_of_the_compute_only_throughput_move_nothing(tmp_path: Path) -> None:
    overrides = ["optimizer.weight_decay=0.1", "schedule.name=constant"]  # at the last step's rate they would move
    prepared = prepare(Script(build, image_classification), TINY, overrides, "fp32", 0, "cpu")
    trainer, schedule = prepared.setup.trainer, prepared.setup.trainer.schedule
    execute(prepared, tmp_path, "auto", Services(track_run, terminal.Progress, lambda: False, ""))
    done = Outcome(0, "", "", folder_of(tmp_path, TINY, "fp32"))
    assert done.figure("throughput/compute_samples_per_sec") > 0
    saved = done.weights()
    for name, parameter in prepared.setup.model.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    assert (trainer.step_count, trainer.applied_step) == (12, 12)
    assert trainer.schedule is schedule


# How a run ends


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_non_finite_gradient_ends_the_run_as_diverged(precision: str, tmp_path: Path) -> None:
    models: list[nn.Module] = []

    def poisoned_gradient(config: Experiment) -> nn.Module:
        model = TinyNet(10)
        passes = iter(range(1, 100))
        model.conv2.weight.register_hook(lambda gradient: gradient * (math.nan if next(passes) == 3 else 1.0))
        models.append(model)
        return model

    done = run(tmp_path, precision=precision, build=poisoned_gradient)
    assert done.status == 3
    reason = "step 3: non-finite gradient in 'conv2.weight'; the weights were not touched"
    assert done.err == f"diverged: {reason}\n"
    assert done.summary.status == "diverged"
    assert done.reason == reason
    assert done.summary.steps == Steps(planned=12, attempted=3, applied=2)
    assert done.summary.nonfinite_loss_steps == 0
    assert all(tensor.isfinite().all() for tensor in models[0].state_dict().values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_diverged_run_keeps_the_loss_as_it_was(precision: str, tmp_path: Path) -> None:
    done = run(tmp_path, precision=precision, forward=Poisoned(range(3, 4)))
    assert done.status == 3
    assert "step 3: non-finite gradient in 'fc.bias' and in " in done.reason
    losses = done.losses
    assert list(losses) == [1, 2, 3]
    assert math.isfinite(losses[2])
    assert math.isnan(losses[3])
    assert math.isnan(done.figure("train/loss"))
    assert done.summary.nonfinite_loss_steps == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_final_weights_without_a_finite_evaluation_loss_end_the_run_as_diverged(value: float, tmp_path: Path) -> None:
    def overflowing(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, labels = image_classification.forward(model, batch)
        last = not model.training and len(evaluated) > 4  # four batches an evaluation
        evaluated.extend([1] * (not model.training))
        return (logits - value if last else logits), labels

    evaluated: list[int] = []
    done = run(tmp_path, forward=overflowing)
    assert done.status == 3
    assert done.err == "diverged: step 12: the evaluation loss of the final weights is nan\n"
    assert done.summary.status == "diverged"
    assert math.isnan(done.figure("eval/loss"))
    assert math.isfinite(done.column("eval/loss")[6])


def test_fp16_skips_a_non_finite_loss_counts_it_and_keeps_its_value(fp16: Outcome, tmp_path: Path) -> None:
    done = run(tmp_path, precision="fp16", forward=Poisoned(range(3, 5)))
    assert done.status == 0
    losses = done.losses
    assert [step for step, loss in losses.items() if not math.isfinite(loss)] == [3, 4]
    assert math.isnan(losses[3])
    assert done.column("train/nonfinite_loss_steps") == {3: 1, 4: 1}
    assert done.summary.nonfinite_loss_steps == 2
    assert done.summary.skipped_steps == 2
    assert done.column("amp/scale")[5] == 1024 / 4
    assert done.column("train/applied_step")[12] == 10
    assert all(tensor.isfinite().all() for tensor in done.weights().values())


def test_the_count_survives_a_resume(tmp_path: Path) -> None:
    stopped = run(tmp_path, "log_every=4", precision="fp16", forward=_PoisonedAndTerminated(range(2, 4), 6))
    assert stopped.status == 75
    step_9 = _PoisonedAndTerminated(range(3, 4), 99)
    resumed = run(tmp_path, "log_every=4", precision="fp16", forward=step_9)
    assert resumed.status == 0
    assert resumed.summary.nonfinite_loss_steps == 3
    assert resumed.summary.skipped_steps == 3


class _PoisonedAndTerminated(Poisoned):
    def __init__(self, steps: range, last: int) -> None:
        super().__init__(steps)
        self.last = last

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        result = super().__call__(model, batch)
        if model.training and self.calls == self.last:
            TERM()
        return result


def test_fp16_that_only_skips_ends_as_diverged_with_the_true_loss(tmp_path: Path) -> None:
    done = run(tmp_path, "scaler.max_consecutive_skips=3", precision="fp16", forward=Poisoned(range(4, 100)))
    assert done.status == 3
    assert "3 steps in a row were skipped as not finite" in done.reason
    assert done.summary.skipped_steps == 3
    assert done.summary.steps == Steps(planned=12, attempted=6, applied=3)
    losses = done.losses
    assert list(losses) == list(range(1, 7))
    assert all(math.isnan(losses[step]) for step in (4, 5, 6)), losses
    assert done.summary.nonfinite_loss_steps == 3


@pytest.mark.parametrize("training", [True, False])
def test_an_exception_ends_the_run_as_failed_and_it_can_go_on(training: bool, fp32: Outcome, tmp_path: Path) -> None:
    def broken() -> None:
        raise RuntimeError("view size is not compatible")

    done = run(tmp_path, forward=AtCall(8 if training else 7, broken, training=training))
    assert done.status == 1
    assert done.summary.status == "failed"
    assert done.reason == "RuntimeError: view size is not compatible"
    assert "in broken" in done.err  # where it happened
    assert done.err.endswith("error: RuntimeError: view size is not compatible\n")
    assert_same_run(run(tmp_path), fp32)


def test_the_next_run_of_the_process_is_not_touched_by_a_failed_one(fp32: Outcome, tmp_path: Path) -> None:
    assert run(tmp_path, precision="bf16", forward=Poisoned(range(3, 4))).status == 3
    assert_same_run(run(tmp_path), fp32)


@pytest.mark.parametrize("log_every", [1, 10])
def test_fp16_that_ends_on_losses_that_are_not_finite_has_diverged(log_every: int, tmp_path: Path) -> None:
    steps = ("max_steps=8", f"log_every={log_every}", "eval_every=8", "checkpoint_every=8")
    done = run(tmp_path, *steps, precision="fp16", forward=Poisoned(range(5, 9)))
    assert done.status == 3
    assert done.err == "diverged: step 8: the last 4 steps were skipped, with a loss of nan\n"
    assert done.summary.status == "diverged"
    assert done.summary.steps == Steps(planned=8, attempted=8, applied=4)


def test_fp16_of_which_no_step_was_applied_has_diverged(tmp_path: Path) -> None:
    done = run(tmp_path, "scaler.init_scale=1.0e+38", precision="fp16")
    assert done.summary.steps == Steps(planned=12, attempted=12, applied=0)
    assert done.status == 3
    assert done.err == "diverged: step 12: none of the steps was applied\n"
    assert "train/loss" not in done.rows[-1], "the window after the last step is empty and has no loss"
    assert done.figure("train/loss") > 0


def test_one_skipped_step_at_the_end_of_fp16_counts(tmp_path: Path) -> None:
    done = run(tmp_path, precision="fp16", forward=Poisoned(range(12, 13)))
    assert done.status == 0
    assert math.isnan(done.losses[12])
    assert done.summary.skipped_steps == 1
    counted = read_run(done.folder.parent, "fp16", 0)
    assert (counted.status, counted.reason) == ("finished", None)


def test_weights_whose_loss_is_not_finite_are_never_the_best(tmp_path: Path) -> None:
    def overflowing(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        logits, labels = image_classification.forward(model, batch)
        first = not model.training and len(evaluated) < 5  # one batch of the trial run, four of an evaluation
        evaluated.extend([1] * (not model.training))
        return (logits * math.nan if first else logits), labels

    evaluated: list[int] = []
    done = run(tmp_path, forward=overflowing)
    assert done.status == 0
    assert math.isnan(done.column("eval/loss")[6])
    assert math.isfinite(done.column("eval/accuracy")[6])
    assert done.summary.best == {"eval/accuracy": done.column("eval/accuracy")[12]}
    assert torch.load(done.folder / "checkpoints" / "best.pt")["trainer"]["step"] == 12


def test_skips_in_the_summary_are_the_flagged_rows(tmp_path: Path) -> None:
    done = run(tmp_path, "scaler.init_scale=1099511627776", "max_steps=40", precision="fp16")
    assert done.status == 0
    skipped = done.column("amp/skipped_steps")
    flagged = [step for step in skipped if skipped[step] > skipped.get(step - 1, 0)]
    norms, scales, applied = (done.column(name) for name in ("train/grad_norm", "amp/scale", "train/applied_step"))
    assert flagged[:20] == list(range(1, 21))
    assert len(flagged) < 40
    assert done.summary.skipped_steps == len(flagged)
    assert done.summary.steps == Steps(planned=40, attempted=40, applied=40 - len(flagged))
    for step in range(1, 41):
        assert math.isfinite(norms[step]) == (step not in flagged)
        skips = sum(other <= step for other in flagged)
        assert skipped[step] == skips
        assert scales[step] == 2.0 ** (40 - skips)
        assert applied[step] == step - skips
    rates = done.column("train/lr")
    assert {rates[step] for step in range(1, 21)} == {0.05}  # a skipped step does not move the schedule


def test_the_gradient_norm_does_not_depend_on_the_scale(fp16: Outcome, fp32: Outcome, tmp_path: Path) -> None:
    other = run(tmp_path, "scaler.init_scale=8", precision="fp16")
    assert other.column("amp/scale")[1] == 8
    assert other.column("train/grad_norm")[1] == pytest.approx(fp16.column("train/grad_norm")[1], rel=1e-2)
    assert fp16.column("train/grad_norm")[1] == pytest.approx(fp32.column("train/grad_norm")[1], rel=2e-2)


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_numbers_of_the_summary_are_the_last_lines(interrupted: bool, finished: Outcome, tmp_path: Path) -> None:
    done = finished
    if interrupted:
        precision = finished.folder.name.partition("-")[0]
        done = run(tmp_path, precision=precision, forward=AtCall(7, TERM))
    newest: dict[str, object] = {}
    for row in done.rows:
        newest |= row
    if "throughput/samples_per_sec" in newest:
        newest.pop("throughput/reason")  # of the warm-up
    assert done.summary.final == newest
    accuracies = done.column("eval/accuracy")
    assert done.summary.best == {"eval/accuracy": max(accuracies.values())}
    steps = 7 if interrupted else 12
    assert done.summary.steps == Steps(planned=12, attempted=steps, applied=steps)
    assert done.summary.final["train/step"] == steps
    assert done.summary.train_samples == 64
    assert done.summary.eval_samples == 32
    assert done.summary.parameters == sum(parameter.numel() for parameter in TinyNet(10).parameters())


def test_every_metric_has_a_name_of_the_contract(finished: Outcome) -> None:
    names = {name for row in finished.rows for name in row}
    precision = finished.folder.name.partition("-")[0]
    expected = {"train/loss", "train/lr", "train/grad_norm", "train/step", "train/applied_step", "train/epoch"}
    expected |= {"eval/loss", "eval/accuracy", "throughput/samples_per_sec", "throughput/compute_samples_per_sec"}
    expected |= {"time/step_ms", "time/data_wait_pct", "memory/peak_rss_mib", "memory/saved_for_backward_mib"}
    expected |= {"amp/scale", "amp/skipped_steps"} if precision == "fp16" else set()
    expected |= {"eval/loss_fp32", "eval/accuracy_fp32"} if precision != "fp32" else set()
    assert names - {"throughput/reason"} == expected
    assert all(value > 0 for name in ("throughput/samples_per_sec", "throughput/compute_samples_per_sec")
               for value in finished.column(name).values())  # fmt: skip


def test_without_a_scaler_no_scale_is_reported(fp32: Outcome, bf16: Outcome) -> None:
    for done in (fp32, bf16):
        assert not any(name.startswith("amp/") for row in done.rows for name in row)
        assert done.summary.skipped_steps == 0


def test_a_run_as_short_as_the_warm_up_has_no_throughput_but_a_reason(tmp_path: Path) -> None:
    done = run(tmp_path, "max_steps=3")
    final = done.summary.final
    assert "throughput/samples_per_sec" not in final
    assert final["throughput/reason"] == "3 steps, of which 5 are warm-up"


def test_a_measured_throughput_has_no_reason_why_not(fp32: Outcome) -> None:
    assert fp32.figure("throughput/samples_per_sec") > 0
    assert "throughput/reason" not in fp32.summary.final


def test_compute_throughput_counts_all_micro_batches_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every step takes one second."""
    taken: list[int] = []
    step = Trainer.step

    def counted(self: Trainer, micro_batches: Sequence[Batch]) -> None:
        taken.append(len(micro_batches))
        step(self, micro_batches)

    monkeypatch.setattr(Trainer, "step", counted)
    monkeypatch.setattr(run_module, "time", SimpleNamespace(perf_counter=lambda: float(len(taken))))
    done = run(tmp_path, "accumulate=3", "max_steps=1", "eval_every=1")
    assert done.status == 0, done.err
    assert set(taken) == {3}
    assert done.figure("throughput/compute_samples_per_sec") == 3 * 8

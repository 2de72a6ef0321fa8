"""The paired benchmark: the order of its blocks, and that it times whole steps."""

import inspect
import io
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from reports.records.benchmark import Benchmark
from reports.records.files import write_record
from reports.records.summary import FINISHED, Summary
from scripts.bench_engine import engine_step, plain_step
from train.cli import terminal
from train.cli.scripts import script_of
from train.compare import Experiments
from train.engine.step import Trainer
from train.experiment import environment
from train.experiment.benchmark import WARMUP_STEPS, Step, interleave, operator_times, steps_at_rate_0
from train.experiment.setup import digest_of, setup


def trainer_in(step: Step) -> Trainer:
    trainer: Trainer = inspect.getclosurevars(step).nonlocals["trainer"]
    return trainer


def test_blocks_take_turns_in_turning_order_and_each_round_builds_its_own() -> None:
    calls: list[str] = []

    def builder(name: str) -> Callable[[], Step]:
        def build() -> Step:
            calls.append(f"build {name}")
            return lambda: calls.append(name)

        return build

    waits: list[int] = []
    builds = {name: builder(name) for name in "ABC"}
    count = partial(terminal.counted, title="round")
    record = interleave(builds, lambda: waits.append(len(calls)), rounds=4, block_seconds=0.0, count=count)
    assert record.block_steps == 2
    assert {name: len(seconds) for name, seconds in record.seconds.items()} == {"A": 4, "B": 4, "C": 4}

    def one_round(order: str) -> list[str]:
        warmup = [name for name in order for _ in range(WARMUP_STEPS)]
        return [*(f"build {name}" for name in order), *warmup, *(name for name in order for _ in range(2))]

    orders = ["ABC", "ABC", "CBA", "ABC", "CBA"]  # the first one sets the length of the blocks
    assert calls == [call for order in orders for call in one_round(order)]
    # The device is waited for at the two edges of each timed stretch, and nowhere else.
    assert len(waits) == 2 * 3 * 5


def test_the_switches_are_set_before_the_warmup_and_before_each_block() -> None:
    seen: Counter[str] = Counter()
    builds: dict[str, Callable[[], Step]] = {"A": lambda: lambda: None, "B": lambda: lambda: None}
    interleave(builds, lambda: None, rounds=5, block_seconds=0.0, before=seen.update)
    assert seen == {"A": 12, "B": 12}


def test_trainers_at_rate_0_share_the_loss_scale_and_leave_the_weights_as_they_were(cpu: torch.device) -> None:
    path = Path("configs/lenet5_digits.yaml")
    script = script_of(path)
    config = script.read(path, ["scaler.init_scale=1.6e38"], smoke=True)
    wired = setup(script, config, "fp16", 0, cpu, smoke=True)
    build_step = steps_at_rate_0(wired, next(wired.data.train.epoch(0)))
    scales = []
    for _ in range(2):
        step = build_step()
        step()
        scales.append(wired.precision.scale())
    trainer = trainer_in(step)
    assert trainer.model is not wired.model
    assert (trainer.step_count, trainer.applied_step) == (1, 0)
    assert digest_of(trainer.model) == digest_of(wired.model) == wired.initial_weights
    assert all(parameter.grad is None for parameter in wired.model.parameters())
    # The second one starts from the scale at which the first one left it.
    assert scales == [pytest.approx(0.8e38), pytest.approx(0.4e38)]


def test_the_operators_of_a_step_are_timed_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    a = torch.randn(256, 256)
    times = operator_times(lambda: (a @ a).relu(), torch.device("cpu"))
    assert list(times) == sorted(times, key=times.__getitem__, reverse=True)
    assert {"aten::mm", "aten::relu", "aten::clamp_min"} <= times.keys()
    assert times["aten::mm"] > 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_plain_loop_computes_what_the_engine_computes(precision: str) -> None:
    draw = torch.Generator().manual_seed(0)
    batch = {
        "images": torch.randn(4, 3, 16, 16, generator=draw).to(memory_format=torch.channels_last),
        "labels": torch.randint(0, 10, (4,), generator=draw),
    }
    plain, engine = plain_step(precision, batch), engine_step(precision, batch)
    trainer = trainer_in(engine)
    for _ in range(3):
        loss = plain()
        assert isinstance(loss, torch.Tensor)
        engine()
        assert trainer.read_metrics()["train/loss"] == loss.item()


@pytest.mark.parametrize(
    ("changes", "stays", "measured"),
    [
        ({}, True, False),
        ({"seconds": {"fp32": [1.0, 1.0], "bf16": [1.0, 1.0]}}, True, True),
        ({"torch": "1.13.0"}, False, True),
        ({"device": "Another"}, False, True),
        ({"smoke": True}, False, True),
        ({"seconds": {"fp32": [-1.0], "fp16": [1.0]}}, False, True),  # a damaged record
    ],
)
def test_a_benchmark_is_measured_again_unless_it_covers_what_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], stays: bool, measured: bool
) -> None:
    experiments = Experiments(Path("configs/resnet20_digits.yaml"), [], "fp32,fp16", "cpu", tmp_path, smoke=False)
    for precision in experiments.precisions:
        write_record(experiments.folder / f"{precision}-s0" / "summary.json", Summary(status=FINISHED))
    recorded = Benchmark(
        config_sha256=experiments.config.digest(),
        device=environment.device_name(torch.device("cpu")),
        torch=torch.__version__,
        samples_per_step=8,
        block_steps=2,
        seconds={name: [1.0, 1.0] for name in ("fp32", "bf16", "fp16")},
    )
    file = experiments.folder / "benchmark.json"
    write_record(file, recorded.model_copy(update=changes))
    calls: list[list[str]] = []

    def interrupted(arguments: list[str]) -> int:
        calls.append(arguments)
        return 1

    monkeypatch.setattr(experiments.child, "call", interrupted)
    experiments._benchmark(range(1))
    assert (file.exists(), bool(calls)) == (stays, measured)


def test_rounds_are_counted_on_a_terminal_and_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal, shown in ((True, "4/4"), (False, "round 4/4\n")):
        text = io.StringIO()
        monkeypatch.setattr(terminal, "terminal", Console(file=text, force_terminal=is_terminal, width=100))
        monkeypatch.setattr(terminal, "QUIET_SECONDS", -1.0)
        assert list(terminal.counted(4, "round")) == [0, 1, 2, 3]
        assert shown in text.getvalue()
    monkeypatch.setattr(terminal, "QUIET_SECONDS", 1e9)
    text = io.StringIO()
    monkeypatch.setattr(terminal, "terminal", Console(file=text))
    assert (list(terminal.counted(2, "round")), text.getvalue()) == ([0, 1], "")

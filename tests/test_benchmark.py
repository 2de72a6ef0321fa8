"""The paired benchmark: the order of its blocks, and that it times whole steps."""

import inspect
import io
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from reports.analysis.speed import read_benchmark
from reports.records.benchmark import Benchmark, Conditions, Start
from reports.records.environment import Processor
from reports.records.files import read_record, write_record
from reports.records.summary import FINISHED, Summary
from scripts.bench_engine import engine_step, plain_step
from train import compare
from train.cli import benchmark as benchmark_command
from train.cli import terminal
from train.cli.options import REASON_FILE
from train.cli.scripts import script_of
from train.compare import Experiments
from train.engine.step import Trainer
from train.experiment import benchmark, environment
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


CONFIG = Path("configs/resnet20_digits.yaml")


@dataclass
class Measuring:
    """A comparison of FP32 and fp16 that is trained already, and the processes that it starts to measure."""

    experiments: Experiments
    failing: int | None = None  # the process that fails, from 1
    status: int = 1
    calls: list[Sequence[str]] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.experiments.folder / "benchmark.json"

    @property
    def record(self) -> Benchmark:
        return read_record(Benchmark, self.file)

    @property
    def under(self) -> Conditions:
        return benchmark.conditions(
            self.experiments.script, self.experiments.config, self.experiments.device, smoke=False
        )

    def write(self, *starts: Start, **changes: Any) -> None:
        write_record(self.file, Benchmark(**dict(self.under) | changes, starts=list(starts)))

    def call(self, arguments: Sequence[str]) -> int:
        """In place of a process: measure nothing, or fail."""
        self.calls.append(arguments)
        if len(self.calls) == self.failing:
            self.experiments.child.reason = "RuntimeError: could not create a primitive"
            return self.status
        benchmark.add_start(self.file, self.under, measured("fp32", "fp16"))
        return 0

    def measure(self, starts: int = 3) -> None:
        self.experiments._benchmark(range(1), starts)


def measured(*precisions: str, seconds: float = 1.0) -> Start:
    return Start(samples_per_step=8, block_steps=2, seconds={name: [seconds] * 2 for name in precisions})


@pytest.fixture
def measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measuring:
    experiments = Experiments(CONFIG, [], "fp32,fp16", "cpu", tmp_path, smoke=False)
    for precision in experiments.precisions:
        write_record(experiments.folder / f"{precision}-s0" / "summary.json", Summary(status=FINISHED))
    measuring = Measuring(experiments)
    monkeypatch.setattr(experiments.child, "call", measuring.call)
    return measuring


def test_speed_is_measured_in_as_many_processes_as_are_asked_for(measuring: Measuring) -> None:
    measuring.measure()
    assert len(measuring.record.starts) == len(measuring.calls) == 3
    assert measuring.calls[0] == [
        *("train.cli.benchmark", str(CONFIG), "--device", "cpu"),
        *("--precisions", "fp32,fp16", "--output", str(measuring.file)),
    ]
    measuring.measure()
    assert len(measuring.calls) == 3, "all of it is there"
    measuring.measure(starts=5)
    assert len(measuring.record.starts) == len(measuring.calls) == 5


def test_a_measurement_of_speed_that_is_interrupted_continues_with_the_missing_processes(measuring: Measuring) -> None:
    measuring.failing, measuring.status = 2, -9
    measuring.measure()
    assert (len(measuring.record.starts), measuring.record.reason) == (1, "killed by signal 9")
    measuring.failing = None
    measuring.measure()
    assert (len(measuring.record.starts), measuring.record.reason) == (3, None)
    assert len(measuring.calls) == 4


def test_the_reason_of_a_process_that_could_not_measure_is_recorded(measuring: Measuring) -> None:
    measuring.failing = 1
    measuring.measure()
    reason = "RuntimeError: could not create a primitive"
    assert (measuring.record.starts, measuring.record.reason) == ([], reason)
    assert len(measuring.calls) == 1, "the others would fail too"
    assert read_benchmark(measuring.file) == (measuring.record, f"its speed was not measured: {reason}")


@pytest.mark.parametrize(
    "changes",
    [
        *({"torch": "1.13.0"}, {"device": "Another"}, {"smoke": True}, {"config_sha256": "c" * 64}),
        *({"source_sha256": "5" * 64}, {"cpu": None}),
        {"cpu": Processor(cores=2, threads=64, instruction_sets=["avx2"])},
    ],
)
def test_processes_under_other_conditions_are_never_counted_together(
    measuring: Measuring, changes: dict[str, Any]
) -> None:
    measuring.write(measured("fp32", "fp16", seconds=9.0), **changes)
    measuring.failing = 1
    measuring.measure()
    assert measuring.record.starts == []
    assert all(getattr(measuring.record, name) == value for name, value in measuring.under)


def test_a_process_that_lacks_a_precision_is_measured_again_as_a_whole(measuring: Measuring) -> None:
    more = measured("fp32", "bf16", "fp16", seconds=9.0)
    measuring.write(more, measured("fp32", "bf16", seconds=9.0))
    measuring.measure()
    assert measuring.record.starts == [more, measured("fp32", "fp16"), measured("fp32", "fp16")]


def test_a_damaged_record_of_speed_is_measured_again(measuring: Measuring) -> None:
    measuring.write(measured("fp32", "fp16"))
    measuring.file.write_text(measuring.file.read_text().replace("1.0", "-1.0"))
    measuring.measure()
    assert len(measuring.calls) == 3


def test_the_benchmark_of_a_model_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(step: object, device: object) -> dict[str, float]:
        raise RuntimeError("could not create a primitive")

    monkeypatch.setattr(benchmark, "operator_times", fail)
    monkeypatch.setenv(REASON_FILE, str(tmp_path / "reason"))
    command = ["configs/lenet5_digits.yaml", "--smoke", "--precisions", "fp32", "--device", "cpu"]
    assert benchmark_command.main([*command, "--output", str(tmp_path / "benchmark.json")]) == 1
    reason = "RuntimeError: could not create a primitive"
    assert (tmp_path / "reason").read_text() == reason
    assert capsys.readouterr().err.endswith(f"error: {reason}\n")
    assert not (tmp_path / "benchmark.json").exists()


def test_a_process_adds_its_start_to_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "operator_times", lambda step, device: {"aten::mm": 1.0})
    file = tmp_path / "benchmark.json"
    command = ["configs/lenet5_digits.yaml", "--smoke", "--precisions", "fp32,bf16", "--device", "cpu"]
    for count in (1, 2):
        assert benchmark_command.main([*command, "--output", str(file)]) == 0
        record = read_record(Benchmark, file)
        assert [list(start.seconds) for start in record.starts] == [["fp32", "bf16"]] * count
    assert record.cpu == environment.describe(torch.device("cpu")).cpu
    assert record.starts[0].samples_per_step == 8


def test_a_function_runs_in_a_process_of_its_own() -> None:
    assert benchmark.in_new_process(os.getpid) != os.getpid()


@pytest.mark.parametrize("starts", ["0", "-1"])
def test_no_process_start_at_all_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], starts: str) -> None:
    assert compare.main([str(CONFIG), "--device", "cpu", "--out", str(tmp_path / "out"), "--starts", starts]) == 2
    assert capsys.readouterr().err == f"error: --starts: {starts} is not at least 1\n"
    assert not (tmp_path / "out").exists()


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

"""The paired benchmark: the order of its blocks, and that it times whole steps."""

import inspect
import io
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console

from reports.records.files import write_json
from scripts.bench_engine import engine_step, plain_step
from train.cli import terminal as console
from train.compare import Comparison
from train.experiment import environment
from train.experiment import setup as assemble
from train.experiment.benchmark import WARMUP_STEPS, interleave, operator_times, resting


def test_blocks_take_turns_in_turning_order_and_each_round_builds_its_own():
    calls: list[str] = []

    def builder(name: str):
        def build():
            calls.append(f"build {name}")
            return lambda: calls.append(name)

        return build

    waits: list[int] = []
    builds = {name: builder(name) for name in "ABC"}
    count = partial(console.counted, title="round")
    record = interleave(builds, lambda: waits.append(len(calls)), rounds=4, block_seconds=0.0, count=count)
    assert record["block_steps"] == 2
    assert {name: len(seconds) for name, seconds in record["seconds"].items()} == {"A": 4, "B": 4, "C": 4}

    def one_round(order: str) -> list[str]:
        warmup = [name for name in order for _ in range(WARMUP_STEPS)]
        return [*(f"build {name}" for name in order), *warmup, *(name for name in order for _ in range(2))]

    orders = ["ABC", "ABC", "CBA", "ABC", "CBA"]  # the first one sets the length of the blocks
    assert calls == [call for order in orders for call in one_round(order)]
    # The device is waited for at the two edges of each timed stretch, and nowhere else.
    assert len(waits) == 2 * 3 * 5


def test_the_switches_are_set_before_the_warmup_and_before_each_block():
    seen: Counter[str] = Counter()
    builds = {"A": lambda: lambda: None, "B": lambda: lambda: None}
    interleave(builds, lambda: None, rounds=5, block_seconds=0.0, before=seen.update)
    assert seen == {"A": 12, "B": 12}


def test_resting_trainers_share_the_loss_scale_and_leave_the_weights_as_they_were():
    build, task, config = assemble.script_of(
        Path("configs/lenet5_digits.yaml"), ["scaler.init_scale=1.6e38"], smoke=True
    )
    device = torch.device("cpu")
    train = task.load(config, 0, device, True).train
    model, precision = assemble.build_model(build, config, 0, device), assemble.build_precision("fp16", config, device)
    before, batch = assemble.digest_of(model), next(train.epoch(0))
    scales = []
    for _ in range(2):
        step = resting(model, task, config, train, precision, batch)()
        step()
        scales.append(precision.scale())
    trainer = inspect.getclosurevars(step).nonlocals["trainer"]
    assert trainer.model is not model
    assert (trainer.step_count, trainer.applied_step) == (1, 0)
    assert assemble.digest_of(trainer.model) == assemble.digest_of(model) == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert scales == [
        pytest.approx(0.8e38),
        pytest.approx(0.4e38),
    ]  # the second goes on from the scale at which the first one left it


def test_the_operators_of_a_step_are_timed_without_a_word(capfd):
    a = torch.randn(256, 256)
    times = operator_times(lambda: (a @ a).relu(), torch.device("cpu"))
    assert list(times) == sorted(times, key=times.__getitem__, reverse=True)
    assert {"aten::mm", "aten::relu", "aten::clamp_min"} <= times.keys()
    assert times["aten::mm"] > 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_the_plain_loop_computes_what_the_engine_computes(precision):
    draw = torch.Generator().manual_seed(0)
    batch = {
        "images": torch.randn(4, 3, 16, 16, generator=draw).to(memory_format=torch.channels_last),
        "labels": torch.randint(0, 10, (4,), generator=draw),
    }
    plain, engine = plain_step(precision, batch), engine_step(precision, batch)
    trainer = engine.__closure__[1].cell_contents  # type: ignore[attr-defined,index]
    for _ in range(3):
        loss = plain()
        engine()
        assert trainer.read_metrics()["train/loss"] == loss.item()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "kept", "measured"),
    [
        ({}, True, False),
        ({"seconds": {"fp32": [1.0, 1.0], "bf16": [1.0, 1.0]}}, True, True),
        ({"torch": "1.13.0"}, False, True),
        ({"device": "Another"}, False, True),
        ({"smoke": True}, False, True),
        ({"seconds": {}}, False, True),
    ],
)
def test_a_benchmark_is_measured_again_unless_it_covers_what_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict, kept: bool, measured: bool
):
    config = Path("configs/resnet20_digits.yaml")
    comparison = Comparison(config, [], "fp32,fp16", "cpu", tmp_path, smoke=False)
    comparison.seeds = range(1)
    for precision in comparison.precisions:
        write_json(comparison.folder / f"{precision}-s0" / "summary.json", {"status": "finished"})
    seconds = {name: [1.0, 1.0] for name in ("fp32", "bf16", "fp16")}
    facts = {"config_sha256": comparison.config.digest(), "device": environment.device_name(torch.device("cpu"))}
    facts |= {"torch": torch.__version__, "samples_per_step": 8, "block_steps": 2, "seconds": seconds}
    file = comparison.folder / "benchmark.json"
    write_json(file, facts | changes)
    calls: list[list[str]] = []
    monkeypatch.setattr(comparison.child, "call", lambda arguments: calls.append(arguments) or 1)  # is interrupted
    comparison._benchmark()
    assert (file.exists(), bool(calls)) == (kept, measured)


def test_rounds_are_counted_on_a_terminal_and_now_and_then_elsewhere(monkeypatch: pytest.MonkeyPatch):
    for is_terminal, shown in ((True, "4/4"), (False, "round 4/4\n")):
        text = io.StringIO()
        monkeypatch.setattr(console, "terminal", Console(file=text, force_terminal=is_terminal, width=100))
        monkeypatch.setattr(console, "QUIET_SECONDS", -1.0)
        assert list(console.counted(4, "round")) == [0, 1, 2, 3]
        assert shown in text.getvalue()
    monkeypatch.setattr(console, "QUIET_SECONDS", 1e9)
    text = io.StringIO()
    monkeypatch.setattr(console, "terminal", Console(file=text))
    assert (list(console.counted(2, "round")), text.getvalue()) == ([0, 1], "")

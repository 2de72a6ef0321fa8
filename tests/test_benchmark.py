"""The paired benchmark: the order of its blocks, and that it times whole steps."""

from collections import Counter

import pytest
import torch

from scripts.bench_engine import engine_step, plain_step
from train.experiment.benchmark import WARMUP_STEPS, interleave, operator_times


def test_blocks_take_turns_and_are_equal():
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "ABC"}
    waits: list[int] = []
    record = interleave(steps, lambda: waits.append(len(calls)), rounds=4, block_seconds=0.0)
    assert record["block_steps"] == 2
    assert {name: len(seconds) for name, seconds in record["seconds"].items()} == {"A": 4, "B": 4, "C": 4}
    warmup = 3 * (WARMUP_STEPS + 2)
    assert calls[warmup:] == list("AABBCC" * 4)
    # The device is waited for at the two edges of each timed stretch, and nowhere else.
    assert len(waits) == 2 * (3 + 3 * 4)


def test_the_switches_are_set_before_each_block():
    seen: Counter[str] = Counter()
    interleave({"A": lambda: None, "B": lambda: None}, lambda: None, rounds=5, block_seconds=0.0, before=seen.update)
    assert seen == {"A": 6, "B": 6}


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
        assert trainer.read_window()["train/loss"] == loss.item()  # type: ignore[attr-defined]

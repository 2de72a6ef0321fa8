import mmap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.engine.tiny import CPU
from train.engine.meter import MIB, Meter, PeakMemory


class Clock:
    """Seconds that pass only when a test says so, and the number of times the meter waited for the device."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits = 0

    def __call__(self) -> float:
        return self.now

    def wait(self) -> None:
        self.waits += 1


def make_meter(warmup_steps: int, clock: Clock) -> Meter:
    meter = Meter(CPU, warmup_steps, clock, clock.wait)
    meter.resume()
    return meter


def run(meter: Meter, clock: Clock, seconds: list[float], samples: int = 8, data_seconds: float = 0.0) -> None:
    for duration in seconds:
        clock.now += duration
        meter.step(samples, data_seconds)


def test_samples_per_second_times_elapsed_is_samples() -> None:
    clock = Clock()
    meter = make_meter(0, clock)
    run(meter, clock, 10 * [0.05])
    meter.pause()
    metrics = meter.read()
    assert metrics["throughput/samples_per_sec"] == pytest.approx(160)
    assert metrics["time/step_ms"] == pytest.approx(50)
    assert metrics["throughput/samples_per_sec"] * meter.seconds == pytest.approx(80)


@pytest.mark.parametrize("count", [int, torch.tensor], ids=["known", "counted on the device"])
def test_tokens_per_second_stand_beside_samples_where_there_are_tokens(count: Callable[[int], int | Tensor]) -> None:
    clock = Clock()
    meter = make_meter(1, clock)
    for tokens in (1000, 96, 64):  # the first is warm-up
        clock.now += 0.5
        meter.step(8, 0.0, count(tokens))
    metrics = meter.read()
    assert (meter.state_dict()["tokens"], type(meter.state_dict()["tokens"])) == (160, int)
    assert metrics["throughput/tokens_per_sec"] == pytest.approx(160)
    assert metrics["throughput/samples_per_sec"] == pytest.approx(16)
    images = make_meter(0, clock)
    run(images, clock, [1.0])
    assert "throughput/tokens_per_sec" not in images.read()


def test_waits_for_the_device_at_the_ends_of_a_stretch_and_never_in_a_step() -> None:
    clock = Clock()
    meter = make_meter(2, clock)
    assert clock.waits == 0
    run(meter, clock, 2 * [1.0])
    assert clock.waits == 1  # the warm-up is over: the clock starts
    run(meter, clock, 50 * [1.0])
    meter.read()
    assert clock.waits == 1
    meter.pause()
    assert clock.waits == 2
    meter.resume()
    assert clock.waits == 3
    run(meter, clock, [1.0])
    meter.pause()
    assert clock.waits == 4


def test_work_that_the_device_still_has_to_do_belongs_to_the_stretch() -> None:
    clock = Clock()

    def wait() -> None:
        clock.now += 2.0

    meter = Meter(CPU, 0, clock, wait)
    meter.resume()
    run(meter, clock, [1.0])
    meter.pause()
    assert meter.seconds == pytest.approx(3.0)


def test_warm_up_is_left_out_of_samples_and_of_time() -> None:
    clock = Clock()
    meter = make_meter(3, clock)
    run(meter, clock, 3 * [1.0] + 10 * [0.05])
    meter.pause()
    assert meter.read()["throughput/samples_per_sec"] == pytest.approx(160)
    assert (meter.samples, meter.steps) == (80, 10)
    assert meter.seconds == pytest.approx(0.5)


@pytest.mark.parametrize("steps", [0, 2, 3])
def test_a_run_no_longer_than_the_warm_up_is_not_measured_and_says_why(steps: int) -> None:
    clock = Clock()
    meter = make_meter(3, clock)
    run(meter, clock, steps * [1.0])
    metrics = meter.read()
    assert not {"throughput/samples_per_sec", "time/step_ms", "time/data_wait_pct"} & metrics.keys()
    assert meter.unmeasured_reason == f"{steps} steps, of which 3 are warm-up"


def test_a_figure_that_was_measured_needs_no_reason() -> None:
    clock = Clock()
    meter = make_meter(0, clock)
    run(meter, clock, [1.0])
    assert "time/step_ms" in meter.read()
    assert meter.unmeasured_reason is None


def test_evaluation_and_checkpoints_lie_outside() -> None:
    clock = Clock()
    meter = make_meter(1, clock)
    run(meter, clock, [5.0, 0.1])
    for _ in range(3):
        meter.pause()
        clock.now += 1000
        meter.resume()
        run(meter, clock, 2 * [0.1])
    meter.pause()
    clock.now += 1000
    assert meter.steps == 7
    assert meter.seconds == pytest.approx(0.7)
    assert meter.read()["throughput/samples_per_sec"] == pytest.approx(80)


def test_an_evaluation_within_the_warm_up_does_not_start_the_clock() -> None:
    clock = Clock()
    meter = make_meter(3, clock)
    run(meter, clock, [1.0])
    meter.pause()
    clock.now += 50
    meter.resume()
    run(meter, clock, [1.0, 1.0, 0.5])
    meter.pause()
    assert meter.steps == 1
    assert meter.seconds == pytest.approx(0.5)


def test_the_running_stretch_counts_when_it_is_read() -> None:
    clock = Clock()
    meter = make_meter(0, clock)
    run(meter, clock, [1.0, 3.0])
    assert meter.read()["time/step_ms"] == pytest.approx(2000)
    run(meter, clock, [2.0])
    assert meter.read()["time/step_ms"] == pytest.approx(2000)


def test_waiting_for_data_is_a_share_of_the_time() -> None:
    clock = Clock()
    meter = make_meter(1, clock)
    run(meter, clock, [9.0], data_seconds=9.0)
    run(meter, clock, 4 * [0.5], data_seconds=0.2)
    assert meter.read()["time/data_wait_pct"] == pytest.approx(40)


def test_a_resumed_run_goes_on_counting_and_warms_up_anew() -> None:
    clock = Clock()
    first = make_meter(2, clock)
    run(first, clock, [9.0, 9.0, 1.0, 1.0], data_seconds=0.5)
    first.pause()

    later = Clock()
    second = Meter(CPU, 2, later, later.wait)
    second.load_state_dict(first.state_dict())
    second.resume()
    assert second.read()["throughput/samples_per_sec"] == pytest.approx(8)
    run(second, later, [9.0, 9.0, 3.0], data_seconds=1.0)
    second.pause()
    assert (second.samples, second.steps) == (24, 3)
    assert second.seconds == pytest.approx(5.0)
    assert second.read()["time/data_wait_pct"] == pytest.approx(40)


# Memory

linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
BUFFER_MIB = 96


def touch(mib: int = BUFFER_MIB) -> None:
    """Use memory and give it back to the system, whatever the allocator of this process keeps."""
    with mmap.mmap(-1, mib * MIB) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1


@linux
def test_peak_memory_sees_a_buffer_of_its_stretch_that_is_gone_again() -> None:
    memory = PeakMemory(CPU)
    memory.start()
    touch()
    memory.stop()
    assert BUFFER_MIB * 0.9 < memory.read()["memory/peak_rss_mib"] < BUFFER_MIB * 1.5


@linux
def test_peak_memory_does_not_see_what_was_freed_before_or_between_its_stretches() -> None:
    memory = PeakMemory(CPU)
    touch()
    memory.start()
    memory.stop()
    touch()
    memory.start()
    memory.stop()
    assert memory.peaks["memory/peak_rss_mib"] < BUFFER_MIB / 2


@linux
def test_a_peak_that_is_saved_is_not_that_of_the_evaluation_before(cpu: torch.device) -> None:
    meter = Meter(cpu, warmup_steps=0)
    meter.resume()
    meter.pause()
    touch()
    resumed = Meter(cpu, warmup_steps=0)
    resumed.load_state_dict(meter.state_dict())
    assert resumed.read()["memory/peak_rss_mib"] < BUFFER_MIB / 2


@linux
def test_peak_memory_is_the_highest_of_all_stretches() -> None:
    memory = PeakMemory(CPU)
    for mib in (BUFFER_MIB, BUFFER_MIB // 3):
        memory.start()
        touch(mib)
        memory.stop()
    assert memory.read()["memory/peak_rss_mib"] > BUFFER_MIB * 0.9


@linux
def test_the_warm_up_is_left_out_of_the_peak() -> None:
    clock = Clock()
    meter = make_meter(2, clock)
    run(meter, clock, [1.0])
    touch()
    run(meter, clock, [1.0])
    assert meter.read()["memory/peak_rss_mib"] < BUFFER_MIB / 2
    touch()
    run(meter, clock, [1.0])
    meter.pause()
    assert meter.read()["memory/peak_rss_mib"] > BUFFER_MIB * 0.9


@linux
def test_a_resumed_run_keeps_the_peak_of_the_earlier_attempt() -> None:
    clock = Clock()
    first = make_meter(0, clock)
    touch()
    run(first, clock, [1.0])
    first.pause()
    second = Meter(CPU, 2, clock, clock.wait)
    second.load_state_dict(first.state_dict())
    second.resume()
    run(second, clock, 4 * [1.0])
    second.pause()
    assert second.read()["memory/peak_rss_mib"] > BUFFER_MIB * 0.9


def test_where_there_is_no_proc_no_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train.engine.meter._status_mib", lambda field: None)
    clock = Clock()
    meter = make_meter(0, clock)
    run(meter, clock, [1.0])
    meter.pause()
    assert not any(name.startswith("memory/") for name in meter.read())


@linux
def test_where_the_peak_cannot_be_reset_it_is_not_reported_and_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc is read-only in some containers: a peak that was not reset would be that of the loading."""

    def read_only(path: Path, *_: object, **__: object) -> int:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "write_text", read_only)
    memory = PeakMemory(CPU)
    memory.start()
    memory.restart()
    memory.stop()
    assert memory.read() == {}

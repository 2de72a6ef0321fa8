"""The training clock and the memory figures.

The clock runs over training steps alone: warm-up steps are left out of both samples and time, the
device is synchronised where a timed stretch begins and ends and nowhere else, and evaluation and
checkpoints lie outside because the loop pauses the meter around them.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from .allocator import return_freed_memory

MIB = 2**20
COUNTERS = ("samples", "tokens", "steps", "seconds", "data_seconds")


def synchronize(device: torch.device) -> None:
    """Wait until the device is idle; a CPU always is."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Meter:
    """Samples, tokens, seconds, seconds spent waiting for data, and peak memory of the training steps.

    `clock` gives seconds, `wait` blocks until the device is idle; both can be replaced in tests.
    """

    def __init__(
        self,
        device: torch.device,
        warmup_steps: int = 5,
        clock: Callable[[], float] = time.perf_counter,
        wait: Callable[[], None] | None = None,
    ) -> None:
        self.device, self.warmup_steps, self.clock = device, warmup_steps, clock
        self.wait = wait or (lambda: synchronize(device))
        self.memory = PeakMemory(device)
        self.seen_steps = self.samples = self.steps = 0
        self.tokens: int | torch.Tensor = 0  # a tensor while the device counts
        self.seconds = self.data_seconds = 0.0
        self._opened: float | None = None

    def resume(self) -> None:
        """Start a timed stretch of training, once the warm-up is over."""
        self.memory.start()
        if self.seen_steps >= self.warmup_steps:
            self._open()

    def pause(self) -> None:
        """End the timed stretch, for something that is not training."""
        if self._opened is not None:
            self.wait()
            self.seconds += self.clock() - self._opened
            self._opened = None
        self.memory.stop()

    def step(self, samples: int, data_seconds: float, tokens: int | torch.Tensor = 0) -> None:
        """Count one step of `samples` samples that waited `data_seconds` for its batches."""
        self.seen_steps += 1
        if self._opened is not None:
            self.samples += samples
            self.tokens = self.tokens + tokens
            self.steps += 1
            self.data_seconds += data_seconds
        elif self.seen_steps == self.warmup_steps:
            self.memory.restart()
            self._open()

    @property
    def unmeasured_reason(self) -> str | None:
        """Why there is no throughput yet, or None."""
        return None if self.steps else f"{self.seen_steps} steps, of which {self.warmup_steps} are warm-up"

    def read(self) -> dict[str, float]:
        """Metrics of memory, and of throughput and time once a step was measured."""
        running = self.clock() - self._opened if self._opened is not None else 0.0
        seconds = self.seconds + running
        metrics = self.memory.read()
        if self.steps == 0:
            return metrics
        metrics["throughput/samples_per_sec"] = self.samples / seconds
        if tokens := int(self.tokens):
            metrics["throughput/tokens_per_sec"] = tokens / seconds
        metrics["time/step_ms"] = 1000 * seconds / self.steps
        metrics["time/data_wait_pct"] = 100 * self.data_seconds / seconds
        return metrics

    def state_dict(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in COUNTERS}
        return counts | {"tokens": int(self.tokens), "peaks": self.memory.read()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the counts of an earlier attempt of the same run; this process warms up again."""
        self.memory.earlier = dict(state["peaks"])
        for name in COUNTERS:
            setattr(self, name, state[name])

    def _open(self) -> None:
        self.wait()
        self._opened = self.clock()


class PeakMemory:
    """Peak memory in MiB of the stretches between `start` and `stop`.

    CUDA: what the allocator handed out and what it reserved. CPU: the resident set's peak above its
    level at the first `start`, from Linux's VmHWM, which writing 5 to /proc/self/clear_refs resets
    (proc(5)); getrusage's ru_maxrss never falls, so it would count the evaluation and the loading too.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peaks: dict[str, float] = {}
        self.earlier: dict[str, float] = {}  # of earlier attempts of the same run
        self.level: float | None = None  # None where it cannot be measured
        self.tried = self.running = False

    def start(self) -> None:
        self.running = True
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        if self.level is None and not self.tried:
            self.tried = True
            return_freed_memory()  # memory that loading the data left free would hide the training's growth
            self.level = _status_mib("VmRSS")
        if self.level is None:
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:  # read-only in some containers; a peak that was not reset would be of something else
            self.level = None

    def restart(self) -> None:
        """Drop the peaks so far (of the warm-up) and keep the level."""
        self.peaks.clear()
        self.start()

    def stop(self) -> None:
        self.peaks, self.running = _highest(self.peaks, self._now()), False

    def read(self) -> dict[str, float]:
        """The peaks so far, earlier attempts and the running stretch included."""
        return _highest(_highest(self.earlier, self.peaks), self._now())

    def _now(self) -> dict[str, float]:
        if not self.running:
            return {}
        if self.device.type == "cuda":
            return {
                "memory/peak_allocated_mib": torch.cuda.max_memory_allocated(self.device) / MIB,
                "memory/peak_reserved_mib": torch.cuda.max_memory_reserved(self.device) / MIB,
            }
        peak = _status_mib("VmHWM")
        if peak is None or self.level is None:
            return {}
        return {"memory/peak_rss_mib": max(peak - self.level, 0.0)}


def _highest(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    return {name: max(a.get(name, 0.0), b.get(name, 0.0)) for name in a | b}


def _status_mib(field: str) -> float | None:
    """A field of /proc/self/status in MiB; None where there is no such file (not Linux)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), None)

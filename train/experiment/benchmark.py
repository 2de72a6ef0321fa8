"""The paired throughput benchmark: one process, blocks of training steps in each precision in turn.

    python -m train.experiment.benchmark CONFIG --precisions fp32,bf16 --output FILE [key.sub=value ...]

On a shared machine two runs made at different times differ by more than most speed-ups. Here every block
in one precision has a neighbour in each other one, so their ratio is that of the precisions. Steps are
whole ones (forward, backward, unscale, clip, step) on one batch that is on the device already.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from reports.records import write_json
from train.engine.meter import synchronize
from train.engine.precision import require_available
from train.engine.step import Batch, Trainer
from train.experiment import assemble, command, environment
from train.experiment.assemble import Build
from train.experiment.config import Experiment
from train.experiment.tasks import Task

ROUNDS = 21
BLOCK_SECONDS = 0.4
WARMUP_STEPS = 3
PROFILED_STEPS = 3
MOST_OPERATORS = 25


def interleave(
    steps: Mapping[str, Callable[[], object]],
    wait: Callable[[], None],
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
    before: Callable[[str], object] = lambda name: None,
) -> dict[str, Any]:
    """Seconds of equal blocks of each of `steps`, A B C A B C ..., as {"block_steps", "seconds": {name: [rounds]}}.

    A block has as many steps as fit `block_seconds` for the fastest of them, and at least two. `before(name)`
    runs ahead of each block, outside the clock.
    """
    fastest = float("inf")
    for name, step in steps.items():
        before(name)
        for _ in range(WARMUP_STEPS):
            step()
        fastest = min(fastest, _timed(step, 2, wait) / 2)
    block = max(2, round(block_seconds / fastest))
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            before(name)
            seconds[name].append(_timed(step, block, wait))
    return {"block_steps": block, "seconds": seconds}


def benchmark(
    build: Build,
    task: Task,
    config: Experiment,
    precisions: Sequence[str],
    device: torch.device,
    smoke: bool = False,
) -> dict[str, Any]:
    """The record of a paired benchmark of `precisions`, raw blocks included."""
    assemble.set_up_process(config, device)
    train, _ = task.load(config, 0, device, smoke)
    batch: Batch = next(train.epoch(0))
    trainers = {name: trainer_at_rest(build, task, config, train, name, device) for name in precisions}
    steps = {name: _step(trainer, [batch] * config.accumulate) for name, trainer in trainers.items()}
    measured = interleave(
        steps,
        lambda: synchronize(device),
        rounds=3 if smoke else ROUNDS,
        block_seconds=0.05 if smoke else BLOCK_SECONDS,
        before=lambda name: trainers[name].precision.activate(),
    )
    operators = {}
    for name, step in steps.items():
        trainers[name].precision.activate()
        operators[name] = operator_times(step, device)
    return {
        "config_sha256": config.digest(),
        "precisions": list(precisions),
        "device": environment.device_name(device),
        "torch": torch.__version__,
        "samples_per_step": len(batch["labels"]) * config.accumulate,
        "skipped_steps": {name: trainer.step_count - trainer.applied_step for name, trainer in trainers.items()},
        "operators_ms": operators,
        **measured,
    }


def operator_times(step: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Milliseconds of a step that each of its `MOST_OPERATORS` longest operators takes by itself, from the profiler."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop are no news
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as recorded:
        for _ in range(PROFILED_STEPS):
            step()
        synchronize(device)
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    times = {event.key: getattr(event, field) / 1000 / PROFILED_STEPS for event in recorded.key_averages()}
    longest = sorted(times, key=times.__getitem__, reverse=True)[:MOST_OPERATORS]
    return {name: round(times[name], 4) for name in longest}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the record; returns the exit status."""
    options = command.parser("train.experiment.benchmark", "Measure the speed of several precisions side by side.")
    options.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated")
    options.add_argument("--output", type=Path, required=True, metavar="FILE", help="where the record goes")
    given = options.parse(arguments)

    def measure() -> int:
        build, task, config = assemble.script_of(given.config, given.overrides, given.smoke)
        device = environment.resolve_device(given.device)
        precisions = given.precisions.split(",")
        for name in precisions:
            require_available(name, device)
        write_json(given.output, benchmark(build, task, config, precisions, device, given.smoke))
        return 0

    return command.finish(measure)


def trainer_at_rest(
    build: Build, task: Task, config: Experiment, train: Any, name: str, device: torch.device, seed: int = 0
) -> Trainer:
    """A trainer in the precision `name` whose steps are whole but change no weight."""
    model = assemble.build_model(build, config, seed, device)
    trainer = assemble.build_trainer(model, task, config, train, assemble.build_precision(name, config, device))
    # At rate 0 a step costs the same, and hundreds of them on one batch leave the weights where they began.
    trainer.schedule = lambda step: 0.0
    model.train()
    return trainer


def _step(trainer: Trainer, window: list[Batch]) -> Callable[[], None]:
    return lambda: trainer.step(window)


def _timed(step: Callable[[], object], count: int, wait: Callable[[], None]) -> float:
    wait()
    started = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())

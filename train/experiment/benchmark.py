"""The paired throughput benchmark: several process starts, in each blocks of training steps in each precision in turn.

On a shared machine two runs made at different times differ by more than most speed-ups. Here every block
in one precision has a neighbour in each other one, so their ratio is that of the precisions. Steps are
whole ones (forward, backward, unscale, clip, step) on one batch that is on the device already.

Two equal trainers that are built once differ by up to 2% in speed, by where their memory happens to lie, and two
processes by what chance gave each of them; however often they are timed, an interval over rounds of one process closes
on that difference (Mytkowicz et al. 2009, "Producing Wrong Data Without Doing Anything Obviously Wrong!",
https://doi.org/10.1145/1508244.1508275). So each round builds new trainers, in turning order, and the interval is over
process starts; `scripts.run_speed_calibration` counts how often it holds the truth.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from reports.records.benchmark import Benchmark, Blocks, Conditions, Start
from reports.records.config import Experiment
from reports.records.files import read_record, write_record
from train.engine.meter import synchronize
from train.engine.step import Batch
from train.experiment import environment
from train.experiment.identity import source_digest
from train.experiment.setup import Script, Setup, build_model, setup

Step = Callable[[], object]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STARTS = 3
ROUNDS = 8  # of a start; even, so that each order comes equally often
BLOCK_SECONDS = 0.4
WARMUP_STEPS = 2
PROFILED_STEPS = 3
MOST_OPERATORS = 25


def interleave(
    builds: Mapping[str, Callable[[], Step]],
    wait: Callable[[], None],
    rounds: int = ROUNDS,
    block_seconds: float = BLOCK_SECONDS,
    before: Callable[[str], object] = lambda name: None,
    count: Callable[[int], Iterable[int]] = range,
) -> Blocks:
    """Seconds of equal blocks of what each of `builds` builds.

    A round builds all of them, warms them up and times one block of each, A B C and in the next round C B A.
    A block has as many steps as fit `block_seconds` for the fastest of them, and at least two. `before(name)`
    runs ahead of the steps of each, outside the clock, and `count(rounds)` numbers the rounds.
    """
    names = list(builds)

    def one_round(order: Sequence[str], block: int) -> dict[str, float]:
        steps = {name: builds[name]() for name in order}
        for name, step in steps.items():
            before(name)
            _repeat(step, WARMUP_STEPS)
        seconds = {}
        for name, step in steps.items():
            before(name)
            wait()
            started = time.perf_counter()
            _repeat(step, block)
            wait()
            seconds[name] = time.perf_counter() - started
        return seconds

    fastest = min(one_round(names, 2).values()) / 2
    block = max(2, round(block_seconds / fastest))
    measured = [one_round(names if number % 2 == 0 else names[::-1], block) for number in count(rounds)]
    return Blocks(block_steps=block, seconds={name: [one[name] for one in measured] for name in names})


def measure(
    script: Script,
    config: Experiment,
    precisions: Sequence[str],
    device: torch.device,
    smoke: bool = False,
    counted: Callable[[int, str], Iterable[int]] = lambda rounds, title: range(rounds),
) -> Start:
    """Measure `precisions` side by side in this process; `counted(rounds, title)` numbers the rounds and may show them.

    Raises `Refused` as `setup` does, and whatever the model raises in a step or in a copy of itself.
    """
    setups: dict[str, Setup] = {}
    for name in precisions:
        data = next(iter(setups.values())).data if setups else None
        setups[name] = setup(script, config, name, 0, device, smoke, data)
    batch: Batch = next(setups[precisions[0]].data.train.epoch(0))
    builds = {name: steps_at_rate_0(wired, batch) for name, wired in setups.items()}
    blocks = interleave(
        builds,
        lambda: synchronize(device),
        rounds=2 if smoke else ROUNDS,
        block_seconds=0.05 if smoke else BLOCK_SECONDS,
        before=lambda name: setups[name].precision.activate(),
        count=lambda rounds: counted(rounds, f"{config.name}: round"),
    )
    operators = {}
    for name, build_step in builds.items():
        setups[name].precision.activate()
        operators[name] = operator_times(build_step(), device)
    return Start(
        git=environment.git_state(),
        samples_per_step=len(batch["labels"]) * setups[precisions[0]].micro_batches,
        operators_ms=operators,
        **dict(blocks),
    )


def conditions(script: Script, config: Experiment, device: torch.device, smoke: bool) -> Conditions:
    """What must be equal for starts to stand in one record."""
    machine = environment.describe(device)
    return Conditions(
        config_sha256=config.digest(),
        source_sha256=source_digest(script, build_model(script.build, config, 0, torch.device("cpu"))),
        device=environment.device_name(device),
        cpu=machine.cpu,
        torch=machine.versions["torch"],
        smoke=smoke,
    )


def recorded(file: Path, under: Conditions, precisions: Sequence[str]) -> Benchmark:
    """The starts in `file` that were measured under these conditions, each with all `precisions`; none of any other."""
    try:
        previous = read_record(Benchmark, file)
    except ValueError:
        return Benchmark(**dict(under))
    same = all(getattr(previous, key) == value for key, value in under)
    return Benchmark(**dict(under), starts=[start for start in previous.starts if same and start.has(precisions)])


def add_start(file: Path, under: Conditions, start: Start) -> None:
    """Write `file` with one more start; starts that lack one of its precisions go."""
    benchmark = recorded(file, under, list(start.seconds))
    write_record(file, benchmark.model_copy(update={"starts": [*benchmark.starts, start]}))


def in_new_process(
    function: Callable[Arguments, Result], *arguments: Arguments.args, **named: Arguments.kwargs
) -> Result:
    """What `function`, one of a module, returns in a process that is started for it."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments, **named).result()


def steps_at_rate_0(wired: Setup, batch: Batch) -> Callable[[], Step]:
    """Builds trainers on copies of the model, whose steps on `batch` are whole but change no weight.

    They share the precision, so that a loss scale settles once and not in each of them.
    """

    def build() -> Step:
        trainer = wired.trainer_on_copy()
        # At rate 0 a step costs the same, and hundreds of them on one batch leave the weights where they began.
        trainer.schedule = lambda step: 0.0
        trainer.train_mode()
        return lambda: trainer.step([batch] * wired.micro_batches)

    return build


def operator_times(step: Step, device: torch.device) -> dict[str, float]:
    """Milliseconds of a step that each of its `MOST_OPERATORS` longest operators takes by itself, from the profiler."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its start and stop are no news
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    _repeat(step, WARMUP_STEPS)
    with profile(activities=activities) as recorded:
        _repeat(step, PROFILED_STEPS)
        synchronize(device)
    field = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    times = {event.key: getattr(event, field) / 1000 / PROFILED_STEPS for event in recorded.key_averages()}
    longest = sorted(times, key=times.__getitem__, reverse=True)[:MOST_OPERATORS]
    return {name: round(times[name], 4) for name in longest}


def _repeat(step: Step, count: int) -> None:
    for _ in range(count):
        step()

"""What a comparison is about to do: its runs, the machine, about how long it takes and how much disk.

It loads neither torch nor statistics, so that it can be said before the seconds which those take.
"""

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reports.records import comparison, layout
from reports.records.comparison import DEFAULT_SEEDS, Comparison
from reports.records.config import NOT_COMPUTED, Experiment, departures, differences, read_config
from reports.records.estimates import QUICK, Estimate, Estimates
from reports.records.files import read_record
from reports.records.summary import FINISHED, Summary, read_summary
from train.cli.signals import spoken_for
from train.experiment import config_file

REPORTS = config_file.ROOT / "reports"
CHECKPOINTS = 3  # of a run: the last, the one before it, and the best
START_SECONDS = 6.0  # of a process before it trains
# What the size of a model depends on.
SIZE = ("model", "arch", "num_classes", "vocab_size", "data.name", "data.length")


@dataclass(frozen=True)
class Plan:
    """The runs of a comparison in `folder`: those asked for and, with the same configuration, those of an earlier one.

    `precisions` are trained with all `seeds`; `others` stay in the comparison as they are.
    """

    file: Path
    config: Experiment
    folder: Path
    device: str
    precisions: list[str]
    others: list[str]
    seeds: list[int]
    smoke: bool

    def summaries(self, precision: str) -> list[Summary]:
        """Those of its finished runs."""
        files = (self.folder / layout.run_name(precision, seed) / layout.SUMMARY for seed in self.seeds)
        return [] if self.smoke else [one for one in map(read_summary, files) if one.status == FINISHED]

    def seconds(self) -> dict[str, float]:
        """About how long a run takes in each precision where it is known: here, or else by the committed records."""
        known = {precision: _mean_seconds(self.summaries(precision)) for precision in self.precisions}
        if not any(known.values()) and self.device == "cpu" and not self.smoke and self._is_committed():
            known = _recorded_seconds(self.file.stem)
        return {precision: seconds for precision, seconds in known.items() if seconds is not None}

    def kept(self, seeds: int) -> str:
        """What there is beyond the `seeds` that were asked for, in a line; empty for nothing."""
        more = [f"seed {seed}" for seed in self.seeds if seed >= seeds] + self.others
        return f"the earlier comparison is kept: {', '.join(more)} stay in it" if more else ""

    def lines(self) -> list[str]:
        """The plan for a person: the runs, the machine, and what they cost."""
        count = f"{len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}"
        runs = [precision for precision in self.precisions for _ in self.seeds]
        done = {precision: len(self.summaries(precision)) for precision in self.precisions}
        finished = f", {sum(done.values())} of them finished already" if any(done.values()) else ""
        smoke = " of a few steps" if self.smoke else ""
        what = f"{len(runs)} run{'s' * (len(runs) != 1)}{smoke} ({', '.join(self.precisions)}; {count})"
        lines = [f"{self.config.name}: {what}{finished}"]
        to_do = {precision: len(self.seeds) - done[precision] for precision in self.precisions}
        if not any(to_do.values()):
            return lines
        cost = []
        if not self.smoke:
            known = self.seconds()
            mean = statistics.fmean(known.values()) if known else 0.0
            total = sum((known.get(precision, mean) + START_SECONDS) * number for precision, number in to_do.items())
            cost.append(
                f"about {duration(total)} to train, then the speed" if known else "time not known before the first run"
            )
            size = self._checkpoint_bytes()
            cost.append(f"up to {_amount(size * sum(to_do.values()))} of disk" if size else "disk not known either")
        return [*lines, f"on {_hardware(self.device)}", *(["; ".join(cost)] if cost else [])]

    def _is_committed(self, keys: Sequence[str] = ()) -> bool:
        """Whether it computes what the repository's experiment of that file does, or has the same `keys`."""
        committed = config_file.ROOT / "configs" / self.file.name
        if not committed.is_file():
            return False
        changed = {change.key for change in differences(read_config(committed), self.config)} - {"name"}
        return not changed & set(keys) if keys else changed <= NOT_COMPUTED

    def _checkpoint_bytes(self) -> int | None:
        """Of all checkpoints of a run at most: weights, optimizer state and moving average, four bytes a number."""
        known = [one.parameters for name in self.precisions for one in self.summaries(name) if one.parameters]
        estimate = _estimates().get(self.file.stem) if self._is_committed(SIZE) else None
        parameters = known[0] if known else estimate.parameters if estimate else None
        if parameters is None:
            return None
        copies = 1 + (1 if self.config.optimizer.name == "sgd" else 2) + (self.config.ema_decay is not None)
        return parameters * 4 * copies * CHECKPOINTS


def make(
    file: Path, config: Experiment, out: Path, device: str, precisions: Sequence[str], seeds: int, smoke: bool
) -> Plan:
    """The plan for `seeds` seeds of each of the `precisions`, and for what an earlier comparison there has beyond."""
    folder = layout.experiment_folder(out, config.name, smoke)
    asked = list(range(seeds))
    try:
        if smoke:
            raise ValueError("a smoke run starts again")
        earlier = read_record(comparison.Plan, folder / layout.COMPARISON)
    except ValueError:
        return Plan(file, config, folder, device, list(precisions), [], asked, smoke)
    kept = [
        (precision, seed)
        for precision in earlier.precisions
        for seed in earlier.seeds
        if _is_finished(folder / layout.run_name(precision, seed), config)
    ]
    others = [name for name in earlier.precisions if name not in precisions and name in dict(kept)]
    all_seeds = sorted({*asked, *(seed for _, seed in kept)})
    return Plan(file, config, folder, device, list(precisions), others, all_seeds, smoke)


def announce(module: str, arguments: Sequence[str]) -> None:
    """Say what `python -m module arguments` will do, before its libraries load; nothing of what it will refuse."""
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name, default in (("--precisions", "fp32,bf16,fp16"), ("--device", "auto"), ("--out", "runs")):
        options.add_argument(name, default=default)
    options.add_argument("--smoke", action=argparse.BooleanOptionalAction, default=False)
    options.add_argument("--seeds", type=int)
    options.add_argument("--precision")
    options.add_argument("--seed", default="0")
    try:
        given, rest = options.parse_known_args(arguments)
        if spoken_for() or {"-h", "--help", "--plan"} & {*rest}:
            return
        file = next(file for name in rest if "=" not in name and (file := _file(name)))
        if module == "train.compare":
            overrides = [one for one in rest if "=" in one and one[0] != "-"]
            config = Experiment.model_validate(config_file.read(file, overrides))
            config = config.smoke() if given.smoke else config
            device = device_type(given.device)
            seeds = given.seeds or (1 if given.smoke else DEFAULT_SEEDS)
            precisions = [name.strip() for name in given.precisions.split(",")]
            lines = make(file, config, Path(given.out), device, precisions, seeds, given.smoke).lines()
        elif given.precision:
            lines = [f"{module}: {file.stem} {given.precision} seed {given.seed}: loading"]
        else:
            return
        print("\n".join(lines), flush=True)
    except (argparse.ArgumentError, StopIteration, ValueError, OSError):
        return


def device_type(name: str) -> str:
    """What `auto` will be, without torch: CUDA where NVIDIA's driver has a device that may be seen."""
    if name != "auto":
        return name
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return "cuda" if Path("/proc/driver/nvidia/gpus").is_dir() and not hidden else "cpu"


def duration(seconds: float) -> str:
    """A time that is known roughly."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _file(name: str) -> Path | None:
    try:
        return config_file.find(Path(name))
    except ValueError:
        return None


def _is_finished(run: Path, config: Experiment) -> bool:
    try:
        recorded = read_config(run / layout.CONFIG)
    except ValueError:
        return False
    return read_summary(run / layout.SUMMARY).status == FINISHED and not departures(recorded, config)


def _mean_seconds(summaries: Sequence[Summary]) -> float | None:
    seconds = [one.attempt_seconds for one in summaries if one.attempt_seconds]
    return statistics.fmean(seconds) if seconds else None


def _recorded_seconds(experiment: str) -> dict[str, float | None]:
    """Of a run by its committed record; without one by its operations, at the rate of the quick start in FP32."""
    if (own := _recorded(experiment)) is not None:
        return {row.precision: row.train_seconds for row in own.rows}
    costs, quick = _estimates(), _recorded(QUICK)
    row = quick.row(layout.BASELINE) if quick else None
    if row is None or row.samples_per_sec is None or experiment not in costs:
        return {}
    cost = costs[experiment]
    rate = costs[QUICK].forward_flops * row.samples_per_sec
    return {layout.BASELINE: cost.forward_flops * cost.samples / rate}


def _recorded(experiment: str) -> Comparison | None:
    try:
        return read_record(Comparison, REPORTS / "results" / experiment / layout.COMPARISON)
    except ValueError:
        return None


def _estimates() -> dict[str, Estimate]:
    return read_record(Estimates, REPORTS / "estimates.json").root


def _hardware(device: str) -> str:
    if device != "cpu":
        return device.upper()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
    threads = os.environ.get("OMP_NUM_THREADS") or os.cpu_count()
    return f"{name}, {threads} thread{'s' * (str(threads) != '1')}"


def _amount(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{max(1, size / 2**20):.0f} MiB"

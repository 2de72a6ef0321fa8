"""Real runs for `reports.calibrate`: FP32 with many seeds, and the speed of FP32 over itself.

    python -m scripts.run_calibration CONFIG [--comparisons 12] [--pairs 5] [--output FILE] [key.sub=value ...]

All runs are made in one process, one after the other; those that are recorded already are not made again. They must be
of the same configuration, device, torch and commit: runs of others are no sample of one distribution.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.records.calibration import COMPARISONS, misfit
from reports.records.files import read_json, write_json
from train.cli import options as command
from train.engine.errors import Refused
from train.engine.fit import Progress, evaluate, fit
from train.engine.meter import Meter, synchronize
from train.experiment import environment
from train.experiment import setup as assemble
from train.experiment.benchmark import interleave, resting

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "reports" / "results" / "calibration.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure and write the record after every run; returns the exit status."""
    options = command.parser("scripts.run_calibration", "FP32 against FP32, for reports.calibrate.")
    options.add_argument(
        "--comparisons", type=count(1), default=COMPARISONS, metavar="N", help="of accuracy and of speed"
    )
    options.add_argument("--pairs", type=count(2), default=5, metavar="N", help="of runs in a comparison")
    options.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="the record")
    given = options.parse(arguments)

    def calibrate() -> int:
        build, task, config = assemble.script_of(given.config, given.overrides, given.smoke)
        if task.metric != "accuracy":
            raise Refused(f"{given.config}: its metric is {task.metric}; a calibration is of one whose is accuracy")
        device = environment.resolve_device(given.device)
        assemble.set_up_process(config, device)
        new = {
            "experiment": config.name,
            "overrides": list(given.overrides),
            "config_sha256": config.digest(),
            "smoke": given.smoke,
            "margin": config.margin,
            "pairs": given.pairs,
            "environment": environment.describe(device),
        }
        record = resumed(given.output, new) | new
        if record["accuracies"]:
            write_json(given.output, record)  # other pairs of the same runs, even where no run is missing
        for seed in range(len(record["accuracies"]), 2 * given.pairs * given.comparisons):
            accuracy, samples = train(build, task, config, seed, device, given.smoke)
            record["accuracies"].append(accuracy)
            record["eval_samples"] = samples
            write_json(given.output, record)
            print(f"seed {seed}: accuracy {accuracy:.4f}", flush=True)
        while len(record["speed"]) < given.comparisons:
            record["speed"].append(speed(build, task, config, len(record["speed"]), device, given.smoke))
            write_json(given.output, record)
            print(f"speed {len(record['speed'])} of {given.comparisons}", flush=True)
        return 0

    return command.finish(calibrate)


def resumed(path: Path, new: Mapping[str, Any]) -> dict[str, Any]:
    """The record at `path` to go on with, or an empty one where there is none.

    Raises `Refused`, naming `path` and what differs, for one whose runs are not like those of the `new` one.
    """
    if not path.exists():
        return {"accuracies": [], "speed": []}
    old = read_json(path)
    wrong = "it is not readable as JSON" if old is None else misfit(old)
    if old is None or wrong:
        raise Refused(f"{path} is no calibration record to go on with: {wrong}; move it away or name another --output")
    before, now = _origin(old), _origin(new)
    differences = [f"{name} is {now[name]}, not {before[name]}" for name in now if now[name] != before[name]]
    if before["uncommitted changes"] is not False or now["uncommitted changes"] is not False:
        differences.append("its runs or this source are not known to be those of a commit without changes")
    if differences:
        raise Refused(
            f"{path} has runs of another kind: {'; '.join(differences)}; move it away or name another --output"
        )
    return old


def _origin(record: Mapping[str, Any]) -> dict[str, Any]:
    """What must be equal for the runs of two records to stand in one."""
    facts = record["environment"]
    return {
        "configuration (SHA-256)": record.get("config_sha256"),
        "smoke": record["smoke"],
        "device": facts.get("device", {}).get("name"),
        "torch": facts.get("versions", {}).get("torch"),
        "commit": facts.get("git", {}).get("commit"),
        "uncommitted changes": facts.get("git", {}).get("dirty"),
    }


def count(least: int) -> Callable[[str], int]:
    """A whole number that is at least `least`, from the command line."""

    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    whole.__name__ = "whole number"  # as argparse names it to whoever gives a text
    return whole


def train(build: Any, task: Any, config: Any, seed: int, device: Any, smoke: bool) -> tuple[float, int]:
    """Final accuracy and evaluation samples of one FP32 run."""
    precision = assemble.build_precision("fp32", config, device)
    model = assemble.build_model(build, config, seed, device)
    splits = task.load(config, seed, device, smoke)
    batches, evaluation = splits.train, splits.evaluation
    assemble.seed_everything(seed)
    trainer = assemble.build_trainer(model, task, config, batches, precision)
    plan, nothing = assemble.plan(config, batches), lambda *_: None
    fit(trainer, batches, plan, Meter(device), Progress(), nothing, nothing, nothing)
    totals = evaluate(trainer.evaluated_model, task.forward, task.score, evaluation, precision)
    return task.summarise(totals)["eval/accuracy"], evaluation.samples


def speed(build: Any, task: Any, config: Any, seed: int, device: Any, smoke: bool) -> dict[str, Any]:
    """Seconds of the blocks of FP32 trainers and of others like them."""
    batches = task.load(config, seed, device, smoke).train
    model, batch = assemble.build_model(build, config, seed, device), next(batches.epoch(0))
    builds = {
        name: resting(model, task, config, batches, assemble.build_precision("fp32", config, device), batch)
        for name in ("first", "second")
    }
    found: dict[str, Any] = interleave(builds, lambda: synchronize(device))["seconds"]
    return found


if __name__ == "__main__":
    sys.exit(main())

"""Real runs for `reports.calibrate`: FP32 with many seeds.

    python -m scripts.run_calibration CONFIG [--comparisons 12] [--pairs 5] [--output FILE] [key.sub=value ...]

All runs are made in one process, one after the other; recorded ones are not made again. They must be of the same
configuration, device, torch and commit: runs of others are no sample of one distribution.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from reports.records.calibration import COMPARISONS, Calibration, FromOneSource
from reports.records.config import Experiment
from reports.records.files import read_record, write_record
from train.cli import options
from train.cli.scripts import script_of
from train.engine.errors import Refused
from train.engine.fit import Progress, fit
from train.engine.meter import Meter
from train.experiment import environment
from train.experiment.metrics import ACCURACY
from train.experiment.setup import Script, setup

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "reports" / "results" / "calibration.json"
Record = TypeVar("Record", bound=FromOneSource)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and write the record after every run; returns the exit status."""
    parser = options.parser("scripts.run_calibration", "FP32 against FP32, for reports.calibrate.")
    parser.add_argument("--comparisons", type=count(1), default=COMPARISONS, metavar="N", help="of accuracy")
    parser.add_argument("--pairs", type=count(2), default=5, metavar="N", help="of runs in a comparison")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="the record")
    given = parser.parse(arguments)

    def calibrate() -> int:
        script = script_of(given.config, given.overrides)
        config = script.read(given.config, given.overrides, given.smoke)
        metric = script.task.metric
        if metric != ACCURACY.metric:
            raise Refused(f"{given.config}: its metric is {metric.name}; a calibration is of one whose is accuracy")
        device = environment.resolve_device(given.device)
        record = Calibration(
            experiment=config.name,
            overrides=list(given.overrides),
            config_sha256=config.digest(),
            smoke=given.smoke,
            margin=config.margin,
            pairs=given.pairs,
            environment=environment.describe(device),
        )
        if old := earlier(given.output, record):
            record.accuracies, record.eval_samples = old.accuracies, old.eval_samples
            write_record(given.output, record)  # other pairs of the same runs, even where no run is missing
        for seed in range(len(record.accuracies), 2 * given.pairs * given.comparisons):
            accuracy, record.eval_samples = train(script, config, seed, device, given.smoke)
            record.accuracies.append(accuracy)
            write_record(given.output, record)
            print(f"seed {seed}: accuracy {accuracy:.4f}", flush=True)
        return 0

    return options.finish(calibrate)


def earlier(path: Path, new: Record) -> Record | None:
    """The record at `path`, whose runs may stand beside those of `new`; None where there is no file.

    Raises `Refused`, naming `path` and what differs, for one whose runs are not like those of `new`.
    """
    if not path.exists():
        return None
    try:
        old = read_record(type(new), path)
    except ValueError as error:
        raise Refused(f"{error}; move it away or name another --output") from None
    before, now = old.origin, new.origin
    differences = [f"{name} is {now[name]}, not {before[name]}" for name in now if now[name] != before[name]]
    if not (old.environment.git.committed and new.environment.git.committed):
        differences.append("its runs or this source are not known to be those of a commit without changes")
    if differences:
        raise Refused(
            f"{path} has runs of another kind: {'; '.join(differences)}; move it away or name another --output"
        )
    return old


def count(least: int) -> Callable[[str], int]:
    """A whole number that is at least `least`, from the command line."""

    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    whole.__name__ = "whole number"  # as argparse names it to whoever gives a text
    return whole


def train(script: Script, config: Experiment, seed: int, device: torch.device, smoke: bool) -> tuple[float, int]:
    """Final accuracy and evaluation samples of one FP32 run."""
    wired = setup(script, config, "fp32", seed, device, smoke)
    fit(
        wired.trainer,
        wired.data.train,
        wired.plan,
        Meter(device),
        Progress(),
        on_log=lambda metrics: None,
        on_evaluate=lambda: None,
        on_checkpoint=lambda: None,
    )
    evaluation = wired.data.evaluation
    return wired.evaluate(evaluation)[script.task.metric.key], evaluation.samples


if __name__ == "__main__":
    sys.exit(main())

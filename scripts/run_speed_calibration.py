"""Real process starts for `reports.calibrate`: the speed of FP32 over itself.

    python -m scripts.run_speed_calibration CONFIG [--starts 120] [--output FILE] [key.sub=value ...]

One process after the other; recorded ones are not started again. They must be of the same configuration, device, torch
and commit: starts of others are no sample of one distribution. A quiet machine and a small network will do.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from reports.analysis.statistics import log_ratio
from reports.records.calibration import SPEED_STARTS, SpeedCalibration
from reports.records.files import write_record
from scripts.run_calibration import count, earlier
from train.cli import options
from train.cli.scripts import script_of
from train.engine.meter import synchronize
from train.experiment import environment
from train.experiment.benchmark import ROUNDS, in_new_process, interleave, steps_at_rate_0
from train.experiment.setup import setup

OUTPUT = Path(__file__).resolve().parent.parent / "reports" / "results" / "speed_calibration.json"
BLOCK_SECONDS = 0.1  # shorter than those of a comparison, so that many starts are measured in the same time


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the record after every process; returns the exit status."""
    parser = options.parser("scripts.run_speed_calibration", "The speed of FP32 over itself, for reports.calibrate.")
    parser.add_argument("--starts", type=count(1), default=SPEED_STARTS, metavar="N", help="processes, one by one")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE", help="the record")
    given = parser.parse(arguments)

    def calibrate() -> int:
        config = script_of(given.config, given.overrides).read(given.config, given.overrides, given.smoke)
        device = environment.resolve_device(given.device)
        new = SpeedCalibration(
            experiment=config.name,
            overrides=list(given.overrides),
            config_sha256=config.digest(),
            smoke=given.smoke,
            block_seconds=BLOCK_SECONDS,
            environment=environment.describe(device),
        )
        record = earlier(given.output, new) or new
        for number in range(len(record.log_ratios) + 1, given.starts + 1):
            ratio = in_new_process(one_start, given.config, given.overrides, given.device, given.smoke)
            record.log_ratios.append(ratio)
            write_record(given.output, record)
            print(f"start {number} of {given.starts}: {ratio:+.2%}", flush=True)
        return 0

    return options.finish(calibrate)


def one_start(path: Path, overrides: Sequence[str], device_name: str, smoke: bool) -> float:
    """The log ratio of the blocks of FP32 trainers and of others like them, in this process."""
    script, device = script_of(path, overrides), environment.resolve_device(device_name)
    wired = setup(script, script.read(path, overrides, smoke), "fp32", 0, device, smoke)
    batch = next(wired.data.train.epoch(0))
    builds = {name: steps_at_rate_0(wired, batch) for name in ("first", "second")}
    blocks = interleave(builds, lambda: synchronize(device), ROUNDS, BLOCK_SECONDS)
    return log_ratio(blocks.seconds["first"], blocks.seconds["second"])


if __name__ == "__main__":
    sys.exit(main())

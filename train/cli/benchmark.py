"""One process start of the paired benchmark, so that a comparison measures in fresh processes.

python -m train.cli.benchmark CONFIG --precisions fp32,bf16 --output FILE [key.sub=value ...]
"""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from train.cli import options, terminal
from train.cli.scripts import script_of
from train.engine.errors import Diverged, EngineFault, Refused
from train.engine.precision import require_available
from train.experiment import benchmark
from train.experiment.environment import resolve_device


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and add the start to the record; returns the exit status."""
    parser = options.parser("train.cli.benchmark", "Measure the speed of several precisions side by side.")
    parser.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the record, to which this process start is added"
    )
    given = parser.parse(arguments)

    def measure() -> int:
        script = script_of(given.config, given.overrides)
        config = script.read(given.config, given.overrides, given.smoke)
        device = resolve_device(given.device)
        precisions = given.precisions.split(",")
        for name in precisions:
            require_available(name, device)
        try:
            start = benchmark.measure(script, config, precisions, device, given.smoke, terminal.counted)
        except (Refused, Diverged, EngineFault, OSError):
            raise
        except Exception as error:  # whatever the model raises
            traceback.print_exc()
            raise EngineFault(f"{type(error).__name__}: {error}") from error
        benchmark.add_start(given.output, benchmark.conditions(script, config, device, given.smoke), start)
        return 0

    return options.finish(measure)


if __name__ == "__main__":
    sys.exit(main())

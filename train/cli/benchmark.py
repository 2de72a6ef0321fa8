"""The paired benchmark as a command of its own, so that a comparison measures in a fresh process.

python -m train.cli.benchmark CONFIG --precisions fp32,bf16 --output FILE [key.sub=value ...]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from reports.records.files import write_record
from train.cli import options, terminal
from train.cli.scripts import script_of
from train.engine.precision import require_available
from train.experiment.benchmark import benchmark
from train.experiment.environment import resolve_device


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the record; returns the exit status."""
    parser = options.parser("train.cli.benchmark", "Measure the speed of several precisions side by side.")
    parser.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="where the record goes")
    given = parser.parse(arguments)

    def measure() -> int:
        script = script_of(given.config, given.overrides)
        config = script.read(given.config, given.overrides, given.smoke)
        device = resolve_device(given.device)
        precisions = given.precisions.split(",")
        for name in precisions:
            require_available(name, device)
        record = benchmark(script, config, precisions, device, given.smoke, terminal.counted)
        write_record(given.output, record)
        return 0

    return options.finish(measure)


if __name__ == "__main__":
    sys.exit(main())

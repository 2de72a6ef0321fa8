"""The command of a per-model script: one experiment in one precision with one seed."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from train.cli import options, terminal
from train.cli.signals import Signals
from train.experiment.run import Services, execute, prepare
from train.experiment.setup import Build, Script
from train.experiment.tasks import Task
from train.tracking.runs import track_run


def main(build: Build, task: Task, arguments: Sequence[str] | None = None) -> int:
    """Train what the command line names; returns the exit status."""
    name = f"train.{Path(sys.argv[0]).stem}"
    parser = options.parser(name, "Train one experiment in one precision with one seed.")
    parser.add_argument("--precision", required=True, help="fp32, tf32 (CUDA), bf16 or fp16")
    parser.add_argument("--seed", type=options.seed, default=0, help="of weights, data order and augmentation")
    parser.add_argument(
        "--resume",
        default="auto",
        metavar="auto|never|any|FILE",
        help="where to resume from; any: on another machine too",
    )
    given = parser.parse(arguments)

    def train() -> int:
        script = Script(build, task)
        prepared = prepare(
            script, given.config, given.overrides, given.precision, given.seed, given.device, given.smoke
        )
        signals = Signals()
        command = shlex.join(["python", "-m", f"train.{prepared.setup.config.model}", *sys.argv[1:]])
        services = Services(track_run, terminal.Progress, lambda: signals.requested, command)
        execute(prepared, given.out, given.resume, services)
        return options.STATUS["finished"]

    return options.finish(train, given.smoke)

"""The command of a per-model script: one experiment in one precision with one seed."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from train.cli import options, terminal
from train.cli.signals import Signals, spoken_for
from train.engine.errors import Interrupted
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
        services = Services(track_run, terminal.Progress, lambda: signals.received is not None, command, spoken_for())
        try:
            execute(prepared, given.out, given.resume, services)
        except Interrupted as error:
            if signals.received is None or spoken_for():  # the comparison knows which signal it got
                raise
            raise Interrupted(f"{signals.received.name}: {error}") from None
        return options.STATUS["finished"]

    return options.finish(train, given.smoke)

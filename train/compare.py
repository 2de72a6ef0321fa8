"""One experiment in several precisions, paired by seed: train what is missing, measure the speed, print one table.

python -m train.compare configs/resnet20_digits.yaml --precisions fp32,bf16,fp16 --seeds 3
"""

import ctypes
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import torch

from reports import page, table
from reports.comparison import compare, succeeded
from reports.records import read_json, write_json
from train.engine.errors import Interrupted, Refused
from train.engine.precision import require_available
from train.experiment import assemble, command, console, environment, signals
from train.experiment.config import BYSTANDERS
from train.experiment.folder import previous_config, require_same
from train.experiment.mirrored import mirror_comparison

_PR_SET_PDEATHSIG = 1  # sys/prctl.h


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: that of the worst run, 0 when all went well."""
    options = command.parser("train.compare", "Train an experiment in several precisions and compare them.")
    options.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated: fp32, tf32, bf16, fp16")
    options.add_argument("--seeds", type=int, default=3, metavar="N", help="runs per precision, with seeds 0 to N-1")
    given = options.parse(arguments)
    shown = ["python", "-m", "train.compare", *(sys.argv[1:] if arguments is None else arguments)]
    return command.finish(
        lambda: Comparison(
            given.config, given.overrides, given.precisions, given.seeds, given.device, given.out, given.smoke
        ).execute(shlex.join(shown)),
        given.smoke,
    )


class Comparison:
    """All runs of one experiment. Everything that can be refused is refused before the first run starts."""

    def __init__(
        self, path: Path, overrides: Sequence[str], precisions: str, seeds: int, device: str, out: Path, smoke: bool
    ) -> None:
        _, _, self.config = assemble.script_of(path, overrides, smoke)
        self.precisions = list(dict.fromkeys(name.strip() for name in precisions.split(",")))
        self.device = environment.resolve_device(device)
        for precision in self.precisions:
            require_available(precision, self.device)
        if seeds < 1:
            raise Refused(f"--seeds: {seeds} is not at least 1")
        self.seeds = range(seeds)
        self.smoke, self.out = smoke, out
        self.folder = (out / "smoke" if smoke else out) / self.config.name
        self.shared = [str(path), "--device", device, *(["--smoke"] if smoke else []), *overrides]
        self.child: subprocess.Popen[bytes] | None = None
        self.stopping = False
        for precision in self.precisions:
            for seed in self.seeds:
                self._check_folder(self.folder / f"{precision}-s{seed}")

    def execute(self, shown: str) -> int:
        """Train, measure, write comparison.json, report.html, results.md and results.csv, and print the table."""
        signals.on_stop(self._forward)
        worst = 0
        for seed in self.seeds:
            for precision in self.precisions:
                worst = max(worst, self._train(precision, seed))
        self._benchmark()
        comparison = compare(self.folder, self.precisions, self.seeds, shown)
        write_json(self.folder / "comparison.json", comparison)
        page.write(self.folder, comparison)
        console.print_table(
            f"{comparison['experiment']} on {table.device(comparison)}",
            table.header(comparison),
            [table.cells(row) for row in comparison["rows"]],
        )
        for note in table.notes(comparison):
            print(note)
        print(f"report: {self.folder / 'report.html'}", flush=True)
        if where := mirror_comparison(self.folder, self.config, comparison).location():
            print(where, flush=True)
        return worst or (0 if succeeded(comparison) else command.STATUS["failed"])

    def _check_folder(self, folder: Path) -> None:
        """Raise `Refused` when the folder holds a run of another configuration."""
        previous = None if self.smoke else previous_config(folder)
        if previous is not None:
            require_same(previous, self.config.model_dump(), folder, BYSTANDERS)

    def _train(self, precision: str, seed: int) -> int:
        """Exit status of one run, in a process of its own; a finished one is reused."""
        name = f"{precision}-s{seed}"
        summary = read_json(self.folder / name / "summary.json") or {}
        if not self.smoke and summary.get("status") == "finished":
            print(f"{self.config.name} {name}: finished already, reused", flush=True)
            return 0
        module = f"train.{self.config.model}"
        options = ["--precision", precision, "--seed", str(seed), "--out", str(self.out)]
        status = self._call([module, *self.shared, *options])
        if status < 0 or status not in command.STATUS.values():
            reason = f"killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            write_json(self.folder / name / "summary.json", {**summary, "status": "failed", "reason": reason})
            return command.STATUS["failed"]
        if status == command.STATUS["refused"]:
            raise Refused(f"{name} was refused, for the reason above")
        return status

    def _benchmark(self) -> None:
        """Measure the speed of the precisions that can train it.

        Not again when benchmark.json has it for the same configuration, precisions and machine.
        """
        file = self.folder / "benchmark.json"
        precisions = [precision for precision in self.precisions if self._finished(precision)]
        if not precisions:
            return
        key = {
            "config_sha256": self.config.digest(),
            "precisions": precisions,
            "device": environment.device_name(self.device),
            "torch": torch.__version__,
        }
        previous = read_json(file) or {}
        if not self.smoke and all(previous.get(name) == value for name, value in key.items()):
            print(f"{self.config.name}: speed measured already, reused", flush=True)
            return
        file.unlink(missing_ok=True)
        print(f"{self.config.name}: measuring the speed of {', '.join(precisions)} side by side", flush=True)
        options = ["--precisions", ",".join(precisions), "--output", str(file)]
        self._call(["train.experiment.benchmark", *self.shared, *options])

    def _finished(self, precision: str) -> bool:
        summaries = (read_json(self.folder / f"{precision}-s{seed}" / "summary.json") for seed in self.seeds)
        return any(summary is not None and summary.get("status") == "finished" for summary in summaries)

    def _call(self, arguments: Sequence[str]) -> int:
        """Exit status of `python -m arguments`, in its own session so that signals reach it through us, once."""
        self._stop_if_asked()
        process = [sys.executable, "-m", *arguments]
        self.child = subprocess.Popen(process, start_new_session=True, preexec_fn=_end_with_parent)
        if self.stopping:  # asked while the process was being started, when there was none to tell
            self.child.send_signal(signal.SIGTERM)
        status = self.child.wait()
        self._stop_if_asked()
        return status

    def _stop_if_asked(self) -> None:
        if self.stopping:
            raise Interrupted("the comparison was stopped")

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)


def _end_with_parent() -> None:
    """Ask Linux to stop this process when the comparison is killed, so that it does not train on unseen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())

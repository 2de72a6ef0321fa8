"""One experiment in several precisions, paired by seed: train what is missing, measure the speed, print one table.

python -m train.compare configs/resnet20_digits.yaml --precisions fp32,bf16,fp16 --seeds 3
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from reports.records.run import BASELINE, read_run

from reports.analysis.comparison import compare, succeeded
from reports.analysis.reproduction import of_comparison
from reports.analysis.statistics import DEFAULT_SEEDS, INCONCLUSIVE, LOOKS, MAX_SEEDS, VERDICTS, seeds_for_next_look
from reports.pages import experiment_page as page
from reports.pages import table
from reports.pages.published_table import published_cells
from reports.records.benchmark import read_benchmark
from reports.records.files import read_json, write_json
from reports.records.summary import FINISHED
from train.cli import options as command
from train.cli import signals
from train.cli import terminal as console
from train.cli.child import Child
from train.comparison_view import comparison_view
from train.engine.errors import Refused
from train.engine.precision import require_available
from train.experiment import environment
from train.experiment import setup as assemble
from train.experiment.config import BYSTANDERS
from train.experiment.folder import previous_config, require_same
from train.tracking.runs import track_comparison


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: that of the worst run, 0 when all went well."""
    options = command.parser("train.compare", "Train an experiment in several precisions and compare them.")
    options.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated: fp32, tf32, bf16, fp16")
    options.add_argument(
        "--seeds", type=int, metavar="N", help=f"runs per precision, with seeds 0 to N-1; {DEFAULT_SEEDS}, smoke: 1"
    )
    options.add_argument(
        "--until-decided", action="store_true", help=f"add seeds while a verdict is open, in at most {LOOKS} looks"
    )
    options.add_argument(
        "--max-seeds", type=int, metavar="N", help=f"the most seeds of --until-decided; {MAX_SEEDS} unless given"
    )
    options.add_argument(
        "--require", choices=VERDICTS, help="exit with 4 unless every mixed precision has this verdict"
    )
    given = options.parse(arguments)
    seeds = (1 if given.smoke else DEFAULT_SEEDS) if given.seeds is None else given.seeds
    shown = ["python", "-m", "train.compare", *(sys.argv[1:] if arguments is None else arguments)]
    return command.finish(
        lambda: Comparison(
            given.config, given.overrides, given.precisions, given.device, given.out, given.smoke
        ).execute(seeds, _max_seeds(given.until_decided, given.max_seeds), given.require, shlex.join(shown)),
        given.smoke,
    )


class Comparison:
    """All runs of one experiment. Everything that can be refused is refused before the first run starts."""

    def __init__(
        self, path: Path, overrides: Sequence[str], precisions: str, device: str, out: Path, smoke: bool
    ) -> None:
        _, _, self.config = assemble.script_of(path, overrides, smoke)
        self.precisions = list(dict.fromkeys(name.strip() for name in precisions.split(",")))
        self.device = environment.resolve_device(device)
        for precision in self.precisions:
            require_available(precision, self.device)
        self.smoke, self.out = smoke, out
        self.folder = (out / "smoke" if smoke else out) / self.config.name
        self.shared = [str(path), "--device", device, *(["--smoke"] if smoke else []), *overrides]
        self.child = Child()

    def execute(self, seeds: int, max_seeds: int | None, required: str | None, shown: str) -> int:
        """Train, measure, write comparison.json, report.html, results.md and results.csv, and print the table.

        With `max_seeds` seeds are added while a verdict is open, with `required` that verdict is asked for.
        Returns the exit status: that of the worst run; of good ones, whether they reached the verdict.
        """
        self._check(seeds, max_seeds, required)
        signals.on_stop(self.child.stop)
        self.seeds, looks = range(seeds), 1 if max_seeds is None else LOOKS
        worst = self._train_all()
        for look in range(2, looks + 1):
            found = compare(self.folder, self.precisions, self.seeds, shown, self.config.margin, looks)
            count = _seeds_to_add(found, max_seeds or seeds, last=look == looks)
            if worst or count == len(self.seeds):
                break
            print(f"{self.config.name}: no verdict yet with {len(self.seeds)} seeds, going on to {count}", flush=True)
            self.seeds = range(count)
            worst = self._train_all()
        self._benchmark()
        comparison = compare(self.folder, self.precisions, self.seeds, shown, self.config.margin, looks)
        write_json(self.folder / "comparison.json", comparison)
        page.write(self.folder, comparison)
        console.print_table(
            f"{comparison['experiment']} on {table.device(comparison)}",
            table.header(comparison),
            [table.cells(row) for row in comparison["rows"]],
        )
        for note in table.notes(comparison):
            print(note)
        for cells in map(published_cells, of_comparison(self.folder, comparison)):
            figures = f"{cells['published']}; {cells['precision']} {cells['measured']}"
            print(f"published {cells['id']}: {figures}: {cells['verdict']}, {cells['why']}")
        print(f"report: {self.folder / 'report.html'}", flush=True)
        view = comparison_view(self.folder, comparison)
        if where := track_comparison(self.folder, self.config, comparison, view).location():
            print(where, flush=True)
        if worst or not succeeded(comparison):
            return worst or command.STATUS["failed"]
        return _judged(comparison, required)

    def _check(self, seeds: int, max_seeds: int | None, required: str | None) -> None:
        """Raise `Refused` for numbers of seeds that cannot give what is asked for, and for folders of other runs."""
        if seeds < 1:
            raise Refused(f"--seeds: {seeds} is not at least 1")
        if max_seeds is not None and max_seeds < seeds:
            raise Refused(f"--max-seeds: {max_seeds} is less than the {seeds} seeds to begin with")
        if (max_seeds or seeds) < 2 and (required or max_seeds):
            raise Refused("--require, --until-decided: one seed gives no verdict; at least 2 seeds are needed")
        if (required or max_seeds) and (BASELINE not in self.precisions or len(self.precisions) < 2):
            option = "--require" if required else "--until-decided"
            raise Refused(f"{option}: a verdict needs {BASELINE} and another precision among --precisions")
        for precision in self.precisions:
            for seed in range(max_seeds or seeds):
                self._check_folder(self.folder / f"{precision}-s{seed}")

    def _train_all(self) -> int:
        """The exit status of the worst of all runs."""
        return max(self._train(precision, seed) for seed in self.seeds for precision in self.precisions)

    def _check_folder(self, folder: Path) -> None:
        """Raise `Refused` when the folder holds a run of another configuration."""
        previous = None if self.smoke else previous_config(folder)
        if previous is not None:
            require_same(previous, self.config.model_dump(), folder, BYSTANDERS)

    def _train(self, precision: str, seed: int) -> int:
        """Exit status of one run, in a process of its own; a finished one is reused."""
        name = f"{precision}-s{seed}"
        summary = read_json(self.folder / name / "summary.json") or {}
        if not self.smoke and summary.get("status") == FINISHED:
            fault = read_run(self.folder, precision, seed)["reason"]
            used = f"but not counted: {fault}; delete {self.folder / name} to train it anew" if fault else "reused"
            print(f"{self.config.name} {name}: finished already, {used}", flush=True)
            return 0
        module = f"train.{self.config.model}"
        options = ["--precision", precision, "--seed", str(seed), "--out", str(self.out)]
        status = self.child.call([module, *self.shared, *options])
        if status < 0 or status not in command.STATUS.values():
            reason = f"killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            write_json(self.folder / name / "summary.json", {**summary, "status": "failed", "reason": reason})
            return command.STATUS["failed"]
        if status == command.STATUS["refused"]:
            if not any(map(self._finished, self.precisions)):
                raise Refused(f"{name} was refused, for the reason above")
            # The model cannot be trained in this precision, which is a result: a row that says why.
            write_json(
                self.folder / name / "summary.json", {"status": "failed", "reason": f"refused: {self.child.reason}"}
            )
            return command.STATUS["failed"]
        return status

    def _benchmark(self) -> None:
        """Measure the speed of the precisions that can train it.

        Not again when benchmark.json has it for the same configuration and machine.
        """
        file = self.folder / "benchmark.json"
        precisions = [precision for precision in self.precisions if self._finished(precision)]
        if not precisions:
            return
        previous, _ = read_benchmark(file)
        here = (self.config.digest(), environment.device_name(self.device), torch.__version__, self.smoke)
        if previous and (previous.config_sha256, previous.device, previous.torch, previous.smoke) == here:
            if not self.smoke and previous.seconds.keys() >= set(precisions):
                print(f"{self.config.name}: speed measured already, reused", flush=True)
                return
        else:
            file.unlink(missing_ok=True)  # no figure of it may stand where the measurement below does not end
        print(f"{self.config.name}: measuring the speed of {', '.join(precisions)} side by side", flush=True)
        options = ["--precisions", ",".join(precisions), "--output", str(file)]
        self.child.call(["train.experiment.benchmark", *self.shared, *options])

    def _finished(self, precision: str) -> bool:
        summaries = (read_json(self.folder / f"{precision}-s{seed}" / "summary.json") for seed in self.seeds)
        return any(summary is not None and summary.get("status") == FINISHED for summary in summaries)


def _max_seeds(until_decided: bool, given: int | None) -> int | None:
    """The most seeds there may be, None where none are added; raises `Refused` for a number without a use."""
    if given is not None and not until_decided:
        raise Refused(
            "--max-seeds: only --until-decided adds seeds, so it needs that option; --seeds sets their number"
        )
    return (MAX_SEEDS if given is None else given) if until_decided else None


def _seeds_to_add(comparison: Mapping[str, Any], most: int, last: bool) -> int:
    """How many seeds there should be for the next look; a first seed alone says nothing of how many will do."""
    mixed = [row for row in comparison["rows"] if row["precision"] != BASELINE]
    open_rows = [row for row in mixed if row["verdict"] in (None, INCONCLUSIVE)]
    needed = [row["seeds_needed"] if row["verdict"] else DEFAULT_SEEDS for row in open_rows]
    return seeds_for_next_look(len(comparison["seeds"]), needed, most, last)


def _judged(comparison: Mapping[str, Any], required: str | None) -> int:
    """0 when every mixed precision has the verdict that was asked for; says which has not."""
    others = [row for row in comparison["rows"] if row["precision"] != BASELINE and row["verdict"] != required]
    if required is None or not others:
        return 0
    for row in others:
        print(f"verdict: {row['precision']} is {table.verdict(row)}, not {required}", file=sys.stderr, flush=True)
    return command.STATUS["verdict"]


if __name__ == "__main__":
    sys.exit(main())

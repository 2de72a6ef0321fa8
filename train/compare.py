"""One experiment in several precisions, paired by seed: train what is missing, measure the speed, print one table.

python -m train.compare configs/resnet20_digits.yaml --precisions fp32,bf16,fp16 --seeds 3
"""

import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from reports.analysis.comparison import compare
from reports.analysis.looks import earlier, planned, taken
from reports.analysis.reproduction import of_comparison
from reports.analysis.run import read_run
from reports.analysis.statistics import LOOKS, MAX_SEEDS, seeds_for_next_look
from reports.pages import experiment_page, table, terminal_table
from reports.pages.published_table import sentence
from reports.records import layout
from reports.records.comparison import DEFAULT_SEEDS, INCONCLUSIVE, VERDICTS, Comparison, Plan
from reports.records.config import NOT_COMPUTED
from reports.records.files import write_record
from reports.records.summary import FAILED, FINISHED, INTERRUPTED, Summary, read_summary
from train.cli import options, plan, signals, terminal
from train.cli.child import Child
from train.cli.scripts import script_of
from train.comparison_view import comparison_view
from train.engine.errors import Interrupted, Refused
from train.engine.precision import require_available
from train.experiment import benchmark, config_file, environment
from train.experiment.folder import lock_folder, previous_config, recorded_environment, require_reusable, require_same
from train.experiment.identity import Identities
from train.tracking.runs import track_comparison


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status: that of the worst run, 0 when all went well."""
    parser = options.parser("train.compare", "Train an experiment in several precisions and compare them.")
    parser.add_argument("--precisions", default="fp32,bf16,fp16", help="comma-separated: fp32, tf32, bf16, fp16")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"runs per precision, with seeds 0 to N-1; {DEFAULT_SEEDS}, smoke: 1"
    )
    parser.add_argument(
        "--until-decided", action="store_true", help=f"add seeds while a verdict is open, in at most {LOOKS} looks"
    )
    parser.add_argument(
        "--max-seeds", type=int, metavar="N", help=f"the most seeds of --until-decided; {MAX_SEEDS} unless given"
    )
    parser.add_argument("--require", choices=VERDICTS, help="exit with 4 unless every mixed precision has this verdict")
    parser.add_argument(
        "--starts", type=int, metavar="N", help=f"processes that measure the speed; {benchmark.STARTS}, smoke: 1"
    )
    parser.add_argument("--plan", action="store_true", help="only say what would run, how long and with how much disk")
    given = parser.parse(arguments)
    seeds = (1 if given.smoke else DEFAULT_SEEDS) if given.seeds is None else given.seeds
    starts = (1 if given.smoke else benchmark.STARTS) if given.starts is None else given.starts
    command = shlex.join(["python", "-m", "train.compare", *(sys.argv[1:] if arguments is None else arguments)])
    return options.finish(
        lambda: Experiments(
            given.config, given.overrides, given.precisions, given.device, given.out, given.smoke
        ).compare(seeds, _max_seeds(given.until_decided, given.max_seeds), given.require, command, starts, given.plan),
        given.smoke,
    )


class Experiments:
    """All runs of one experiment. Everything that can be refused is refused before the first run starts."""

    def __init__(
        self, path: Path, overrides: Sequence[str], precisions: str, device: str, out: Path, smoke: bool
    ) -> None:
        self.script = script_of(path, overrides)
        self.config = self.script.read(path, overrides, smoke)
        self.file = config_file.find(path)
        self.precisions = list(dict.fromkeys(name.strip() for name in precisions.split(",")))
        self.device = environment.resolve_device(device)
        for precision in self.precisions:
            require_available(precision, self.device)
        self.smoke, self.out = smoke, out
        self.folder = layout.experiment_folder(out, self.config.name, smoke)
        self.shared = [str(path), "--device", device, *(["--smoke"] if smoke else []), *overrides]
        self.child = Child()
        self.seconds: dict[str, list[float]] = {}  # of the runs by precision, measured or estimated

    def compare(
        self,
        seeds: int,
        max_seeds: int | None,
        required: str | None,
        command: str,
        starts: int,
        plan_only: bool = False,
    ) -> int:
        """Train, measure, write comparison.json, report.html, results.md and results.csv, and print the table.

        With `max_seeds` seeds are added while a verdict is open, with `required` that verdict is asked for. Speed is
        measured in `starts` processes. A smaller comparison than an earlier one keeps the runs of that one. An
        interrupted one does the same with what is finished before it raises `Interrupted`. Returns the exit status:
        that of the worst run; of good ones, whether they reached the verdict.
        """
        self._check(seeds, max_seeds, required)
        if starts < 1:
            raise Refused(f"--starts: {starts} is not at least 1")
        work = plan.make(self.file, self.config, self.out, self.device.type, self.precisions, seeds, self.smoke)
        if plan_only:
            print("\n".join(work.lines()), flush=True)
            return 0
        with lock_folder(self.folder):
            return self._compare(work, seeds, max_seeds, required, command, starts)

    def _compare(
        self, work: plan.Plan, seeds: int, max_seeds: int | None, required: str | None, command: str, starts: int
    ) -> int:
        signals.on_stop(self.child.stop)
        if kept := work.kept(seeds):
            print(kept, flush=True)
        asked = Plan(
            command=command,
            margin=self.config.margin,
            config_sha256=self.config.digest(),
            precisions=[*self.precisions, *work.others],
            seeds=work.seeds,
        )
        try:
            asked.looks_taken = [] if self.smoke else earlier(self.folder, asked)
        except ValueError as error:
            raise Refused(f"{error}; delete it to begin anew") from error
        if max_seeds is not None:
            asked.looks = planned(asked, max_seeds)
        self.seconds = {precision: [seconds] for precision, seconds in work.seconds().items()}
        worst, interrupted = 0, None
        try:
            worst = self._train_and_measure(asked, max_seeds, starts)
        except Interrupted as error:
            asked.seeds = [seed for seed in asked.seeds if any(self._has_finished(p, [seed]) for p in self.precisions)]
            if not asked.seeds:
                raise
            interrupted = error
            asked.partial = str(error)
        comparison = compare(self.folder, asked)
        write_record(self.folder / layout.COMPARISON, comparison)
        experiment_page.write(self.folder, comparison)
        self._print(comparison)
        if interrupted:
            raise interrupted
        run = track_comparison(self.folder, self.config, comparison, comparison_view(self.folder, comparison))
        if where := run.location():
            print(where, flush=True)
        if worst or not comparison.succeeded:
            return worst or options.STATUS["failed"]
        return _judged(comparison, required)

    def _train_and_measure(self, asked: Plan, max_seeds: int | None, starts: int) -> int:
        """The exit status of the worst run; `asked` gets the seeds that are added while a verdict is open."""
        worst = self._train_all(asked.seeds)
        while max_seeds and not worst:
            comparison = compare(self.folder, asked)
            last = taken(comparison.looks_taken) + 1 >= comparison.looks
            count = _seeds_to_have(comparison, max(max_seeds, len(asked.seeds)), last)
            if count <= len(asked.seeds):
                break
            print(f"no verdict yet with {len(asked.seeds)} seeds, continuing to {count}", flush=True)
            write_record(self.folder / layout.COMPARISON, comparison)  # a stop on the way must not lose this look
            asked.seeds, asked.looks_taken = list(range(count)), comparison.looks_taken
            worst = self._train_all(asked.seeds)
        self._benchmark(asked.seeds, starts)
        return worst

    def _print(self, comparison: Comparison) -> None:
        results = terminal_table.terminal_table(comparison)
        terminal.print_table(terminal_table.heading(comparison), results.titles, results.rows)
        for note in [*terminal_table.reasons(comparison), *table.notes(comparison)]:
            terminal.say(note)
        for reproduction in of_comparison(self.folder, comparison):
            terminal.say(sentence(reproduction))
        print(f"report: {self.folder / layout.REPORT}", flush=True)

    def _check(self, seeds: int, max_seeds: int | None, required: str | None) -> None:
        """Raise `Refused` for numbers of seeds that cannot give what is asked for, and for folders of other runs."""
        if seeds < 1:
            raise Refused(f"--seeds: {seeds} is not at least 1")
        if max_seeds is not None and max_seeds < seeds:
            raise Refused(f"--max-seeds: {max_seeds} is less than the {seeds} seeds to begin with")
        if (max_seeds or seeds) < 2 and (required or max_seeds):
            raise Refused("--require, --until-decided: one seed gives no verdict; at least 2 seeds are needed")
        if (required or max_seeds) and (layout.BASELINE not in self.precisions or len(self.precisions) < 2):
            option = "--require" if required else "--until-decided"
            raise Refused(f"{option}: a verdict needs {layout.BASELINE} and another precision among --precisions")
        identities = Identities(self.script, self.config, self.device)
        for precision in self.precisions:
            for seed in range(max_seeds or seeds):
                folder = self.folder / layout.run_name(precision, seed)
                if not self.smoke and (previous := previous_config(folder)):
                    require_same(previous, self.config, folder, NOT_COMPUTED)
                    summary = read_summary(folder / layout.SUMMARY)
                    if summary.status in (FINISHED, INTERRUPTED):
                        require_reusable(folder, summary, recorded_environment(folder), identities.of_seed(seed))

    def _train_all(self, seeds: Sequence[int]) -> int:
        """The exit status of the worst of all runs."""
        return max(self._train(precision, seed, seeds) for seed in seeds for precision in self.precisions)

    def _train(self, precision: str, seed: int, seeds: Sequence[int]) -> int:
        """Exit status of one run, in a process of its own; a finished one is reused."""
        runs = [(other, its_seed) for its_seed in seeds for other in self.precisions]
        number = runs.index((precision, seed))
        name = layout.run_name(precision, seed)
        file = self.folder / name / layout.SUMMARY
        heading = f"[{number + 1}/{len(runs)}] {precision} seed {seed}"
        if self._is_finished(precision, seed):
            fault = read_run(self.folder, precision, seed).reason
            used = f"but not counted: {fault}; delete {file.parent} to retrain it" if fault else "reused"
            terminal.say(f"{heading}: finished already, {used}")
            return 0
        print(f"{heading}{self._time_left(runs[number:])}", flush=True)
        started = time.monotonic()
        arguments = ["--precision", precision, "--seed", str(seed), "--out", str(self.out)]
        status = self.child.call([f"train.{self.config.model}", *self.shared, *arguments])
        if status == options.STATUS["interrupted"]:
            raise Interrupted(f"{name}: {self.child.reason}")
        if status == 0:
            self.seconds.setdefault(precision, []).append(time.monotonic() - started)
        if status < 0 or status not in options.STATUS.values():
            earlier = read_summary(file) if file.exists() else Summary()
            with lock_folder(file.parent):
                write_record(file, earlier.model_copy(update={"status": FAILED, "reason": _ended(status)}))
            return options.STATUS["failed"]
        if status == options.STATUS["refused"]:
            begun = file.with_name(layout.CONFIG).exists()  # then it is that run which is refused, not the model
            if begun or not any(self._has_finished(other, [one]) for other, one in runs):
                raise Refused(f"{name} was refused, for the reason above")
            # The model cannot be trained in this precision, which is a result: a row that says why.
            with lock_folder(file.parent):
                write_record(file, Summary(status=FAILED, reason=f"refused: {self.child.reason}"))
            return options.STATUS["failed"]
        return status

    def _time_left(self, runs: Sequence[tuple[str, int]]) -> str:
        """About how long `runs` take by those that were measured; empty where none was."""
        known = {precision: statistics.fmean(seconds) for precision, seconds in self.seconds.items()}
        if not known:
            return ""
        mean = statistics.fmean(known.values())
        to_do = (precision for precision, seed in runs if not self._is_finished(precision, seed))
        return f" (about {plan.duration(sum(known.get(precision, mean) for precision in to_do))} left)"

    def _is_finished(self, precision: str, seed: int) -> bool:
        return not self.smoke and self._has_finished(precision, [seed])

    def _benchmark(self, seeds: Sequence[int], starts: int) -> None:
        """Measure the speed of the precisions that can train it, in as many processes as benchmark.json lacks.

        A process that fails leaves its reason there, beside what the others measured.
        """
        file = self.folder / layout.BENCHMARK
        precisions = [precision for precision in self.precisions if self._has_finished(precision, seeds)]
        if not precisions:
            return
        if self.smoke:
            file.unlink(missing_ok=True)
        under = benchmark.conditions(self.script, self.config, self.device, self.smoke)
        record = benchmark.recorded(file, under, precisions)
        write_record(file, record)  # no figure of another machine may stand where the measurement below does not end
        done = len(record.starts)
        if done >= starts:
            print(f"speed measured already in {done} process starts, reused", flush=True)
            return
        for number in range(done + 1, starts + 1):
            print(f"[speed {number}/{starts}] {', '.join(precisions)} side by side in a new process", flush=True)
            arguments = ["--precisions", ",".join(precisions), "--output", str(file)]
            status = self.child.call(["train.cli.benchmark", *self.shared, *arguments])
            if status:
                reason = self.child.reason if status in options.STATUS.values() else _ended(status)
                record = benchmark.recorded(file, under, precisions)
                write_record(file, record.model_copy(update={"reason": reason}))
                return

    def _has_finished(self, precision: str, seeds: Sequence[int]) -> bool:
        files = (self.folder / layout.run_name(precision, seed) / layout.SUMMARY for seed in seeds)
        return any(read_summary(file).status == FINISHED for file in files)


def _ended(status: int) -> str:
    """How a process ended that could not say why itself."""
    return f"killed by signal {-status}" if status < 0 else f"ended with exit status {status}"


def _max_seeds(until_decided: bool, given: int | None) -> int | None:
    """The most seeds there may be, None where none are added; raises `Refused` for a number without a use."""
    if given is not None and not until_decided:
        raise Refused(
            "--max-seeds: only --until-decided adds seeds, so it needs that option; --seeds sets their number"
        )
    return (MAX_SEEDS if given is None else given) if until_decided else None


def _seeds_to_have(comparison: Comparison, most: int, last: bool) -> int:
    """How many seeds there should be for the next look; a first seed alone says nothing of how many will do."""
    open_rows = [row for row in comparison.mixed_rows if row.verdict in (None, INCONCLUSIVE)]
    needed = [row.seeds_needed if row.verdict else DEFAULT_SEEDS for row in open_rows]
    return seeds_for_next_look(len(comparison.seeds), needed, most, last)


def _judged(comparison: Comparison, required: str | None) -> int:
    """0 when every mixed precision has the verdict that was asked for; says which has not."""
    others = [row for row in comparison.mixed_rows if row.verdict != required]
    if required is None or not others:
        return 0
    for row in others:
        print(f"verdict: {row.precision} is {table.verdict(row)}, not {required}", file=sys.stderr, flush=True)
    return options.STATUS["verdict"]


if __name__ == "__main__":
    sys.exit(main())

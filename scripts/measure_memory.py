"""Peak memory in short runs: python -m scripts.measure_memory [EXPERIMENT...]

For experiments of reports/results/ whose emulated runs record no peak, and for each EXPERIMENT: trains a few steps in
FP32 and in the emulated precision, each in a process of its own, and writes memory.json beside the runs. What is
measured already is not measured again.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from reports import command
from reports.records import layout
from reports.records.config import read_config
from reports.records.environment import Environment
from reports.records.files import read_record, write_record
from reports.records.short_runs import ShortRuns
from reports.records.summary import Summary, read_summary
from train.cli import options
from train.engine.errors import Refused

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"
PEAK = "memory/peak_rss_mib"
STEPS, RUNS = 40, 2
OVERRIDES = [
    *("epochs=null", f"max_steps={STEPS}", "data.eval_samples=64", "schedule.warmup=0", "schedule.milestones=[]"),
    *(f"eval_every={STEPS}", f"checkpoint_every={STEPS}", "log_every=10"),
]
# Two threads that wait without spinning: the same memory, on a busy machine in half the time.
SETTINGS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "WANDB_MODE": "disabled"}


def main() -> int:
    """Measure and write the records; returns the exit status."""
    parser = command.parser("scripts.measure_memory", __doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="folders of reports/results/")
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"of each precision ({RUNS})")
    given = parser.parse_args()

    def measure() -> int:
        folders = [RESULTS / name for name in given.experiments] or without_peak(RESULTS)
        return max([measure_folder(folder, given.runs) for folder in folders], default=0)

    return options.finish(measure)


def without_peak(results: Path) -> list[Path]:
    """The folders whose finished emulated runs record no peak."""
    return [
        folder
        for folder in sorted(results.glob("*"))
        if any(run.figure(PEAK) is None for run in emulated_runs(folder) if run.status == "finished")
    ]


def emulated_runs(folder: Path) -> list[Summary]:
    """The summaries of the runs in `folder` whose arithmetic is emulated."""
    summaries = [read_summary(path) for path in sorted(folder.glob(f"*-s*/{layout.SUMMARY}"))]
    return [summary for summary in summaries if summary.precision.effective.emulated]


def measure_folder(folder: Path, runs: int) -> int:
    """Complete memory.json of `folder` to so many `runs`, written after each; returns 0, or 1 where one fails.

    Raises `Refused` for a folder without emulated runs.
    """
    precisions = sorted({run.precision.requested or "" for run in emulated_runs(folder)})
    if not precisions:
        raise Refused(f"{folder}: has no run whose arithmetic is emulated")
    config, file = folder / layout.run_name(layout.BASELINE, 0) / layout.CONFIG, folder / layout.MEMORY
    record = earlier(file, read_summary(config.with_name(layout.SUMMARY)).config_sha256)
    while record is None or len(record.peaks_mib[layout.BASELINE]) < runs:
        for precision in (layout.BASELINE, *precisions):
            try:
                new = short_run(config, precision)
            except ValueError as error:
                print(f"{folder.name}: {error}", file=sys.stderr, flush=True)
                return 1
            record = together(record, new) if record else new
        assert record
        write_record(file, record)
        print(f"{folder.name}: {record.peaks_mib}", flush=True)
    return 0


def earlier(file: Path, config_sha256: str | None) -> ShortRuns | None:
    """The record in `file`; None where there is none, or one of another configuration or method."""
    record = read_record(ShortRuns, file) if file.exists() else None
    return record if record and (record.config_sha256, record.overrides) == (config_sha256, OVERRIDES) else None


def short_run(config: Path, precision: str) -> ShortRuns:
    """The peak of one run in a process of its own; raises ValueError with its message where it fails."""
    experiment = read_config(config)
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", f"train.{experiment.model}", str(config), "--precision", precision]
        command += ["--seed", "0", "--device", "cpu", "--out", out, *OVERRIDES]
        ended = subprocess.run(command, env=os.environ | SETTINGS, capture_output=True, text=True)
        if ended.returncode:
            raise ValueError((ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"])[-1])
        run = Path(out, experiment.name, layout.run_name(precision, 0))
        summary, environment = read_summary(run / layout.SUMMARY), read_record(Environment, run / layout.ENVIRONMENT)
    peak = summary.figure(PEAK)
    if peak is None:
        raise ValueError("this system does not tell a process's peak memory")
    return ShortRuns(
        config_sha256=read_summary(config.with_name(layout.SUMMARY)).config_sha256 or "",
        overrides=OVERRIDES,
        steps=STEPS,
        device=summary.device or "",
        torch=environment.versions.get("torch") or "",
        git=environment.git,
        peaks_mib={precision: [peak]},
    )


def together(old: ShortRuns, new: ShortRuns) -> ShortRuns:
    """Both's runs; those of `new` alone where the two are of another commit, device or PyTorch."""
    if old.model_dump(exclude={"peaks_mib"}) != new.model_dump(exclude={"peaks_mib"}):
        return new
    peaks = {
        name: [*old.peaks_mib.get(name, []), *new.peaks_mib.get(name, [])] for name in (*old.peaks_mib, *new.peaks_mib)
    }
    return new.model_copy(update={"peaks_mib": peaks})


if __name__ == "__main__":
    sys.exit(main())

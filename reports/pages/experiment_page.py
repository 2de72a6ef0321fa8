"""Write what a comparison shows to people: results.md, results.csv, and a page with all of its evidence."""

from pathlib import Path

from reports.analysis import reproduction
from reports.pages import charts, table
from reports.pages.published_table import RULE, published
from reports.pages.style import Page, Section
from reports.pages.text_table import MISSING, Table, number
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment
from reports.records.files import write_text
from reports.records.layout import REPORT, SUMMARY

RUN_TITLES = (
    *("run", "status", "metric", "same weights in FP32", "samples/s, end to end", "samples/s, compute only"),
    *("data wait", "skipped steps", "initial weights", "data order"),
)
RUN_NOTE = (
    "Samples/s end to end are those of the training; compute only is of a few steps after it, timed apart. Runs of one "
    "seed began from equal weights and saw equal data where the first eight digits of both SHA-256 hashes agree."
)


def write(folder: Path, comparison: Comparison) -> None:
    """results.md, results.csv and report.html in `folder`, which has the runs."""
    recipe = _recipe(comparison.config) if comparison.config else "Configuration not recorded"
    about = [f"{recipe}, on {table.hardware(comparison)}"]
    results = Section("Results", table.results(comparison), table.notes(comparison))
    commits = ", ".join(comparison.commits) or "not recorded"
    dirty = "" if comparison.committed else ", with changes that are in no commit"
    repeat = Section("Repeat it", notes=[f"Source: commit {commits}{dirty}."], code=comparison.command)
    sections = [results, Section(charts=charts.draw(folder, comparison))]
    if rows := [] if comparison.smoke else reproduction.of_comparison(folder, comparison):
        sections.append(Section("Published against measured", published(rows), [RULE]))
    machine = comparison.environment.model_dump_json(indent=2, exclude_none=True) if comparison.environment else MISSING
    environment = Section("Environment of the first run", code=machine)
    paths = [f"{run.name}/{SUMMARY}" for run in comparison.runs]
    links = [path if (folder / path).exists() else "" for path in paths]
    runs = Table(RUN_TITLES, list(map(_run, comparison.runs)), "ll".ljust(len(RUN_TITLES), "r"), links)
    sections += [Section("Runs", runs, [RUN_NOTE]), environment, repeat]
    write_text(folder / "results.md", Page(comparison.experiment, about, [results, repeat]).markdown())
    write_text(folder / "results.csv", table.as_csv(comparison))
    write_text(folder / REPORT, Page(comparison.experiment, about, sections).html())


def _recipe(config: Experiment) -> str:
    """What was trained, in one line."""
    length = f"{config.max_steps} steps" if config.max_steps else f"{config.epochs} epoch{'s' * (config.epochs != 1)}"
    batch = f"batch {config.batch_size}" + (f" x {config.accumulate}" if config.accumulate > 1 else "")
    return f"{config.trained_on}, {length}, {batch}, {config.optimizer.name} at {config.optimizer.lr:g}"


def _run(run: RunResult) -> list[str]:
    """The texts below `RUN_TITLES`."""
    summary = run.summary
    speeds = [number(summary.figure(f"throughput/{kind}samples_per_sec")) for kind in ("", "compute_")]
    texts = [run.name, f"{run.status}: {run.reason}" if run.reason else run.status]
    texts += [table.measured(run.metric, run.value), table.measured(run.metric, run.value_fp32), *speeds]
    texts += [number(summary.figure("time/data_wait_pct"), 1, "%"), number(summary.skipped_steps)]
    digests = (summary.initial_weights_sha256, summary.data_order_sha256)
    return texts + [(digest or MISSING)[:8] for digest in digests]

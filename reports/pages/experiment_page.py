"""Write what a comparison shows to people: results.md, results.csv, and a page with all of its evidence."""

from dataclasses import replace
from pathlib import Path

from reports.analysis import reproduction
from reports.analysis.time_to_target import times_to_target
from reports.pages import charts, table
from reports.pages.published_table import RULE, published
from reports.pages.style import Page, Section, Tile
from reports.pages.text_table import MISSING, Table, number
from reports.records.comparison import Comparison, Row, RunResult
from reports.records.config import Experiment
from reports.records.files import write_text
from reports.records.layout import BASELINE, REPORT, SUMMARY

RUN_TITLES = (
    *("run", "status", "metric", "same weights in FP32", "samples/s, end to end", "samples/s, compute only"),
    *("data wait", "skipped steps", "initial weights", "data order"),
)
RUN_NOTE = (
    "Samples/s end to end are those of the training; compute only is of a few steps after it, timed apart. Runs of one "
    "seed began from equal weights and saw equal data where the first eight digits of both SHA-256 hashes agree."
)
TIME_TITLES = ("precision", "wall-clock of a run", "time to FP32's final {}", "steps to it", "runs that reach it")
TIME_NOTE = (
    "Wall-clock: a whole run with its evaluations, mean over seeds that were trained in one go. Time to FP32's final "
    "{}: training steps up to the first evaluation at least as good as {}, the mean of FP32's final ones, at the speed "
    "measured side by side; median over seeds, n/a where half of them never reach it. FP32's own runs end around that "
    "mean, so some of them may never reach it either."
)


def write(folder: Path, comparison: Comparison) -> None:
    """results.md, results.csv and report.html in `folder`, which has the runs."""
    recipe = _recipe(comparison.config) if comparison.config else "Configuration not recorded"
    about = [f"{recipe}, on {table.hardware(comparison)}"]
    results = Section("Results", table.results(comparison), table.notes(comparison))
    shown = replace(results, notes=table.notes(comparison, open_verdicts=False))  # below the tiles, which have the rest
    commits = ", ".join(comparison.commits) or "not recorded"
    dirty = "" if comparison.committed else ", with changes that are in no commit"
    repeat = Section("Repeat it", notes=[f"Source: commit {commits}{dirty}."], code=comparison.command)
    sections = [shown, *_time(folder, comparison), Section("Charts", charts=charts.draw(folder, comparison))]
    if rows := [] if comparison.smoke else reproduction.of_comparison(folder, comparison):
        sections.append(Section("Published against measured", published(rows), [RULE]))
    first, machine = comparison.environment, MISSING
    if first:  # without its commands, which name folders of whoever gave them
        machine = first.model_dump_json(indent=2, exclude_none=True, exclude={"attempts": {"__all__": {"command"}}})
    environment = Section("Environment of the first run", code=machine)
    paths = [f"{run.name}/{SUMMARY}" for run in comparison.runs]
    links = [path if (folder / path).exists() else "" for path in paths]
    runs = Table(RUN_TITLES, list(map(_run, comparison.runs)), "ll".ljust(len(RUN_TITLES), "r"), links)
    sections += [Section("Runs", runs, [RUN_NOTE]), environment, repeat]
    write_text(folder / "results.md", Page(comparison.experiment, about, [results, repeat]).markdown())
    write_text(folder / "results.csv", table.as_csv(comparison))
    tiles = list(map(_tile, comparison.rows))
    write_text(folder / REPORT, Page(comparison.experiment, about, sections, tiles).html())


def _tile(row: Row) -> Tile:
    """One precision's answer."""
    speed, memory = number(row.samples_per_sec, 0, "samples/s"), number(row.saved_for_backward_mib, 1, "MiB")
    metric = row.metric.label if row.metric else "metric"
    if row.is_baseline:
        figures = [("speed", speed, ""), ("activation memory", memory, ""), (metric, table.mean(row), "")]
        return Tile(row.precision, table.verdict(row), "", figures)
    remark = table.seeds_needed(row) or ("" if row.verdict else "a verdict needs two pairs of runs")
    figures = [
        ("speed", table.speedup(row), speed),
        ("activation memory", number(row.saved_ratio, 2, "x"), memory),
        (metric, table.difference(row), table.mean(row) if row.seeds else row.status),
    ]
    return Tile(row.precision, table.verdict(row), remark, figures)


def _time(folder: Path, comparison: Comparison) -> list[Section]:
    """How long the runs took and would have taken; nothing without a finished FP32 run."""
    times, metric, baseline = times_to_target(folder, comparison), comparison.metric, comparison.row(BASELINE)
    if not times or metric is None or baseline is None:
        return []
    rows = []
    for row, time in zip(comparison.rows, times, strict=True):
        seconds = (table.emulated(row, number(value, 1, "s")) for value in (row.train_seconds, time.seconds))
        rows.append([row.precision, *seconds, number(time.steps), f"{time.reached} of {time.runs}"])
    titles = [title.format(metric.label) for title in TIME_TITLES]
    return [
        Section("Time", Table(titles, rows), [TIME_NOTE.format(metric.label, table.measured(metric, baseline.mean))])
    ]


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

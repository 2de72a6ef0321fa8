"""Write what a comparison shows to people: results.md, results.csv, and a page with the answer and its evidence."""

import contextlib
from pathlib import Path

from pydantic import BaseModel

from reports.analysis import reproduction
from reports.pages import charts, sentences, table
from reports.pages.formats import MISSING, measured, number
from reports.pages.published_table import RULE, published
from reports.pages.style import Page, Section
from reports.pages.table import Cell, Column, Table
from reports.records import layout
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment, read_config
from reports.records.environment import read_environment
from reports.records.files import write_text

RUN_TITLES = (
    *("metric", "same weights in FP32", "samples/s, end to end", "samples/s, compute only"),
    *("data wait", "skipped steps", "initial weights", "data order"),
)
RUN_NOTE = (
    "Samples/s end to end are those of the training; compute only is of a few steps after it, timed apart. Runs of one "
    "seed began from equal weights and saw equal data where the first eight digits of both SHA-256 hashes agree."
)


def write(folder: Path, comparison: Comparison) -> None:
    """results.md, results.csv and report.html in `folder`, which has the runs."""
    config = _config(folder, comparison)
    about = f"{_recipe(config) if config else 'Configuration not recorded'}, on {table.hardware(comparison)}"
    answers, repeat = sentences.answers(comparison, config), _repeat(comparison, config)
    short = Page(comparison.experiment, about, answers, [results(comparison), repeat])
    sections = [results(comparison), Section(charts=charts.draw(folder, comparison))]
    if rows := [] if comparison.smoke else reproduction.of_comparison(folder, comparison):
        sections.append(Section("Published against measured", published(rows), [RULE]))
    columns = [Column("run", "text"), Column("status", "text"), *map(Column, RUN_TITLES)]
    runs = Table(columns, [_run(folder, run) for run in comparison.runs])
    sections += [Section("Runs", runs, [RUN_NOTE]), Section("Environment", _facts(folder, comparison)), repeat]
    write_text(folder / "results.md", short.markdown())
    write_text(folder / "results.csv", table.as_csv(comparison))
    write_text(folder / layout.REPORT, Page(comparison.experiment, about, answers, sections).html())


def results(comparison: Comparison) -> Section:
    """The table and its notes."""
    return Section("Results", table.results(comparison), table.notes(comparison))


def _config(folder: Path, comparison: Comparison) -> Experiment | None:
    """The configuration of the first run that recorded one."""
    for run in comparison.runs:
        with contextlib.suppress(ValueError):
            return read_config(folder / run.name / layout.CONFIG)
    return None


def _recipe(config: Experiment) -> str:
    """What was trained, in one line."""
    length = f"{config.max_steps} steps" if config.max_steps else f"{config.epochs} epochs"
    batch = f"batch {config.batch_size}" + (f" x {config.accumulate}" if config.accumulate > 1 else "")
    return f"{config.trained_on}, {length}, {batch}, {config.optimizer.name} at {config.optimizer.lr:g}"


def _repeat(comparison: Comparison, config: Experiment | None) -> Section:
    run, script = comparison.runs[0], config.model if config else "MODEL"
    again = f"python -m train.{script} FOLDER/{run.name}/config.yaml --precision {run.precision} --seed {run.seed}"
    code = f"{comparison.command}\n{again}{' --smoke' if comparison.smoke else ''} --out OTHER"
    commits = ", ".join(comparison.commits) or "not recorded"
    dirty = "" if comparison.committed else ", with changes that are in no commit"
    note = "Finished runs in the output folder are reused. The second command repeats one run from its configuration."
    return Section("Repeat it", notes=[f"Source: commit {commits}{dirty}.", note], code=code)


def _run(folder: Path, run: RunResult) -> list[Cell]:
    has_record = (folder / run.name / layout.SUMMARY).exists()
    return [
        Cell(run.name, link=f"{run.name}/{layout.SUMMARY}" if has_record else ""),
        Cell(run.status, note=run.reason or ""),
        Cell(measured(run.metric, run.value)),
        Cell(measured(run.metric, run.value_fp32)),
        *(Cell(run.samples_per_sec), Cell(run.compute_samples_per_sec)),
        Cell(number(run.data_wait_pct, 1, "%")),
        Cell(run.skipped_steps),
        *(Cell((digest or MISSING)[:8]) for digest in (run.initial_weights_sha256, run.data_order_sha256)),
    ]


def _facts(folder: Path, comparison: Comparison) -> Table:
    """What the runs ran on, and what each precision computed with, as its first recorded run found it."""
    facts: dict[str, str] = {}
    if machine := comparison.environment:
        facts = {"device": _pairs(machine.device), "CPU": _pairs(machine.cpu), "platform": machine.platform or MISSING}
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    for run in comparison.runs:
        with contextlib.suppress(ValueError):
            environment = read_environment(folder / run.name / layout.ENVIRONMENT)
            if environment:
                outputs = ", ".join(f"{count} {dtype}" for dtype, count in environment.precision.module_outputs.items())
                effective = _pairs(environment.precision.effective)
                facts.setdefault(run.precision, effective + (f"; module outputs: {outputs}" if outputs else ""))
    return Table([Column("what", "text"), Column("value", "text")], [[Cell(name), Cell(facts[name])] for name in facts])


def _pairs(record: BaseModel) -> str:
    """The fields that are known."""
    texts = {
        name.replace("_", " "): ", ".join(value) if isinstance(value, list) else value
        for name, value in record.model_dump(exclude_none=True).items()
    }
    return ", ".join(f"{name} {text}" for name, text in texts.items()) or MISSING

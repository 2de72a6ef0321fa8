"""Write what a comparison shows to people: results.md, results.csv, and a page with all of its evidence."""

import contextlib
from pathlib import Path

from pydantic import BaseModel

from reports.analysis import reproduction
from reports.pages import charts, table
from reports.pages.formats import MISSING, measured, number
from reports.pages.published_table import RULE, published
from reports.pages.style import Page, Section
from reports.pages.text_table import Table
from reports.records import layout
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment, read_config
from reports.records.environment import read_environment
from reports.records.files import write_text

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
    config = _config(folder, comparison)
    about = [f"{_recipe(config) if config else 'Configuration not recorded'}, on {table.hardware(comparison)}"]
    results = Section("Results", table.results(comparison), table.notes(comparison))
    repeat = _repeat(comparison, config)
    sections = [results, Section(charts=charts.draw(folder, comparison))]
    if rows := [] if comparison.smoke else reproduction.of_comparison(folder, comparison):
        sections.append(Section("Published against measured", published(rows), [RULE]))
    links = [f"{run.name}/{layout.SUMMARY}" for run in comparison.runs]
    links = [link if (folder / link).exists() else "" for link in links]
    runs = Table(RUN_TITLES, list(map(_run, comparison.runs)), "ll".ljust(len(RUN_TITLES), "r"), links)
    sections += [Section("Runs", runs, [RUN_NOTE]), Section("Environment", _facts(folder, comparison)), repeat]
    write_text(folder / "results.md", Page(comparison.experiment, about, [results, repeat]).markdown())
    write_text(folder / "results.csv", table.as_csv(comparison))
    write_text(folder / layout.REPORT, Page(comparison.experiment, about, sections).html())


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


def _run(run: RunResult) -> list[str]:
    """The texts below `RUN_TITLES`."""
    return [
        *(run.name, f"{run.status}: {run.reason}" if run.reason else run.status),
        *(measured(run.metric, run.value), measured(run.metric, run.value_fp32)),
        *(number(run.samples_per_sec), number(run.compute_samples_per_sec)),
        *(number(run.data_wait_pct, 1, "%"), number(run.skipped_steps)),
        *((digest or MISSING)[:8] for digest in (run.initial_weights_sha256, run.data_order_sha256)),
    ]


def _facts(folder: Path, comparison: Comparison) -> Table:
    """What the runs ran on, and what each precision computed with, as its first recorded run found it."""
    facts: dict[str, str] = {}
    if machine := comparison.environment:
        facts = {"device": _pairs(machine.device), "CPU": _pairs(machine.cpu), "platform": machine.platform or MISSING}
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    for run in comparison.runs:
        with contextlib.suppress(ValueError):
            if environment := read_environment(folder / run.name / layout.ENVIRONMENT):
                facts.setdefault(run.precision, _pairs(environment.precision.effective))
    return Table(["what", "value"], [[name, text] for name, text in facts.items()], "ll")


def _pairs(record: BaseModel) -> str:
    """The fields that are known."""
    texts = {
        name.replace("_", " "): ", ".join(value) if isinstance(value, list) else value
        for name, value in record.model_dump(exclude_none=True).items()
    }
    return ", ".join(f"{name} {text}" for name, text in texts.items()) or MISSING

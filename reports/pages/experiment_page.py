"""Write what a comparison shows to people: results.md, results.csv, and a page with the answer and its evidence."""

from pathlib import Path

from reports.analysis import reproduction
from reports.pages import charts, sentences, table
from reports.pages.formats import MISSING, measured, number
from reports.pages.precisions import in_order
from reports.pages.published_table import RULE, published
from reports.pages.style import TEMPLATES
from reports.pages.table import Cell, Column, Table
from reports.records import layout
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment
from reports.records.files import write_text

RUN_FILES = (layout.SUMMARY, layout.METRICS, layout.CONFIG, layout.ENVIRONMENT)


def write(folder: Path, comparison: Comparison) -> None:
    """results.md, results.csv and report.html in `folder`, which has the runs."""
    answers = sentences.answers(comparison, comparison.config)
    text = "\n\n".join([f"# {comparison.experiment}", *answers, markdown(comparison)])
    write_text(folder / "results.md", text + "\n")
    write_text(folder / "results.csv", table.as_csv(comparison))
    write_text(folder / layout.REPORT, _html(folder, comparison))


def markdown(comparison: Comparison) -> str:
    """The table and its notes, with the hardware above and the command below."""
    notes = "\n".join(f"- {note}" for note in table.notes(comparison))
    parts = [f"**{comparison.experiment}** on {table.hardware(comparison)}", table.results(comparison).markdown()]
    return "\n\n".join([*parts, *([notes] if notes else []), f"`{comparison.command}`"])


def _html(folder: Path, comparison: Comparison) -> str:
    config = comparison.config
    rows = [] if comparison.smoke else reproduction.of_comparison(folder, comparison)
    return TEMPLATES.get_template("page.html.jinja").render(
        comparison=comparison,
        answers=sentences.answers(comparison, config),
        recipe=_recipe(config) if config else "configuration not recorded",
        results=table.results(comparison),
        notes=table.notes(comparison),
        charts=charts.draw(folder, comparison),
        rule=RULE,
        published=published(rows) if rows else None,
        runs=_runs(folder, comparison),
        arithmetic=_arithmetic(comparison),
        facts=_facts(comparison),
        script=config.model if config else "MODEL",
    )


def _recipe(config: Experiment) -> str:
    """What was trained, in one line."""
    length = f"{config.max_steps} steps" if config.max_steps else f"{config.epochs} epochs"
    batch = f"batch {config.batch_size}" + (f" x {config.accumulate}" if config.accumulate > 1 else "")
    return f"{config.trained_on}, {length}, {batch}, {config.optimizer.name} at {config.optimizer.lr:g}"


def _runs(folder: Path, comparison: Comparison) -> Table:
    metric = comparison.metric
    numbers = [metric.label if metric else "metric", "same weights in FP32", "samples/s, end to end"]
    numbers += ["samples/s, compute only", "data wait", "skipped steps"]
    columns = [Column("run", "text"), Column("status", "text"), *map(Column, numbers)]
    columns += [Column("initial weights"), Column("data order")]
    return Table(columns, [_run(folder, run) for run in comparison.runs])


def _run(folder: Path, run: RunResult) -> list[Cell]:
    record = next((file for file in RUN_FILES if (folder / run.name / file).exists()), None)
    return [
        Cell(run.name, link=f"{run.name}/{record}" if record else ""),
        Cell(run.status, note=run.reason or ""),
        Cell(measured(run.metric, run.value)),
        Cell(measured(run.metric, run.value_fp32)),
        Cell(run.summary.figure("throughput/samples_per_sec")),
        Cell(run.summary.figure("throughput/compute_samples_per_sec")),
        Cell(number(run.summary.figure("time/data_wait_pct"), 1, "%")),
        Cell(run.summary.skipped_steps),
        *(
            Cell((digest or MISSING)[:8])
            for digest in (run.summary.initial_weights_sha256, run.summary.data_order_sha256)
        ),
    ]


def _arithmetic(comparison: Comparison) -> Table:
    """What each precision really computed with, as its first recorded run found it."""
    columns = ["requested", "effective", "matrix type", "arithmetic", "loss scaling", "module outputs", "FP32 operands"]
    rows = []
    for precision in in_order(comparison.precisions):
        environment = next((run.environment for run in comparison.runs_of(precision) if run.environment), None)
        texts: list[str | None] = [None] * 6
        if environment:
            recorded, effective = environment.precision, environment.precision.effective
            own = ("cuda_", "cudnn_") if environment.device.type == "cuda" else ("cpu_",)
            modes = {key: value for key, value in effective.model_dump().items() if key.endswith("_fp32") and value}
            texts = [
                *(effective.name, effective.matrix_dtype, effective.arithmetic),
                "on" if effective.loss_scaling else "off",
                ", ".join(f"{name} {count}" for name, count in recorded.module_outputs.items()),
                ", ".join(
                    f"{key.removesuffix('_fp32').replace('_', ' ')} {value}"
                    for key, value in modes.items()
                    if key.startswith(own)
                ),
            ]
        rows.append([Cell(precision), *(Cell(text or MISSING) for text in texts)])
    return Table([Column(columns[0], "precision"), *(Column(title, "text") for title in columns[1:])], rows)


def _facts(comparison: Comparison) -> dict[str, str]:
    """What the runs ran on; where they differ, the notes say so."""
    machine = comparison.environment
    if machine is None:
        return {}
    device, cpu = machine.device, machine.cpu
    details = [device.label, *([f"{device.memory_gib} GiB"] if device.memory_gib else [])]
    details += [f"{name} {value}" for name, value in (("driver", device.driver), ("CUDA", device.cuda)) if value]
    details += [f"power limit {device.power_limit_watts:g} W"] if device.power_limit_watts else []
    return {
        "device": ", ".join(details),
        "CPU": f"{cpu.cores} cores, {cpu.threads} threads, {cpu.memory_gib} GiB",
        "instruction sets": ", ".join(cpu.instruction_sets or []) or "none that matters here",
        "platform": machine.platform or MISSING,
        "versions": ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        "git commit": ", ".join(comparison.commits) + ("" if comparison.committed else " with uncommitted changes"),
    }

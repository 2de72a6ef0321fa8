"""Write what a comparison shows to people: a page with the answer first and the evidence under it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reports.analysis import reproduction
from reports.pages import charts, table
from reports.pages import filters as markup
from reports.pages import formats as ratio
from reports.pages.published_table import RULE, published_cells
from reports.records.config import first_recipe, trained_on
from reports.records.environment import device_kind, device_name, read_environment
from reports.records.files import numbers, read_lines
from reports.records.run import BASELINE

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"linked": markup.linked, "coded": markup.coded}
RUN_FILES = ("metrics.jsonl", "summary.json", "config.yaml", "environment.json", "evaluation.json")
# The switches of FP32 products, by the device that they are of.
MODES = {"cpu": ("cpu_",), "cuda": ("cuda_", "cudnn_")}
FILES = ("results.md", "results.csv", "comparison.json", "benchmark.json")


def write(folder: Path, comparison: Mapping[str, Any]) -> None:
    """results.md, results.csv and report.html in `folder`."""
    (folder / "results.md").write_text(table.markdown(comparison), encoding="utf-8")
    (folder / "results.csv").write_text(table.as_csv(comparison), encoding="utf-8")
    (folder / "report.html").write_text(_html(folder, comparison), encoding="utf-8")


def answers(comparison: Mapping[str, Any], model: str) -> list[str]:
    """One sentence a mixed precision, and one on FP32 where it is incomplete. Every figure is from the rows."""
    rows = {row["precision"]: row for row in comparison["rows"]}
    baseline = rows.pop(BASELINE, None)
    found = [_answer(row, baseline, model, len(comparison["seeds"])) for row in rows.values()]
    if not rows:
        found.append("only FP32 was trained, so there is nothing to compare it with.")
    if baseline is None or not baseline["seeds"]:
        reason = baseline["reason"] if baseline else "it was not asked for"
        found.append(f"FP32 has no result to compare with: {reason}.")
    elif baseline["status"] != "finished":
        found.append(f"FP32 is incomplete: {baseline['reason']}.")
    kind = {"cpu": "CPU", "cuda": "GPU"}.get(table.kind_of_device(comparison) or "", "machine")
    found[0] = f"On this {kind} ({table.name_of_device(comparison, 'unknown')}), {found[0]}"
    return found


def model_of(folder: Path, comparison: Mapping[str, Any]) -> str:
    """What was trained on what, as its runs' configuration says."""
    config = _recorded_config(folder, comparison)
    return trained_on(config) if config else str(comparison["experiment"])


def _recorded_config(folder: Path, comparison: Mapping[str, Any]) -> dict[str, Any]:
    return first_recipe(folder / run["run"] for run in comparison["runs"])


def _answer(row: Mapping[str, Any], baseline: Mapping[str, Any] | None, model: str, seeds: int) -> str:
    precision = row["precision"]
    if not row["seeds"]:
        return f"{precision} has no result: {row['status']}, {row['reason']}."
    memory = "with the memory saved for backward not compared"
    if row["saved_ratio"] is not None:
        more = ", which is more than FP32 saves" if row["saved_ratio"] > 1 else ""
        memory = f"with {row['saved_ratio']:.2f}x the memory saved for backward{more}"
    sentence = f"{precision} trains {model} {_speed(row)}, {memory}; {_quality(row, baseline, seeds)}."
    if table.emulated(row):
        sentence += f" Its arithmetic here ({row['arithmetic']}) says nothing about the speed of {precision} hardware."
    if row["status"] != "finished":
        sentence += f" Incomplete: {row['reason']}."
    return sentence


def _speed(row: Mapping[str, Any]) -> str:
    if row["speedup"] is None:
        return "at a speed that was not compared with FP32's"
    found, interval = ratio.shown(row)
    if row["speedup_low"] > 1:
        return f"faster than FP32, at {found} its speed {interval}"
    if row["speedup_high"] < 1:
        return f"slower than FP32, at {found} its speed {interval}"
    return f"at {found} the speed of FP32 {interval}, an interval that holds 1"


def _quality(row: Mapping[str, Any], baseline: Mapping[str, Any] | None, seeds: int) -> str:
    name = row["metric"].removeprefix("eval/")
    other = _value(baseline["mean"], row["metric"]) if baseline and baseline["seeds"] else "a missing FP32"
    paired_all = not (baseline and baseline["seeds"]) or row["pairs"] == row["seeds"]
    count, noun = (row["seeds"], "seed") if paired_all else (row["pairs"], "pair")
    over = "in a single run each" if seeds == 1 else f"over {count} {noun}{'' if count == 1 else 's'}"
    if count < seeds:
        over += f" of {seeds}"
    # Over pairs alone, so with runs missing it is not the difference of the two means.
    paired = "" if baseline and row["seeds"] == baseline["seeds"] else "paired "
    means = f"{_value(row['mean'], row['metric'])} against {other}"
    figures = f"{paired}difference {table.difference(row)}"
    if row["verdict"] is None:
        return f"{name} {means} {over} ({figures})"
    limit = f"{100 * row['margin']:g} points" if row["metric"] == "eval/accuracy" else f"{row['margin']:.4f}"
    words = {
        "EQUIVALENT": f"equivalent within {limit}",
        "WORSE": "worse",
        "BETTER": "better",
        "INCONCLUSIVE": f"inconclusive at a margin of {limit}",
    }
    more = f"; {table.more_seeds(row)}" if row["verdict"] == "INCONCLUSIVE" else ""
    return f"{name} {words[row['verdict']]} {over} ({means}, {figures}{more})"


def _html(folder: Path, comparison: Mapping[str, Any]) -> str:
    names = [run["run"] for run in comparison["runs"]]
    environments = {name: found for name in names if (found := read_environment(folder / name / "environment.json")[0])}
    config = _recorded_config(folder, comparison)
    histories = {name: numbers(read_lines(folder / name / "metrics.jsonl")[0]) for name in names}
    drawn = charts.draw(comparison, histories)
    published = [published_cells(found) for found in reproduction.of_comparison(folder, comparison)]
    return TEMPLATES.get_template("page.html.jinja").render(
        comparison=comparison,
        experiment=comparison["experiment"],
        answers=answers(comparison, model_of(folder, comparison)),
        recipe=_recipe(config),
        header=table.header(comparison),
        rows=[(row, table.cells(row)) for row in comparison["rows"]],
        notes=table.notes(comparison),
        charts=[(chart, Markup(chart.svg)) for chart in drawn],
        rule=RULE,
        published=[] if comparison["smoke"] else published,
        metric=(comparison["metric"] or "metric").removeprefix("eval/"),
        runs=[_run(folder, run) for run in comparison["runs"]],
        facts=_facts(list(environments.values())),
        commits=_distinct(_commit(found) for found in environments.values()),
        arithmetic=_arithmetic(comparison, environments),
        script=config.get("model", "MODEL"),
        files=[name for name in FILES if (folder / name).exists()],
    )


def _recipe(config: Mapping[str, Any]) -> str:
    """What was trained, in one line."""
    if not config:
        return "configuration not recorded"
    length = f"{config['max_steps']} steps" if config.get("max_steps") else f"{config.get('epochs')} epochs"
    batch = f"batch {config['batch_size']}" + (f" x {config['accumulate']}" if config.get("accumulate", 1) > 1 else "")
    optimizer = config["optimizer"]
    return f"{trained_on(config)}, {length}, {batch}, {optimizer['name']} at {optimizer['lr']:g}"


def _run(folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the table of runs."""
    figures = [
        _value(run["value"], run["metric"]),
        _value(run["value_fp32"], run["metric"]),
        *(_number(run[key], ",.0f") for key in ("samples_per_sec", "compute_samples_per_sec")),
        _number(run["data_wait_pct"], ".1f", " %"),
        _number(run["skipped_steps"], "d"),
    ]
    hashes = [(run[key] or table.MISSING)[:8] for key in ("initial_weights_sha256", "data_order_sha256")]
    files = [name for name in RUN_FILES if (folder / run["run"] / name).exists()]
    return {**run, "figures": figures, "hashes": hashes, "files": files}


def _facts(environments: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """What the runs ran on; more than one value where they differ."""
    told = [_told(found) for found in environments]
    names = dict.fromkeys(name for found in told for name in found)
    return [(name, _distinct(found.get(name) for found in told)) for name in names]


def _told(environment: Mapping[str, Any]) -> dict[str, str]:
    device, cpu = environment.get("device") or {}, environment.get("cpu") or {}
    details = {key: value for key, value in device.items() if key not in ("type", "name")}
    return {
        "device": ", ".join([device_name(environment) or table.MISSING, *_pairs(details)]),
        "CPU": ", ".join(_pairs({key: value for key, value in cpu.items() if key != "instruction_sets"})),
        "instruction sets": ", ".join(cpu.get("instruction_sets") or []) or "none that matters here",
        "platform": str(environment.get("platform", table.MISSING)),
        "versions": ", ".join(_pairs(environment.get("versions") or {})),
    }


def _commit(environment: Mapping[str, Any]) -> dict[str, Any] | None:
    git = environment.get("git")
    return {"commit": git.get("commit"), "dirty": git.get("dirty")} if git else None


def _arithmetic(comparison: Mapping[str, Any], environments: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """What each precision really computed with, as its first recorded run found it."""
    found = []
    for precision in comparison["precisions"]:
        names = [run["run"] for run in comparison["runs"] if run["precision"] == precision]
        environment: Mapping[str, Any] = next((environments[name] for name in names if name in environments), {})
        facts = environment.get("precision") or {}
        effective = facts.get("effective") or {}
        own = MODES.get(device_kind(environment) or "", ("",))
        modes = {
            key.removesuffix("_fp32"): value
            for key, value in effective.items()
            if key.endswith("_fp32") and key.startswith(own)
        }
        texts = [effective.get("name"), effective.get("matrix_dtype"), effective.get("arithmetic")]
        texts.append("on" if effective.get("loss_scaling") else "off" if effective else None)
        texts += [", ".join(_pairs(facts.get("module_outputs") or {})), ", ".join(_pairs(modes))]
        found.append([precision, *(text or table.MISSING for text in texts)])
    return found


def _pairs(values: Mapping[str, Any]) -> list[str]:
    units = {"gib": "GiB", "watts": "W"}
    found = []
    for key, value in values.items():
        stem, _, unit = key.rpartition("_")
        name, suffix = (stem, f" {units[unit]}") if unit in units else (key, "")
        found.append(f"{name.replace('_', ' ')} {value}{suffix}")
    return found


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value and value not in found:
            found.append(value)
    return found


def _value(value: float | None, metric: str | None) -> str:
    return _number(value, ".2%" if metric == "eval/accuracy" else ".4f")


def _number(value: float | None, form: str, unit: str = "") -> str:
    return table.MISSING if value is None else f"{value:{form}}{unit}"

"""A comparison as a table of texts, with notes, and as rows of raw numbers for CSV and trackers."""

import csv
import io
from collections.abc import Callable
from functools import partial

from reports.analysis.statistics import SIGNIFICANCE
from reports.pages.text_table import MISSING, Table, number
from reports.records.comparison import INCONCLUSIVE, Comparison, Interval, Row
from reports.records.environment import UNCOMMITTED
from reports.records.layout import BASELINE, COLUMNS
from reports.records.metric import Metric
from reports.records.short_runs import ShortRuns
from reports.records.summary import FINISHED

MEMORY = (
    "Memory: MiB are the median over seeds, and the ratio to FP32 is the median over pairs of runs with equal seeds."
)
Value = float | int | str | None
AUTOCAST_ON_CPU = (
    "Activation memory and range of values are those of autocast on a CPU, which leaves layer_norm, softmax, exp, pow, "
    "sum and rsqrt in 16 bits; autocast on CUDA runs them in FP32. `autocast_policy: cuda` does so on a CPU too."
)


def results(comparison: Comparison) -> Table:
    """A row a precision. The deciding metric stands first, further ones after the verdict."""
    metric = comparison.metric
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("precision", lambda row: row.precision),
        (metric.label if metric else "metric", measure),
        ("difference vs FP32 [95%]", difference),
        ("verdict", verdict),
    ]
    others = {other.metric.key: other.metric.label for row in comparison.rows for other in row.others}
    columns += [(f"{label} (difference)", partial(_other, key)) for key, label in others.items()]
    columns += [
        ("samples/s", lambda row: number(row.samples_per_sec)),
        ("speed-up [95%]", speedup),
        ("peak memory", lambda row: emulated(row, _memory(row, row.peak_memory_mib, row.peak_ratio, 0))),
        ("saved for backward", lambda row: _memory(row, row.saved_for_backward_mib, row.saved_ratio, 1)),
        ("skipped steps", lambda row: number(row.skipped_steps)),
    ]
    rows = [[text_of(row) for _, text_of in columns] for row in comparison.rows]
    return Table([title for title, _ in columns], rows, "lrrl".ljust(len(columns), "r"))


def flat_rows(*comparisons: Comparison) -> list[dict[str, Value]]:
    """Each precision's figures in full, all rows with the same columns: `COLUMNS`, then the further metrics."""
    rows = [_flat(row) for comparison in comparisons for row in comparison.rows]
    columns = dict.fromkeys([*COLUMNS, *(column for row in rows for column in row)])
    return [{column: row.get(column) for column in columns} for row in rows]


def as_csv(*comparisons: Comparison) -> str:
    """The `flat_rows` of all `comparisons`."""
    rows = flat_rows(*comparisons)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def notes(comparison: Comparison, open_verdicts: bool = True) -> list[str]:
    """What a reader must know to read the figures right, and with `open_verdicts` what each of them would take."""
    notes = []
    if comparison.partial:
        remedy = "" if comparison.smoke else "; the same command completes it"
        notes.append(f"Partial, of the runs that are finished and without verdicts: {comparison.partial}{remedy}.")
        if any(row.seeds and row.samples_per_sec is None for row in comparison.rows):
            notes.append("The speed was not measured yet.")
    if comparison.smoke:
        notes.append("A smoke run of a few steps: these figures say only that the code runs.")
    if len(comparison.seeds) == 1:
        notes.append("One seed: a difference between single runs cannot be told from noise.")
    if not comparison.committed:
        notes.append(f"Some of its source {UNCOMMITTED}: reports.build leaves such figures out.")
    benchmark = comparison.benchmark
    measured_at = [source.commit for source in benchmark.sources] if benchmark else []
    commits = dict.fromkeys(commit[:8] for commit in [*comparison.commits, *measured_at] if commit)
    measured_with = [benchmark.torch.partition("+")[0]] if benchmark and benchmark.torch else []  # old ones: 2.1+cu118
    versions = dict.fromkeys([*comparison.torch, *measured_with])
    for what, several in (("version of PyTorch", versions), ("commit", commits)):
        if len(several) > 1:
            notes.append(f"Runs and speed are of more than one {what}: {', '.join(several)}.")
    if comparison.not_recorded:
        notes.append(f"Not recorded by all runs, and so not compared: {', '.join(comparison.not_recorded)}.")
    if any(row.speedup and row.speedup.interval is None for row in comparison.rows):
        notes.append("Speed was measured in one process start alone: no interval, since another start may differ.")
    notes += [_rule(row, comparison) for row in comparison.rows if row.verdict][:1]
    if comparison.looks > 1:
        notes.append(_looks(comparison))
    elif any(row.verdict == INCONCLUSIVE for row in comparison.rows):
        notes.append(
            "Each number of seeds at which the verdict is asked for is a look: the intervals widen with their number. "
            "Looks that are planned (--until-decided) keep false alarms at 5%; to add seeds until one comes does not."
        )
    mixed = [run for run in comparison.runs if run.finished and run.precision != BASELINE]
    if any(run.summary.precision.effective.autocast_policy in (None, "cpu") for run in mixed) and on_cpu(comparison):
        notes.append(AUTOCAST_ON_CPU)
    if open_verdicts:
        open_rows = [(row.precision, seeds) for row in comparison.rows if (seeds := seeds_needed(row))]
        likely = "with 80% power if difference and spread stay as they are"
        notes += [f"{precision} is inconclusive: {seeds}, {likely}." for precision, seeds in open_rows]
    return notes + [note for row in comparison.rows for note in _notes_on(row, comparison.short_runs)]


def hardware(comparison: Comparison) -> str:
    """The device and what it has for 16-bit arithmetic."""
    environment = comparison.environment
    if environment is None or not on_cpu(comparison):
        return device(comparison)
    flags = [flag for flag in environment.cpu.instruction_sets or [] if flag.endswith(("bf16", "fp16"))]
    return f"{device(comparison)} (CPU; 16-bit instruction sets: {', '.join(flags) or 'none recorded'})"


def on_cpu(comparison: Comparison) -> bool:
    return comparison.environment is not None and comparison.environment.device.type == "cpu"


def device(comparison: Comparison) -> str:
    """The name of the hardware."""
    return comparison.environment.device.label if comparison.environment else "unknown hardware"


def verdict(row: Row) -> str:
    """The verdict; without one whether that is for one run, one pair or none, or a comparison that ended early."""
    if row.is_baseline:
        return "baseline"
    if row.verdict or not row.seeds:
        return row.verdict or MISSING
    if row.pairs > 1:
        return "not judged"
    return "single run" if row.seeds == 1 else "single pair" if row.pairs else "no pair"


def measure(row: Row) -> str:
    """Mean and spread of the deciding metric, and why runs of the row do not count."""
    reason = "" if row.status == FINISHED else f"{row.status}: {row.reason}"
    if not row.seeds:
        return reason or MISSING
    return _join(mean(row), reason and f"({reason})")


def mean(row: Row) -> str:
    """Mean and spread of the deciding metric over the finished runs."""
    if not row.seeds or row.metric is None or row.mean is None:
        return MISSING
    seeds = "(single run)" if row.seeds == 1 else f"(n={row.seeds})"
    return _join(_spread(row.metric, row.mean, row.sd), seeds)


def difference(row: Row) -> str:
    """The mean paired difference vs FP32 and, of two pairs at least, its interval."""
    if row.is_baseline:
        return "baseline"
    metric, interval = row.metric, row.interval
    if row.difference is None or metric is None:
        return MISSING
    if interval is None:
        return number(metric.scale * row.difference, metric.decimals, metric.difference_unit, signed=True)
    text = estimate(interval, metric.decimals, metric.difference_unit, 0, metric.scale)
    wider = f"at {level(row.looks)}" if row.looks > 1 else ""
    return _join(text, wider, f"(n={row.pairs})" if row.pairs != row.seeds else "")


def margin(row: Row) -> str:
    """Within which a difference counts as none."""
    if row.margin is None or row.metric is None:
        return MISSING
    return number(row.metric.scale * row.margin, row.metric.decimals, row.metric.difference_unit)


def seeds_needed(row: Row) -> str:
    """How many seeds would decide an open verdict; empty for another."""
    if row.verdict != INCONCLUSIVE:
        return ""
    seeds = f"about {row.seeds_needed} seeds" if row.seeds_needed else "more seeds than can be trained"
    return f"{seeds} would decide"


def speedup(row: Row) -> str:
    """Over FP32."""
    if row.is_baseline or row.speedup is None:
        return "baseline" if row.is_baseline else MISSING
    value, interval = row.speedup.value, row.speedup.interval
    return emulated(row, estimate(interval, 2, "x", reference=1) if interval else number(value, 2, "x"))


def emulated(row: Row, text: str) -> str:
    """`text` with a mark where it is of emulated arithmetic, not of hardware for the precision."""
    return f"{text} (emulated)" if row.emulated and text != MISSING else text


def measured(metric: Metric | None, value: float | None) -> str:
    """A value of `metric`."""
    if metric is None or value is None:
        return MISSING
    return number(metric.scale * value, metric.decimals, metric.unit)


def level(looks: int) -> str:
    """The confidence of an interval that is one of so many looks."""
    return f"{100 * (1 - SIGNIFICANCE / looks):.3g}%"


def estimate(interval: Interval, decimals: int, unit: str, reference: float, scale: float = 1) -> str:
    """`scale` times the value and, in brackets, the interval; a difference, from the `reference` 0, has its sign."""
    places = _places(interval, interval.value, decimals, reference, scale)
    value = number(scale * interval.value, places, unit, signed=reference == 0)
    return f"{value} {ends(interval, decimals, reference, scale)}"


def ends(interval: Interval, decimals: int, reference: float, scale: float = 1) -> str:
    """`scale` times the interval, in brackets."""
    low, high = (
        number(scale * end, _places(interval, end, decimals, reference, scale)) for end in (interval.low, interval.high)
    )
    return f"[{low}, {high}]"


def _places(interval: Interval, figure: float, decimals: int, reference: float, scale: float) -> int:
    """As many decimals as it takes to read that an interval excludes `reference`: 0.98x [0.96, 0.999]."""
    excluded = not interval.low <= reference <= interval.high
    while excluded and decimals < 12 and float(f"{scale * figure:.{decimals}f}") == reference:
        decimals += 1
    return decimals


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _spread(metric: Metric, mean: float, sd: float | None) -> str:
    spread = "" if sd is None else f"± {number(metric.scale * sd, metric.decimals)}"
    return _join(measured(metric, mean), spread)


def _other(key: str, row: Row) -> str:
    other = next((other for other in row.others if other.metric.key == key), None)
    if other is None:
        return MISSING
    metric, change = other.metric, other.difference
    text = "" if change is None else f"({number(metric.scale * change, metric.decimals, signed=True)})"
    return _join(_spread(metric, other.mean, other.sd), text)


def _memory(row: Row, value: float | None, ratio: float | None, decimals: int) -> str:
    compared = "" if ratio is None or row.is_baseline else f"({number(ratio, 2, 'x')})"
    return _join(number(value, decimals, "MiB"), compared)


def _flat(row: Row) -> dict[str, Value]:
    flat: dict[str, Value] = {column: getattr(row, column, None) for column in COLUMNS}
    flat["metric"] = row.metric.key if row.metric else None
    flat["speedup"] = row.speedup.value if row.speedup else None
    for column, interval in (("difference", row.interval), ("speedup", row.speedup and row.speedup.interval)):
        flat[f"{column}_low"] = interval.low if interval else None
        flat[f"{column}_high"] = interval.high if interval else None
    for other in row.others:
        name = other.metric.name
        flat |= {name: other.mean, f"{name}_sd": other.sd, f"{name}_difference": other.difference}
    return flat


def _rule(row: Row, comparison: Comparison) -> str:
    """How the verdicts come about."""
    metric, level = row.metric, SIGNIFICANCE / comparison.looks
    assert metric
    margin = f"{metric.scale * (row.margin or 0):g} {metric.difference_unit}".strip()
    if metric.width is None:
        margin = f"{100 * comparison.margin:g}% of FP32's {metric.label}"
    samples = f" on these {row.eval_samples:,} samples" if row.eval_samples else ""
    narrow, wide = (f"{100 * (1 - tails):.3g}%" for tails in (2 * level, level))
    return (
        f"Verdict{samples}: EQUIVALENT when the {narrow} interval lies within {margin} either way (two one-sided "
        f"t-tests); otherwise WORSE or BETTER when the {wide} interval excludes zero."
    )


def _looks(comparison: Comparison) -> str:
    """How often the verdict was asked for, and with what."""
    pairs = sorted({look.pairs for look in comparison.looks_taken})
    margins = sorted({look.margin for look in comparison.looks_taken})
    asked = f"with {' and '.join(map(str, pairs))} seeds" if pairs else "not yet"
    asked += f" and margins of {' and '.join(f'{100 * margin:g}%' for margin in margins)}" if len(margins) > 1 else ""
    return f"Verdicts were asked for {asked}; the intervals are those for {comparison.looks} looks."


def _population(row: Row, interval: Interval) -> str:
    """The difference on new samples, against the margin."""
    assert row.metric
    text = estimate(interval, row.metric.decimals, row.metric.difference_unit, 0, row.metric.scale)
    inside = max(abs(interval.low), abs(interval.high)) < (row.margin or 0)
    where = "within" if inside else "not within"
    return f"{row.precision} on new samples, with seeds and samples both drawn: {text}, {where} the margin."


def _short_runs(row: Row, short_runs: ShortRuns) -> str:
    """Where its peak memory is from."""
    runs = len(short_runs.peaks_mib[row.precision])
    fp32 = number(short_runs.peak(BASELINE), 0, "MiB")
    return (
        f"{row.precision}'s peak memory is from short runs: {short_runs.steps} steps on {short_runs.device}, "
        f"{f'the largest of {runs}' if runs > 1 else 'one run'}. Its ratio is to FP32's there, {fp32}."
    )


def _notes_on(row: Row, short_runs: ShortRuns | None) -> list[str]:
    notes = [_population(row, row.population)] if row.population else []
    interval = row.speedup and row.speedup.interval
    if interval and interval.high < 1 and (operator := row.slower_in):
        before = "too little to be listed" if operator.fp32_ms is None else f"{operator.fp32_ms:.3g} ms"
        grew = f"{operator.name.removeprefix('aten::')}: {operator.ms:.3g} ms of a step, {before} in FP32"
        notes.append(f"{row.precision} is slower than FP32 here; the operator that grew most is {grew}.")
    if row.emulated:
        notes.append(
            f"{row.precision} here: {row.arithmetic}. Its speed and peak memory are those of this emulation, not of "
            f"{row.precision} hardware."
        )
        if short_runs and short_runs.ratio(row.precision):
            notes.append(_short_runs(row, short_runs))
    return notes

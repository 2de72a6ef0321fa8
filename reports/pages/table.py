"""A comparison as a table of cells, rendered once for each output, and as rows of raw numbers for CSV and trackers."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from reports.analysis.statistics import SIGNIFICANCE
from reports.pages import formats, markdown
from reports.pages.formats import MISSING
from reports.records.comparison import INCONCLUSIVE, Comparison, Row
from reports.records.environment import UNCOMMITTED
from reports.records.metric import Metric
from reports.records.summary import FINISHED

Value = float | int | str | None
COLUMNS = (
    *("experiment", "precision", "seeds", "metric", "mean", "sd"),
    *("difference", "difference_low", "difference_high", "margin", "verdict"),
    *("samples_per_sec", "speedup", "speedup_low", "speedup_high"),
    *("peak_memory_mib", "peak_ratio", "saved_for_backward_mib", "saved_ratio"),
    *("skipped_steps", "train_seconds", "device", "status", "reason"),
)
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass(frozen=True)
class Cell:
    """A figure with unit, spread or interval, and a note; or a text. A figure that was not measured is None.

    An interval that excludes `reference` has as many more decimals as it takes to read so.
    """

    value: float | str | None = None
    decimals: int = 0
    unit: str = ""
    signed: bool = False
    spread: float | None = None
    interval: tuple[float, float] | None = None
    reference: float = 0.0
    note: str = ""
    link: str = ""

    @property
    def figure(self) -> str:
        """The value with unit and spread."""
        if isinstance(self.value, str):
            return self.value
        spread = "" if self.spread is None else f" ± {self.spread:,.{self.decimals}f}"
        decimals = self.decimals if self.value is None else self._decimals(self.value)
        return formats.number(self.value, decimals, self.unit, self.signed) + spread

    @property
    def ends(self) -> str:
        """The interval in brackets; empty without one."""
        return f"[{', '.join(f'{end:,.{self._decimals(end)}f}' for end in self.interval)}]" if self.interval else ""

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(part for part in (self.figure, self.ends, self.note) if part)

    def _decimals(self, value: float) -> int:
        if self.interval is None or self.interval[0] <= self.reference <= self.interval[1]:
            return self.decimals
        return formats.decimals_apart(value, self.reference, self.decimals)


@dataclass(frozen=True)
class Column:
    """A title; `kind` is text, number or precision, `narrow` whether it is among those of the terminal's table."""

    title: str
    kind: str = "number"
    narrow: bool = True


@dataclass(frozen=True)
class Table:
    """Rows of as many cells as there are columns."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    @property
    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]

    @property
    def alignment(self) -> str:
        return "".join("r" if column.kind == "number" else "l" for column in self.columns)

    def markdown(self) -> str:
        """With its links."""
        rows = [[f"[{cell.text}]({cell.link})" if cell.link else cell.text for cell in row] for row in self.rows]
        return markdown.table(self.titles, rows, self.alignment)

    def latex(self) -> str:
        r"""A `tabular` for the package booktabs."""
        lines = [
            " & ".join("".join(LATEX.get(c, c) for c in text) for text in texts) + r" \\"
            for texts in (self.titles, *self.texts)
        ]
        head = [rf"\begin{{tabular}}{{{self.alignment}}}", r"\toprule", lines[0], r"\midrule"]
        return "\n".join([*head, *lines[1:], r"\bottomrule", r"\end{tabular}"])


def results(comparison: Comparison) -> Table:
    """A row a precision. The deciding metric stands first, further ones after the verdict."""
    metric = comparison.metric
    columns: list[tuple[Column, Callable[[Row], Cell]]] = [
        (Column("precision", "precision"), lambda row: Cell(row.precision)),
        (Column(metric.label if metric else "metric"), measure),
        (Column("difference vs FP32 [95%]"), difference),
        (Column("verdict", "text"), lambda row: Cell("baseline" if row.is_baseline else verdict(row))),
    ]
    others = {other.metric.key: other.metric for row in comparison.rows for other in row.others}
    for key, other in others.items():
        columns.append((Column(f"{other.label} (difference)", narrow=False), partial(_other, key)))
    columns += [
        (Column("samples/s", narrow=False), lambda row: Cell(row.samples_per_sec)),
        (Column("speed-up [95%]"), speedup),
        (Column("peak memory"), lambda row: _memory(row, row.peak_memory_mib, 0, row.peak_ratio, 2)),
        (Column("saved for backward"), lambda row: _memory(row, row.saved_for_backward_mib, 1, row.saved_ratio, 3)),
        (Column("skipped steps"), lambda row: Cell(row.skipped_steps)),
    ]
    rows = [[cell_of(row) for _, cell_of in columns] for row in comparison.rows]
    return Table([column for column, _ in columns], rows)


def terminal(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of texts for a terminal: at most eight columns."""
    table = results(comparison)
    narrow = [place for place, column in enumerate(table.columns) if column.narrow]
    return [table.titles[place] for place in narrow], [[texts[place] for place in narrow] for texts in table.texts]


def flat_rows(comparison: Comparison) -> list[dict[str, Value]]:
    """Each precision's figures in full, all rows with the same columns: `COLUMNS`, then the further metrics."""
    rows = [_flat(row) for row in comparison.rows]
    return [{column: row.get(column) for column in _union(rows)} for row in rows]


def as_csv(*comparisons: Comparison) -> str:
    """The `flat_rows` of all `comparisons`; empty where there is no figure."""
    rows = [row for comparison in comparisons for row in flat_rows(comparison)]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _union(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def notes(comparison: Comparison) -> list[str]:
    """What a reader must know to read the figures right."""
    notes = []
    if comparison.smoke:
        notes.append("A smoke run: a few steps on embedded data. These figures say only that the code runs.")
    if len(comparison.seeds) == 1:
        notes.append("One seed: a difference between single runs cannot be told from noise.")
    if not comparison.committed:
        notes.append(f"Some of its source {UNCOMMITTED}: reports.build leaves such figures out.")
    commits = [commit[:8] for commit in comparison.commits]
    for what, several in (("version of PyTorch", comparison.torch), ("commit", commits)):
        if len(several) > 1:
            notes.append(f"Its runs are of more than one {what}: {', '.join(several)}.")
    measured_at = comparison.benchmark.git.commit if comparison.benchmark else None
    if measured_at and commits and measured_at[:8] not in commits:
        notes.append(f"Its speed was measured at another commit than that of its runs: {measured_at[:8]}.")
    if judged := [row for row in comparison.rows if row.verdict]:
        notes.append(_rule(judged[0], comparison))
    if comparison.looks > 1:
        notes.append(
            f"Seeds were added while a verdict was open, in at most {comparison.looks} looks: each tests at "
            f"5% / {comparison.looks}, and the intervals are wider accordingly."
        )
    elif any(row.verdict == INCONCLUSIVE for row in judged):
        notes.append(
            "Adding seeds until you like the result inflates false positives; --until-decided corrects for it."
        )
    return notes + [note for row in comparison.rows for note in _notes_on(row)]


def hardware(comparison: Comparison) -> str:
    """The device and what it has for 16-bit arithmetic."""
    environment = comparison.environment
    if environment is None or environment.device.type != "cpu":
        return device(comparison)
    recorded = environment.cpu.instruction_sets
    flags = [flag for flag in recorded or [] if flag.endswith(("bf16", "fp16"))]
    sets = "not recorded" if recorded is None else ", ".join(flags) or "none"
    return f"{device(comparison)} (CPU; 16-bit instruction sets: {sets})"


def device(comparison: Comparison) -> str:
    """The name of the hardware."""
    return comparison.environment.device.label if comparison.environment else "unknown hardware"


def verdict(row: Row) -> str:
    """The verdict; without one whether that is for having one run, or one pair or none."""
    if row.verdict or not row.seeds:
        return row.verdict or MISSING
    return "single run" if row.seeds == 1 else "single pair" if row.pairs else "no pair"


def measure(row: Row) -> Cell:
    """Mean and spread of the deciding metric, and why runs of the row do not count."""
    note = "" if row.status == FINISHED else f"{row.status}: {row.reason}"
    if not row.seeds or row.metric is None or row.mean is None:
        return Cell(note or None)
    seeds = "(single run)" if row.seeds == 1 else f"(n={row.seeds})"
    return _measured(row.metric, row.mean, row.sd, f"{seeds} ({note})" if note else seeds)


def difference(row: Row) -> Cell:
    """The mean paired difference vs FP32 and, of two pairs at least, its interval."""
    if row.is_baseline:
        return Cell("baseline")
    if row.difference is None or row.metric is None:
        return Cell()
    wider = f"at {formats.in_percent(1 - SIGNIFICANCE / row.looks)}" if row.interval and row.looks > 1 else ""
    pairs = f"(n={row.pairs})" if row.interval and row.pairs != row.seeds else ""
    scale = row.metric.scale
    return Cell(
        scale * row.difference,
        row.metric.decimals,
        row.metric.difference_unit,
        signed=True,
        interval=(scale * row.interval.low, scale * row.interval.high) if row.interval else None,
        note=" ".join(part for part in (wider, pairs) if part),
    )


def speedup(row: Row) -> Cell:
    """Over FP32. The speed of emulated arithmetic must not pass for that of hardware that has the precision."""
    if row.is_baseline or row.speedup is None:
        return Cell("baseline" if row.is_baseline else None)
    note = "(emulated)" if row.emulated else ""
    return Cell(row.speedup.value, 2, "x", interval=(row.speedup.low, row.speedup.high), reference=1, note=note)


def _measured(metric: Metric, mean: float, sd: float | None, note: str) -> Cell:
    spread = None if sd is None else metric.scale * sd
    return Cell(metric.scale * mean, metric.decimals, metric.unit, spread=spread, note=note)


def _other(key: str, row: Row) -> Cell:
    other = next((other for other in row.others if other.metric.key == key), None)
    if other is None:
        return Cell()
    metric, note = other.metric, ""
    if other.difference is not None:
        note = f"({formats.number(metric.scale * other.difference, metric.decimals, signed=True)})"
    return _measured(metric, other.mean, other.sd, note)


def _memory(row: Row, value: float | None, decimals: int, ratio: float | None, ratio_decimals: int) -> Cell:
    note = "" if ratio is None or row.is_baseline else f"({formats.number(ratio, ratio_decimals, 'x')})"
    return Cell(value, decimals, "MiB", note=note)


def _flat(row: Row) -> dict[str, Value]:
    flat: dict[str, Value] = {column: getattr(row, column, None) for column in COLUMNS}
    flat["metric"] = row.metric.key if row.metric else None
    for column, interval in (("difference", row.interval), ("speedup", row.speedup)):
        flat[f"{column}_low"] = interval.low if interval else None
        flat[f"{column}_high"] = interval.high if interval else None
    flat["speedup"] = row.speedup.value if row.speedup else None
    for other in row.others:
        name = other.metric.name
        flat |= {name: other.mean, f"{name}_sd": other.sd, f"{name}_difference": other.difference}
    return flat


def _union(rows: Sequence[dict[str, Value]]) -> list[str]:
    return list(dict.fromkeys([*COLUMNS, *(column for row in rows for column in row)]))


def _rule(row: Row, comparison: Comparison) -> str:
    """How the verdicts come about."""
    assert row.metric
    margin = formats.margin(row)
    if row.metric.width is None:
        margin = f"{formats.in_percent(comparison.margin)} of FP32's {row.metric.label}"
    share = SIGNIFICANCE / comparison.looks
    return (
        f"Verdict: EQUIVALENT when two one-sided t-tests at {formats.in_percent(share)} rule out a difference of "
        f"{margin} either way, so that the {formats.in_percent(1 - 2 * share)} interval lies within; otherwise WORSE "
        f"or BETTER when the {formats.in_percent(1 - share)} interval excludes zero."
    )


def _notes_on(row: Row) -> list[str]:
    notes = []
    if row.verdict == INCONCLUSIVE:
        decide = f"about {row.seeds_needed} seeds would decide with 80% power"
        if row.seeds_needed is None:
            decide = "more seeds than can be trained would be needed at this margin"
        notes.append(f"{row.precision} is inconclusive: {decide} if these are the true difference and spread.")
    if row.drift:
        notes.append(
            f"{row.precision}: the speed-up drifted from {row.drift.first:.2f}x in the first third of the measurement "
            f"to {row.drift.last:.2f}x in the last: the machine was not quiet."
        )
    if row.speedup and row.speedup.high < 1:
        reason = ""
        if row.slower_in:
            name, before = row.slower_in.name.removeprefix("aten::"), row.slower_in.fp32_ms
            was = "too little in FP32 to be among its longest" if before is None else f"{before:.3g} ms in FP32"
            reason = f"; the operator that grew most is {name}: {row.slower_in.ms:.3g} ms of a step, {was}"
        notes.append(f"{row.precision} is slower than FP32 here: {speedup(row).figure}{reason}.")
    if row.emulated:
        notes.append(
            f"{row.precision} on this CPU: {row.arithmetic}. Its accuracy and what it saves for backward are those of "
            f"{row.precision}; its speed and its peak are those of the emulation, not of {row.precision} hardware."
        )
    return notes

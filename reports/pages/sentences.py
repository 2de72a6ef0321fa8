"""What all comparisons say together, in sentences."""

import statistics
from collections import Counter
from collections.abc import Sequence

from reports.analysis.reproduction import NOT_RUN, Reproduction
from reports.pages import table
from reports.pages.precisions import in_order
from reports.records.comparison import VERDICTS, Comparison, Row

KINDS = {"cpu": "CPUs", "cuda": "GPUs"}


def conclusions(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence a mixed precision and kind of device, since a CPU's speed-up says nothing about a GPU's."""
    groups: dict[str, list[Row]] = {}
    for comparison in comparisons:
        kind = comparison.environment.device.type if comparison.environment else None
        groups.setdefault(KINDS.get(kind or "", "unknown devices"), []).extend(comparison.mixed_rows)
    return [
        f"{precision} on {kind}: {_speeds(own)}; {_verdicts(own)}."
        for kind, rows in groups.items()
        for precision in in_order(row.precision for row in rows)
        if (own := [row for row in rows if row.precision == precision])
    ]


def devices(comparisons: Sequence[Comparison]) -> str:
    """What the experiments ran on, each device with the number of its experiments."""
    return "; ".join(f"{name} ({count})" for name, count in Counter(map(table.device, comparisons)).most_common())


def reproduced(reproductions: Sequence[Reproduction]) -> str:
    """How many published rows were measured, and with which verdicts."""
    measured = [one for one in reproductions if one.verdict != NOT_RUN]
    rows, known = ({one.row.id for one in group} for group in (reproductions, measured))
    counts = "".join(
        f", {count} {verdict}" for verdict, count in Counter(one.verdict for one in measured).most_common()
    )
    return f"measured were {len(known)} of {len(rows)} published rows, each in some precisions{counts}."


def _speeds(rows: Sequence[Row]) -> str:
    """Faster and slower are what an interval says that does not hold 1."""
    speeds = [row.speedup for row in rows if row.speedup]
    if not speeds:
        return "speed not compared with FP32"
    faster, slower = sum(speed.low > 1 for speed in speeds), sum(speed.high < 1 for speed in speeds)
    values = [speed.value for speed in speeds]
    counts = f"faster than FP32 in {faster} of {len(speeds)} experiments and slower in {slower}"
    spread = f"median {statistics.median(values):.3g}x, from {min(values):.3g}x to {max(values):.3g}x"
    emulated = "; ".join(sorted({row.arithmetic or "" for row in rows if row.emulated}))
    return f"{counts} ({spread}){f', emulated ({emulated}), not as on hardware for it' if emulated else ''}"


def _verdicts(rows: Sequence[Row]) -> str:
    counts = Counter(row.verdict for row in rows)
    each = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    each += [f"{counts[None]} without a verdict"] if counts[None] else []
    return f"{' or '.join(dict.fromkeys(row.metric.label for row in rows if row.metric))}: {', '.join(each)}"

"""What all comparisons say together, in sentences."""

import statistics
from collections import Counter
from collections.abc import Sequence

from reports.analysis.reproduction import NOT_RUN, Reproduction
from reports.pages import table
from reports.pages.formats import count_of, ratio
from reports.pages.precisions import in_order
from reports.records.comparison import VERDICTS, Comparison, Row


def conclusions(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence a mixed precision and kind of device, since a CPU's speed-up says nothing about a GPU's."""
    by_kind: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        kind = (comparison.environment and comparison.environment.device.type) or "an unknown device"
        by_kind.setdefault({"cpu": "CPUs", "cuda": "GPUs"}.get(kind, kind), []).append(comparison)
    sentences = []
    for kind, alike in by_kind.items():
        rows = [row for comparison in alike for row in comparison.mixed_rows]
        for precision in in_order(row.precision for row in rows):
            own = [row for row in rows if row.precision == precision]
            sentences.append(
                f"{precision} on {kind}, {count_of(len(own), 'experiment')}: {_speeds(own)}; {_verdicts(own)}."
            )
    return sentences


def devices(comparisons: Sequence[Comparison]) -> str:
    """What the experiments ran on, each device with the number of its experiments."""
    return "; ".join(f"{name} ({count})" for name, count in Counter(map(table.device, comparisons)).most_common())


def reproduced(reproductions: Sequence[Reproduction]) -> str:
    """How many published rows were measured, and with which verdicts."""
    measured = [one for one in reproductions if one.verdict != NOT_RUN]
    known = {one.row.id for one in measured}
    verdicts = Counter(one.verdict for one in measured).most_common()
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts) or "none"
    text = f"{count_of(len(measured), 'measurement')} of {count_of(len(known), 'published row')}, one a precision"
    return f"{text}: {counts}; not run: {len({one.row.id for one in reproductions} - known)}."


def _speeds(rows: Sequence[Row]) -> str:
    """Faster and slower are what an interval says that does not hold 1."""
    speeds = [row.speedup for row in rows if row.speedup]
    if not speeds:
        return "speed not compared with FP32"
    faster, slower = sum(speed.low > 1 for speed in speeds), sum(speed.high < 1 for speed in speeds)
    middle, least, most = (ratio(reduce([speed.value for speed in speeds])) for reduce in (statistics.median, min, max))
    text = f"faster than FP32 in {faster}, slower in {slower}, undecided in {len(speeds) - faster - slower}"
    emulated = sorted({row.arithmetic or "" for row in rows if row.emulated})
    emulation = f" (emulated: {'; '.join(emulated)}; it says nothing about {rows[0].precision} hardware)"
    return f"{text}, median {middle} from {least} to {most}{emulation if emulated else ''}"


def _verdicts(rows: Sequence[Row]) -> str:
    names = " or ".join(dict.fromkeys(row.metric.label for row in rows if row.metric)) or "accuracy"
    counts = Counter(row.verdict for row in rows)
    each = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    return f"{names}: {', '.join([*each, *([f'{counts[None]} without a verdict'] if counts[None] else [])])}"

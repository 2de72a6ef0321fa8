"""What all comparisons say together, in sentences: how much faster, at what cost, and what was reproduced."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reports.analysis.reproduction import ABOVE, BELOW, NOT_RUN, REPRODUCED, SCALED_DOWN, WITHIN_NOISE, Reproduction
from reports.analysis.statistics import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE
from reports.pages import formats as ratio
from reports.pages import table
from reports.pages.style import count_of
from reports.records.run import BASELINE

Comparison = Mapping[str, Any]
KINDS = {"cpu": "CPUs", "cuda": "GPUs"}
PLACES = {EQUIVALENT: "equivalent", INCONCLUSIVE: "inconclusive", BETTER: "better", WORSE: "worse"}

OTHERS = (WITHIN_NOISE, ABOVE, BELOW, SCALED_DOWN)


def conclusions(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence a mixed precision and kind of device; every figure is from the comparisons' rows.

    A CPU's speed-up says nothing about a GPU's, so that no median is taken over both.
    """
    found = []
    for kind in dict.fromkeys(map(table.kind_of_device, comparisons)):
        alike = [comparison for comparison in comparisons if table.kind_of_device(comparison) == kind]
        devices = _devices(alike)
        where = f"on {next(iter(devices))}" if len(devices) == 1 else f"on {KINDS.get(kind or '', 'machines')}"
        rows = [row for comparison in alike for row in comparison["rows"] if row["precision"] != BASELINE]
        for precision in dict.fromkeys(row["precision"] for row in rows):
            own = [row for row in rows if row["precision"] == precision]
            found.append(f"{precision} {_speed(own, where)}; {_quality(own)}.{_emulation(own)}")
    return found


def hardware(comparisons: Sequence[Comparison]) -> str:
    """On what the experiments ran, each device with the number of its experiments."""
    return "; ".join(f"{name} ({count})" for name, count in _devices(comparisons).most_common())


def reproduced(found: Iterable[Reproduction]) -> str:
    """How many published rows were measured, and with which verdicts."""
    found = list(found)
    measured = [one for one in found if one.verdict != NOT_RUN]
    counts = Counter(one.verdict for one in measured)
    known = {one.row["id"] for one in measured}
    missing = len({one.row["id"] for one in found} - known)
    not_run = f"; not run: {count_of(missing, 'published row')}" if missing else ""
    if not measured:
        return f"no published row was measured{not_run}."
    others = "".join(f", {counts[verdict]} {verdict}" for verdict in OTHERS if counts[verdict])
    return (
        f"{counts[REPRODUCED]} of {count_of(len(measured), 'measurement')} of {count_of(len(known), 'published row')}, "
        f"one for each precision of an experiment, are REPRODUCED{others}{not_run}."
    )


def _devices(comparisons: Sequence[Comparison]) -> Counter[str]:
    return Counter(table.name_of_device(comparison, "an unknown machine") for comparison in comparisons)


def _speed(rows: Sequence[Mapping[str, Any]], where: str) -> str:
    """Faster and slower are what an interval says that does not hold 1."""
    known = [row for row in rows if row["speedup"] is not None]
    if not known:
        return f"was not compared in speed with FP32 {where}"
    faster = sum(row["speedup_low"] > 1 for row in known)
    slower = sum(row["speedup_high"] < 1 for row in known)
    undecided = len(known) - faster - slower
    values = [row["speedup"] for row in known]
    middle, least, most = (ratio.excluding_one(of(values)) for of in (statistics.median, min, max))
    total = f"{len(rows)}" if len(known) == len(rows) else f"the {len(known)} whose speed was measured, of {len(rows)}"
    spread = f"median {middle}x, from {least}x to {most}x" if len(known) > 1 else f"{middle}x"
    return (
        f"trains faster than FP32 in {faster} of {total} experiment{'' if len(rows) == 1 else 's'} {where} ({spread}) "
        f"and slower in {slower}" + (f", with {undecided} undecided" if undecided else "")
    )


def _quality(rows: Sequence[Mapping[str, Any]]) -> str:
    metrics = {row["metric"] for row in rows if row["metric"]}
    name = "accuracy" if metrics <= {"eval/accuracy"} else "loss" if metrics == {"eval/loss"} else "accuracy or loss"
    counts = Counter(row["verdict"] for row in rows if row["verdict"])
    single = sum(row["seeds"] > 0 and not row["verdict"] for row in rows)
    missing = sum(not row["seeds"] for row in rows)
    rest = []
    if single:
        rest.append(
            "1 is a single run, which has no verdict"
            if single == 1
            else f"{single} are single runs, which have no verdict"
        )
    if missing:
        rest.append(f"{missing} {'has' if missing == 1 else 'have'} no result")
    if not counts:
        return f"{name} has no verdict: {' and '.join(rest)}"
    each = [f"{word} in {counts[verdict]}" for verdict, word in PLACES.items()]
    judged = f"{name} is {', '.join(each[:-1])} and {each[-1]} of the {counts.total()} with at least two seeds"
    return ", and ".join([judged, *rest])


def _emulation(rows: Sequence[Mapping[str, Any]]) -> str:
    emulated = [row for row in rows if table.emulated(row)]
    if not emulated:
        return ""
    precision, how = rows[0]["precision"], "; ".join(sorted({row["arithmetic"] for row in emulated}))
    some = f" in {len(emulated)} of them" if len(emulated) < len(rows) else ""
    return f" Its arithmetic{some} is emulated ({how}): that speed says nothing about {precision} hardware."

"""What is shown over all experiments: index.html in a browser, README.md with pictures on a code host."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from reports.analysis import calibration
from reports.analysis.published import configurations
from reports.analysis.reproduction import NOT_RUN, Reproduction, hours
from reports.analysis.statistics import SIGNIFICANCE
from reports.pages import intervals, table
from reports.pages.precisions import in_order
from reports.pages.published_table import RULE, about, published
from reports.pages.style import Page, Section
from reports.pages.text_table import MISSING, Table, number
from reports.records.comparison import VERDICTS, Comparison, Row
from reports.records.files import write_text
from reports.records.layout import BASELINE, REPORT

KINDS = {"cpu": "CPUs", "cuda": "GPUs"}
# Each with what it is sorted by, and whether the highest comes first.
TITLES = {
    "speed-up [95%]": (intervals.speedup, True),
    "difference, verdict": (intervals.quality, True),
    "saved for backward": (intervals.memory, False),
}


def write(
    out: Path,
    comparisons: Mapping[Path, Comparison],
    left_out: Mapping[str, str],
    reproductions: Sequence[Reproduction],
    rates: calibration.Rates,
) -> None:
    """index.html, README.md and figures/ in the folder `out`; `left_out` says why an experiment is in no table."""
    named, costs = {folder.name: comparison for folder, comparison in comparisons.items()}, hours(out / "results")
    every, charts = list(named.values()), intervals.overview(list(named.values()))
    opening = f"{len(every)} experiments on {devices(every)}; every figure is made by `python -m reports.build`."
    says = [*conclusions(every), *multiplicity(every), f"Published numbers: {reproduced(reproductions)}"]
    notes = [f"{name} is left out: {reason}" for name, reason in left_out.items()]
    not_run = []
    for name, config in configurations().items():
        if name not in named and not config.published:
            cost = f", {about(costs[name])} a run here" if name in costs else ""
            not_run.append(f"{name}: `bash scripts/compare.sh configs/{name}.yaml`{cost}")
    verdicts = Table(calibration.TITLES, [rate.cells for rate in rates.rows])

    def page(file: str) -> Page:
        link = f"results/{{}}/{file}"
        sections = [
            Section("Experiments", summary(named, link), [*notes, table.MEMORY]),
            Section("All together", notes=says, charts=charts),
            Section("Published against measured", published(reproductions, costs, link), [RULE]),
            Section("How often a verdict is wrong", verdicts, rates.notes),
            Section("Not run", notes=not_run),
        ]
        return Page("FP32 against mixed precision: results", [opening], sections)

    write_text(out / "index.html", page(REPORT).html())
    write_text(out / "README.md", page("results.md").markdown())
    for chart in charts:
        write_text(out / "figures" / f"{chart.name}.svg", chart.svg)


def summary(comparisons: Mapping[str, Comparison], link: str = "") -> Table:
    """A row an experiment: FP32's metric, and of each mixed precision speed, metric and memory against it."""
    precisions = in_order(row.precision for comparison in comparisons.values() for row in comparison.mixed_rows)
    columns = [(precision, title) for precision in precisions for title in TITLES]
    titles = ["experiment", "device", BASELINE, "margin", *map(" ".join, columns)]
    rows = []
    for name, comparison in comparisons.items():
        against = [text for precision in precisions for text in _against(comparison.row(precision))]
        fp32, judged = comparison.row(BASELINE), next((row for row in comparison.rows if row.margin), None)
        texts = (table.measure(fp32) if fp32 else MISSING, table.margin(judged) if judged else MISSING)
        rows.append([name, table.device(comparison), *texts, *against])
    orders = {"experiment": list(range(len(comparisons)))}
    orders |= {
        f"{precision} {title}": _places(comparisons.values(), precision, *TITLES[title]) for precision, title in columns
    }
    alignment = "ll".ljust(len(titles), "r")
    return Table(titles, rows, alignment, [link.format(name) for name in comparisons], orders if rows else {})


def _places(
    comparisons: Iterable[Comparison], precision: str, mark: Callable[[Row], intervals.Mark | None], highest_first: bool
) -> list[int]:
    """The place of each comparison by what `mark` is of the precision; those that have none stand last."""
    rows = [comparison.row(precision) for comparison in comparisons]
    marks = [mark(row) if row else None for row in rows]
    values = [math.inf if one is None else -one.value if highest_first else one.value for one in marks]
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(place) for place in range(len(values))]


def _against(row: Row | None) -> list[str]:
    """A mixed precision's texts below `TITLES`."""
    if row is None:
        return [MISSING] * len(TITLES)
    judged = f"{table.difference(row)} {table.verdict(row)}" if row.seeds else table.measure(row)
    return [table.speedup(row), judged, number(row.saved_ratio, 2, "x")]


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


def multiplicity(comparisons: Sequence[Comparison]) -> list[str]:
    """How many of all verdicts may be wrong by chance; nothing where there are none."""
    count = sum(row.verdict is not None for comparison in comparisons for row in comparison.mixed_rows)
    wrong = f"may be wrong by chance in {SIGNIFICANCE:.0%} of cases, about {SIGNIFICANCE * count:.2g} of {count} here"
    return [f"Each verdict is a test of its own: it {wrong}."] if count else []


def devices(comparisons: Sequence[Comparison]) -> str:
    """What the experiments ran on, each device with the number of its experiments."""
    return "; ".join(f"{name} ({count})" for name, count in Counter(map(table.device, comparisons)).most_common())


def reproduced(reproductions: Sequence[Reproduction]) -> str:
    """How many published rows were measured, and with which verdicts."""
    measured = [one for one in reproductions if one.verdict != NOT_RUN]
    rows, known = ({one.row.id for one in group} for group in (reproductions, measured))
    verdicts = Counter(one.verdict for one in measured).most_common()
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts) or "none"
    return f"{len(known)} of {len(rows)} were measured; verdicts by number and precision: {counts}."


def _speeds(rows: Sequence[Row]) -> str:
    """Faster and slower are what an interval over process starts says that does not hold 1."""
    speeds = [row.speedup for row in rows if row.speedup]
    if not speeds:
        return "speed not compared with FP32"
    values, known = [speed.value for speed in speeds], [speed.interval for speed in speeds if speed.interval]
    faster, slower = sum(interval.low > 1 for interval in known), sum(interval.high < 1 for interval in known)
    counts = f"faster than FP32 in {faster} of {len(known)} experiments and slower in {slower}" if known else ""
    if alone := len(speeds) - len(known):
        counts += f"{', ' if known else 'speed '}measured in one process start, without an interval, in {alone}"
    spread = f"median {statistics.median(values):.3g}x, from {min(values):.3g}x to {max(values):.3g}x"
    emulated = "; ".join(sorted({row.arithmetic or "" for row in rows if row.emulated}))
    return f"{counts} ({spread}){f', emulated ({emulated}), not as on hardware for it' if emulated else ''}"


def _verdicts(rows: Sequence[Row]) -> str:
    counts = Counter(row.verdict for row in rows)
    each = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]]
    each += [f"{counts[None]} without a verdict"] if counts[None] else []
    return f"{' or '.join(dict.fromkeys(row.metric.label for row in rows if row.metric))}: {', '.join(each)}"

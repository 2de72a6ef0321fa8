"""What comparisons say, in sentences: one comparison's answers, and what all of them say together."""

import statistics
from collections import Counter
from collections.abc import Sequence

from reports.analysis.reproduction import NOT_RUN, Reproduction
from reports.pages import formats, table
from reports.pages.formats import count_of
from reports.pages.precisions import in_order
from reports.records.comparison import VERDICTS, Comparison, Interval, Row
from reports.records.config import Experiment
from reports.records.layout import BASELINE
from reports.records.summary import FINISHED

KINDS = {"cpu": "CPU", "cuda": "GPU"}


def answers(comparison: Comparison, config: Experiment | None) -> list[str]:
    """One sentence a mixed precision, and one on FP32 where it is incomplete; `config` is that of the runs."""
    baseline, trained = comparison.row(BASELINE), config.trained_on if config else comparison.experiment
    sentences = [_answer(row, baseline, trained, len(comparison.seeds)) for row in comparison.mixed_rows]
    if not sentences:
        sentences.append("only FP32 was trained, so there is nothing to compare it with.")
    if baseline is None or baseline.status != FINISHED:
        state = "is incomplete" if baseline and baseline.seeds else "has no result to compare with"
        sentences.append(f"FP32 {state}: {baseline.reason if baseline else 'it was not asked for'}.")
    sentences[0] = f"On this {KINDS.get(_kind(comparison), 'machine')} ({table.device(comparison)}), {sentences[0]}"
    return sentences


def conclusions(comparisons: Sequence[Comparison]) -> list[str]:
    """A sentence a mixed precision and kind of device, since a CPU's speed-up says nothing about a GPU's."""
    sentences = []
    for kind in dict.fromkeys(map(_kind, comparisons)):
        alike = [comparison for comparison in comparisons if _kind(comparison) == kind]
        names = {table.device(comparison) for comparison in alike}
        where = f"on {names.pop()}" if len(names) == 1 else f"on {KINDS.get(kind, 'machine')}s"
        rows = [row for comparison in alike for row in comparison.mixed_rows]
        for precision in in_order(row.precision for row in rows):
            own = [row for row in rows if row.precision == precision]
            sentences.append(f"{precision} {_speeds(own, where)}; {_qualities(own)}.{_emulation(own)}")
    return sentences


def devices(comparisons: Sequence[Comparison]) -> str:
    """What the experiments ran on, each device with the number of its experiments."""
    return "; ".join(f"{name} ({count})" for name, count in Counter(map(table.device, comparisons)).most_common())


def reproduced(reproductions: Sequence[Reproduction]) -> str:
    """How many published rows were measured, and with which verdicts."""
    measured = [one for one in reproductions if one.verdict != NOT_RUN]
    known = {one.row.id for one in measured}
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in Counter(one.verdict for one in measured).most_common()
    )
    text = f"{count_of(len(measured), 'measurement')} of {count_of(len(known), 'published row')}, one a precision"
    missing = len({one.row.id for one in reproductions} - known)
    not_run = f"; not run: {count_of(missing, 'published row')}" if missing else ""
    return f"{f'{text}: {counts}' if measured else 'no published row was measured'}{not_run}."


def _kind(comparison: Comparison) -> str:
    return (comparison.environment and comparison.environment.device.type) or ""


def _pace(speedup: Interval) -> str:
    """Faster and slower are what an interval says that does not hold 1."""
    return "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "undecided"


def _answer(row: Row, baseline: Row | None, trained: str, seeds: int) -> str:
    if not row.seeds or row.metric is None:
        return f"{row.precision} has no result: {row.status}, {row.reason}."
    speed = "at a speed that was not compared with FP32's"
    if row.speedup:
        words = {"undecided": "neither faster nor slower than FP32 for certain"}
        pace = _pace(row.speedup)
        speed = f"{words.get(pace, f'{pace} than FP32')}, at {table.speedup(row).text} its speed"
    memory = "the memory saved for backward was not compared"
    if row.saved_ratio is not None:
        memory = f"{row.saved_ratio:.2f}x the memory saved for backward"
        memory += ", which is more than FP32 saves" if row.saved_ratio > 1 else ""
    fp32 = formats.measured(row.metric, baseline.mean) if baseline and baseline.seeds else "a missing FP32"
    pairs = row.pairs if baseline and baseline.seeds else row.seeds
    over = "a single run each" if seeds == 1 else count_of(pairs) if pairs == seeds else f"{pairs} of {seeds} seeds"
    quality = f"{row.metric.label} {formats.measured(row.metric, row.mean)} against {fp32} over {over}"
    verdict = f": {row.verdict} at a margin of {formats.margin(row)}" if row.verdict else ""
    sentence = f"{row.precision} trains {trained} {speed}, with {memory}; {quality}, difference "
    sentence += f"{table.difference(row).text}{verdict}."
    return sentence if row.status == FINISHED else f"{sentence} Incomplete: {row.reason}."


def _speeds(rows: Sequence[Row], where: str) -> str:
    known = [row.speedup for row in rows if row.speedup]
    if not known:
        return f"was not compared in speed with FP32 {where}"
    counts = Counter(map(_pace, known))
    values = [one.value for one in known]
    middle, least, most = (formats.ratio(reduce(values)) for reduce in (statistics.median, min, max))
    total = f"{len(rows)}" if len(known) == len(rows) else f"the {len(known)} whose speed was measured, of {len(rows)}"
    spread = f"median {middle}, from {least} to {most}" if len(known) > 1 else middle
    undecided = f", with {counts['undecided']} undecided" if counts["undecided"] else ""
    return (
        f"trains faster than FP32 in {counts['faster']} of {total} experiment{'' if len(rows) == 1 else 's'} {where} "
        f"({spread}) and slower in {counts['slower']}{undecided}"
    )


def _qualities(rows: Sequence[Row]) -> str:
    name = " or ".join(dict.fromkeys(row.metric.label for row in rows if row.metric)) or "accuracy"
    counts = Counter(row.verdict for row in rows if row.verdict)
    without = len(rows) - counts.total()
    each = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    judged = f"{name} in the {counts.total()} with at least two seeds: {each}" if counts else name
    return judged + (f"; without a verdict for want of seeds: {without}" if without else "")


def _emulation(rows: Sequence[Row]) -> str:
    emulated = [row for row in rows if row.emulated]
    if not emulated:
        return ""
    some = f" in {len(emulated)} of them" if len(emulated) < len(rows) else ""
    how = "; ".join(sorted({row.arithmetic or "" for row in emulated}))
    return f" Its arithmetic{some} is emulated ({how}): that speed says nothing about {rows[0].precision} hardware."

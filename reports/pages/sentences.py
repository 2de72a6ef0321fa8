"""What comparisons say, in sentences: one comparison's answers, and what all of them say together."""

import statistics
from collections import Counter
from collections.abc import Sequence

from reports.analysis.reproduction import ABOVE, BELOW, NOT_RUN, REPRODUCED, SCALED_DOWN, WITHIN_NOISE, Reproduction
from reports.pages import formats, table
from reports.pages.formats import count_of
from reports.pages.precisions import in_order
from reports.records.comparison import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, Comparison, Row
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
    if baseline is None or not baseline.seeds:
        sentences.append(
            f"FP32 has no result to compare with: {baseline.reason if baseline else 'it was not asked for'}."
        )
    elif baseline.status != FINISHED:
        sentences.append(f"FP32 is incomplete: {baseline.reason}.")
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
    counts = Counter(one.verdict for one in measured)
    known = {one.row.id for one in measured}
    missing = len({one.row.id for one in reproductions} - known)
    not_run = f"; not run: {count_of(missing, 'published row')}" if missing else ""
    if not measured:
        return f"no published row was measured{not_run}."
    others = [f", {counts[name]} {name}" for name in (WITHIN_NOISE, ABOVE, BELOW, SCALED_DOWN) if counts[name]]
    return (
        f"{counts[REPRODUCED]} of {count_of(len(measured), 'measurement')} of {count_of(len(known), 'published row')}, "
        f"one for each precision of an experiment, are REPRODUCED{''.join(others)}{not_run}."
    )


def _kind(comparison: Comparison) -> str:
    return (comparison.environment and comparison.environment.device.type) or ""


def _answer(row: Row, baseline: Row | None, trained: str, seeds: int) -> str:
    if not row.seeds:
        return f"{row.precision} has no result: {row.status}, {row.reason}."
    memory = "with the memory saved for backward not compared"
    if row.saved_ratio is not None:
        more = ", which is more than FP32 saves" if row.saved_ratio > 1 else ""
        memory = f"with {row.saved_ratio:.2f}x the memory saved for backward{more}"
    sentence = f"{row.precision} trains {trained} {_speed(row)}, {memory}; {_quality(row, baseline, seeds)}."
    if row.emulated:
        sentence += f" Its arithmetic here ({row.arithmetic}) says nothing about the speed of {row.precision} hardware."
    return sentence if row.status == FINISHED else f"{sentence} Incomplete: {row.reason}."


def _speed(row: Row) -> str:
    if row.speedup is None:
        return "at a speed that was not compared with FP32's"
    cell = table.speedup(row)
    if row.speedup.low <= 1 <= row.speedup.high:
        return f"at {cell.figure} the speed of FP32 {cell.ends}, an interval that holds 1"
    return f"{'faster' if row.speedup.low > 1 else 'slower'} than FP32, at {cell.figure} its speed {cell.ends}"


def _quality(row: Row, baseline: Row | None, seeds: int) -> str:
    assert row.metric
    has_fp32 = baseline is not None and baseline.seeds > 0
    count, noun = (row.pairs, "pair") if has_fp32 and row.pairs != row.seeds else (row.seeds, "seed")
    over = "in a single run each" if seeds == 1 else f"over {count_of(count, noun)}"
    over += f" of {seeds}" if count < seeds else ""
    fp32 = formats.measured(row.metric, baseline.mean) if baseline and has_fp32 else "a missing FP32"
    # Over pairs alone, so with runs missing it is not the difference of the two means.
    paired = "" if baseline and row.seeds == baseline.seeds else "paired "
    means = f"{formats.measured(row.metric, row.mean)} against {fp32}"
    figures = f"{paired}difference {table.difference(row).text}"
    if row.verdict is None:
        return f"{row.metric.label} {means} {over} ({figures})"
    limit = formats.margin(row)
    words = {EQUIVALENT: f"equivalent within {limit}", INCONCLUSIVE: f"inconclusive at a margin of {limit}"}
    more = f"; {table.more_seeds(row)}" if row.verdict == INCONCLUSIVE else ""
    return f"{row.metric.label} {words.get(row.verdict, row.verdict.lower())} {over} ({means}, {figures}{more})"


def _speeds(rows: Sequence[Row], where: str) -> str:
    """Faster and slower are what an interval says that does not hold 1."""
    known = [row.speedup for row in rows if row.speedup]
    if not known:
        return f"was not compared in speed with FP32 {where}"
    faster, slower = sum(one.low > 1 for one in known), sum(one.high < 1 for one in known)
    values = [one.value for one in known]
    middle, least, most = (formats.ratio(reduce(values)) for reduce in (statistics.median, min, max))
    total = f"{len(rows)}" if len(known) == len(rows) else f"the {len(known)} whose speed was measured, of {len(rows)}"
    spread = f"median {middle}, from {least} to {most}" if len(known) > 1 else middle
    undecided = len(known) - faster - slower
    return (
        f"trains faster than FP32 in {faster} of {total} experiment{'' if len(rows) == 1 else 's'} {where} ({spread}) "
        f"and slower in {slower}" + (f", with {undecided} undecided" if undecided else "")
    )


def _qualities(rows: Sequence[Row]) -> str:
    name = " or ".join(dict.fromkeys(row.metric.label for row in rows if row.metric)) or "accuracy"
    counts = Counter(row.verdict for row in rows if row.verdict)
    single = sum(row.seeds > 0 and not row.verdict for row in rows)
    missing = sum(not row.seeds for row in rows)
    rest = [f"{count_of(single, 'experiment')} without a verdict for want of seeds"] if single else []
    rest += [f"{count_of(missing, 'experiment')} without a result"] if missing else []
    if not counts:
        return f"{name}: {', '.join(rest)}"
    each = ", ".join(f"{counts[word]} {word.lower()}" for word in (EQUIVALENT, INCONCLUSIVE, BETTER, WORSE))
    judged = f"{name} of the {counts.total()} with at least two seeds: {each}"
    return "; ".join([judged, *rest])


def _emulation(rows: Sequence[Row]) -> str:
    emulated = [row for row in rows if row.emulated]
    if not emulated:
        return ""
    some = f" in {len(emulated)} of them" if len(emulated) < len(rows) else ""
    how = "; ".join(sorted({row.arithmetic or "" for row in emulated}))
    return f" Its arithmetic{some} is emulated ({how}): that speed says nothing about {rows[0].precision} hardware."

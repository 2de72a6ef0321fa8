"""From the run folders of one experiment to its comparison: one row a precision, every figure from a record."""

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from reports.analysis import looks
from reports.analysis.memory import read_short_runs
from reports.analysis.run import read_run
from reports.analysis.speed import read_benchmark, samples_per_second, slower_in, speedup_of
from reports.analysis.statistics import Judgement, judge, mean, median, population, standard_deviation
from reports.records import layout
from reports.records.comparison import Comparison, Interval, Look, MetricResult, Plan, Row, RunResult
from reports.records.files import read_record
from reports.records.identity import PAIRED, SHARED, Identity, different, not_recorded, recorded_identity
from reports.records.metric import Metric
from reports.records.summary import FAILED, FINISHED

JUDGED = ("device", "metric", "eval_samples")  # of the summaries, equal for all runs of a comparison
PEAK = ("memory/peak_allocated_mib", "memory/peak_rss_mib")  # on CUDA, on a CPU
SAVED = ("memory/saved_for_backward_mib",)
Pairs = Sequence[tuple[RunResult, RunResult]]  # each run with the FP32 one of its seed


def compare(folder: Path, plan: Plan, publish: bool = False) -> Comparison:
    """The comparison of the runs that `plan` names in the experiment's `folder`, and of its benchmark.

    A run that is missing, failed, damaged or not paired with the others says so, and counts in no figure; so does,
    to `publish` the figures, a smoke run and one of a source with uncommitted changes.
    """
    runs = [read_run(folder, precision, seed, publish) for precision in plan.precisions for seed in plan.seeds]
    for seed in plan.seeds:
        pair = [run for run in runs if run.seed == seed]
        _leave_out_unequal(pair, (*PAIRED, *SHARED), f"the precisions of seed {seed}")
    _leave_out_unequal(runs, SHARED, "the seeds")
    finished = [run for run in runs if run.finished]
    environments = [run.environment for run in finished if run.environment]
    sources = [source for environment in environments for source in environment.sources]
    benchmark, speed_fault = read_benchmark(folder / layout.BENCHMARK, finished, publish)
    short_runs, memory_fault = read_short_runs(folder / layout.MEMORY, finished, publish)
    comparison = Comparison(
        **plan.model_dump(),
        experiment=folder.name,
        smoke=any(run.summary.smoke for run in runs),
        rows=[],
        runs=runs,
        benchmark=benchmark,
        short_runs=short_runs,
        environment=next(iter(environments), None),
        commits=sorted({source.commit for source in sources if source.commit}),
        committed=all(source.committed for source in (*sources, *(benchmark.sources if benchmark else []))),
        torch=sorted({str(environment.versions.get("torch")) for environment in environments}),
        not_recorded=not_recorded(map(_identity, finished)),
    )
    pairs = {precision: _pairs(comparison, precision) for precision in plan.precisions if precision != layout.BASELINE}
    judged = {precision: len(own) for precision, own in pairs.items() if len(own) > 1 and not plan.partial}
    comparison.looks = looks.allowed_for(plan, judged)
    comparison.rows = [_row(comparison, precision, speed_fault, memory_fault) for precision in plan.precisions]
    now = [
        Look(precision=row.precision, pairs=row.pairs, margin=plan.margin, verdict=row.verdict)
        for row in comparison.rows
        if row.verdict
    ]
    comparison.looks_taken = looks.recorded(plan.looks_taken, now)
    return comparison


def comparisons_in(results: Path) -> tuple[dict[Path, Comparison], dict[str, str]]:
    """The comparisons of the folders in `results`, made anew to be published, and by name why others are left out."""
    comparisons, left_out = {}, {}
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        path = folder / layout.COMPARISON
        if not path.exists():
            left_out[folder.name] = "no comparison.json: its comparison did not end"
            continue
        try:
            plan = read_record(Plan, path)
            if plan.partial:
                raise ValueError(f"{path}: is of a part of its runs: {plan.partial}")
            counted = {layout.run_name(precision, seed) for precision in plan.precisions for seed in plan.seeds}
            if others := sorted({run.parent.name for run in folder.glob(f"*-s*/{layout.SUMMARY}")} - counted):
                raise ValueError(f"{path}: does not count {', '.join(others)}")
            comparisons[folder] = compare(folder, plan, publish=True)
        except ValueError as error:
            left_out[folder.name] = str(error).replace(f"{results}/", "")
    return comparisons, left_out


def _identity(run: RunResult) -> Identity:
    return recorded_identity(run.summary, run.environment)


def _leave_out_unequal(runs: Sequence[RunResult], fields: Sequence[str], where: str) -> None:
    """Let none of the finished `runs` count where they differ in `fields` of their identity, or were judged apart."""
    finished = [run for run in runs if run.finished]
    keys = [key for key in JUDGED if len({getattr(run.summary, key) for run in finished}) > 1]
    if keys := keys or different([_identity(run) for run in finished], fields):
        for run in finished:
            run.status, run.reason = FAILED, f"not paired: {', '.join(keys)} differs between {where}"


def _pairs(comparison: Comparison, precision: str) -> Pairs:
    """The finished runs of `precision` whose FP32 run is finished too."""
    baseline = {run.seed: run for run in comparison.runs_of(layout.BASELINE) if run.finished}
    runs = (run for run in comparison.runs_of(precision) if run.finished)
    return [(run, baseline[run.seed]) for run in runs if run.seed in baseline]


def _row(comparison: Comparison, precision: str, speed_fault: str | None, memory_fault: str | None) -> Row:
    runs, benchmark = comparison.runs_of(precision), comparison.benchmark
    done, broken = [run for run in runs if run.finished], [run for run in runs if not run.finished]
    pairs = _pairs(comparison, precision)
    compared = [] if precision == layout.BASELINE else pairs
    speed = samples_per_second(benchmark, precision)
    reasons = [f"seed {run.seed}: {run.reason}" for run in broken]
    fault = speed_fault or ("its speed was not measured" if speed is None else None)
    if fault and not (comparison.partial and speed is None):  # a comparison that was stopped has not come to it yet
        reasons.append(fault)
    effective = done[0].summary.precision.effective if done else None
    if memory_fault and effective and effective.emulated:
        reasons.append(memory_fault)
    skipped = [run.summary.skipped_steps for run in done if run.summary.skipped_steps is not None]
    row = Row(
        experiment=comparison.experiment,
        precision=precision,
        seeds=len(done),
        pairs=len(compared),
        looks=comparison.looks,
        samples_per_sec=speed,
        speedup=speedup_of(benchmark, precision),
        slower_in=slower_in(benchmark, precision),
        peak_memory_mib=median(_figures(done, *PEAK)),
        peak_ratio=_ratio(pairs, *PEAK),
        saved_for_backward_mib=median(_figures(done, *SAVED)),
        saved_ratio=_ratio(pairs, *SAVED),
        skipped_steps=sum(skipped) if done and len(skipped) == len(done) else None,
        train_seconds=mean([run.train_seconds for run in done if run.train_seconds is not None]),
        device=next((run.summary.device for run in runs if run.summary.device), None),
        status=broken[0].status if broken else FAILED if reasons else FINISHED,
        reason="; ".join(reasons) or None,
        arithmetic=effective.arithmetic if effective else None,
    )
    if row.emulated and comparison.short_runs and (peak := comparison.short_runs.peak(precision)):
        row.peak_memory_mib, row.peak_ratio = peak, comparison.short_runs.ratio(precision)
    if done:
        summary = done[0].summary
        deciding, *others = (_result(metric, done, compared) for metric in summary.declared_metrics)
        assert deciding is not None  # every finished run has it
        row.metric, row.mean, row.sd, row.difference = deciding.metric, deciding.mean, deciding.sd, deciding.difference
        row.others = [other for other in others if other]
        row.eval_samples = summary.eval_samples
        row.margin = _margin(deciding.metric, compared, comparison) if compared else None
        if not comparison.partial and (judged := _judge(deciding.metric, compared, comparison)):
            row.interval, row.verdict = judged.difference, judged.verdict
            row.seeds_needed = judged.seeds_needed()
            row.population = _population(deciding.metric, compared, judged)
    return row


def _judge(metric: Metric, pairs: Pairs, plan: Plan) -> Judgement | None:
    """The verdict over pairs; None for fewer than two.

    One sample's share of the range is the smallest step in which a metric with a range moves.
    """
    if len(pairs) < 2:
        return None
    samples = pairs[0][0].summary.eval_samples
    resolution = metric.width / samples if metric.width and samples else 0.0
    margin = _margin(metric, pairs, plan)
    return judge(_differences(pairs, metric.key), margin, metric.higher_is_better, resolution, plan.looks)


def _margin(metric: Metric, pairs: Pairs, plan: Plan) -> float:
    """In the metric's unit: a share of its range, or of FP32's mean where the range is open."""
    scale = metric.width or abs(statistics.fmean(_figures((run for _, run in pairs), metric.key)))
    return plan.margin * scale


def _population(metric: Metric, pairs: Pairs, judged: Judgement) -> Interval | None:
    """The interval of the difference on new samples; None unless every run records which samples it gets right."""
    right = [[run.summary.right_samples() for run in pair] for pair in pairs]
    differences = [[int(own) - int(other) for own, other in zip(*pair, strict=True)] for pair in right if all(pair)]
    if metric.width is None or len(differences) < len(pairs) or len({len(one) for one in differences}) > 1:
        return None
    return population(differences, metric.width, judged)


def _result(metric: Metric, done: Sequence[RunResult], pairs: Pairs) -> MetricResult | None:
    """A metric over runs and pairs; None unless every run has a finite one."""
    values = _figures(done, metric.key)
    if len(values) != len(done) or not all(math.isfinite(value) and not metric.impossible(value) for value in values):
        return None
    difference = mean(_differences(pairs, metric.key))
    return MetricResult(
        metric=metric, mean=statistics.fmean(values), sd=standard_deviation(values), difference=difference
    )


def _ratio(pairs: Pairs, *names: str) -> float | None:
    """The median over seeds of the ratio to FP32: a batch of other texts needs other memory."""
    return median([own / other for own, other in _both(pairs, *names) if other])


def _differences(pairs: Pairs, name: str) -> list[float]:
    return [own - other for own, other in _both(pairs, name)]


def _both(pairs: Pairs, *names: str) -> list[tuple[float, float]]:
    """The figures of the pairs in which both runs have one."""
    figures = [_figures(pair, *names) for pair in pairs]
    return [(both[0], both[1]) for both in figures if len(both) == 2]


def _figures(runs: Iterable[RunResult], *names: str) -> list[float]:
    """The first of the final figures `names`, of the runs that have one."""
    values = (run.summary.figure(*names) for run in runs)
    return [value for value in values if value is not None]

"""From the run folders of one experiment to its comparison: one row a precision, every figure from a record."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reports.analysis.run import read_run
from reports.analysis.speed import drift_of, read_benchmark, samples_per_second, slower_in, speedup_of
from reports.analysis.statistics import Judgement, judge, mean, standard_deviation
from reports.records import layout
from reports.records.benchmark import Benchmark
from reports.records.comparison import Comparison, MetricResult, Plan, Row, RunResult
from reports.records.config import departures, read_config
from reports.records.environment import Environment, read_environment
from reports.records.files import read_record
from reports.records.metric import Metric
from reports.records.summary import FAILED, FINISHED

# Equal for all precisions of a seed: otherwise the runs are no pair.
PAIRED = ("initial_weights_sha256", "data_order_sha256")
# Equal for all runs of a comparison.
SHARED = ("config_sha256", "device", "metric", "eval_samples")
Pairs = Sequence[tuple[RunResult, RunResult]]  # each run with the FP32 one of its seed


def compare(folder: Path, plan: Plan, publish: bool = False) -> Comparison:
    """The comparison of the runs that `plan` names in `folder`, and of its benchmark.

    A run that is missing, failed, damaged or not paired with the others says so, and counts in no figure; so does,
    to `publish` the figures, a smoke run and one of a source with uncommitted changes.
    """
    runs = [read_run(folder, precision, seed, publish) for precision in plan.precisions for seed in plan.seeds]
    for seed in plan.seeds:
        pair = [run for run in runs if run.seed == seed]
        _leave_out_unequal(pair, (*PAIRED, *SHARED), f"the precisions of seed {seed}")
    _leave_out_unequal(runs, SHARED, "the seeds")
    environments = [read_environment(folder / run.name / layout.ENVIRONMENT) for run in runs if run.finished]
    _leave_out_copies([run for run in runs if run.finished], environments)
    benchmark, why_unmeasured = read_benchmark(folder / layout.BENCHMARK, runs, publish)
    experiment = next((run.experiment for run in runs if run.experiment), folder.name)
    known = [environment for environment in environments if environment]
    sources = [source for environment in known for source in environment.sources]
    table = _Table(experiment, runs, benchmark, why_unmeasured, plan)
    return Comparison(
        **plan.model_dump(),
        experiment=experiment,
        smoke=any(run.smoke for run in runs),
        rows=[table.row(precision) for precision in plan.precisions],
        runs=runs,
        benchmark=benchmark,
        environment=known[0] if known else None,
        commits=sorted({source.commit for source in sources if source.commit}),
        committed=all(source.committed for source in (*sources, *([benchmark.git] if benchmark else []))),
        torch=sorted({str(environment.versions.get("torch")) for environment in known}),
    )


def recorded(folder: Path) -> Comparison | None:
    """The comparison in `folder`, made anew from its run records to be published; None where there is none.

    Raises ValueError naming a comparison.json that is damaged, does not count all runs beside it, or has another
    margin than their configuration.
    """
    path = folder / layout.COMPARISON
    if not path.exists():
        return None
    plan = read_record(Plan, path)
    counted = {layout.run_name(precision, seed) for precision in plan.precisions for seed in plan.seeds}
    if others := sorted({run.parent.name for run in folder.glob(f"*-s*/{layout.SUMMARY}")} - counted):
        raise ValueError(f"{path}: does not count {', '.join(others)}")
    comparison = compare(folder, plan, publish=True)
    _check_configurations(folder, comparison)
    return comparison


def comparisons_in(results: Path) -> tuple[dict[Path, Comparison], dict[str, str]]:
    """The comparisons of the folders in `results`, and by name why others are left out."""
    comparisons, left_out = {}, {}
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        try:
            comparison = recorded(folder)
        except ValueError as error:
            left_out[folder.name] = str(error).replace(f"{results}/", "")
            continue
        if comparison is None:
            left_out[folder.name] = "no comparison.json: its comparison did not end"
        else:
            comparisons[folder] = comparison
    return comparisons, left_out


@dataclass(frozen=True)
class _Table:
    """Makes the rows of one comparison."""

    experiment: str
    runs: Sequence[RunResult]
    benchmark: Benchmark | None
    why_unmeasured: str | None
    plan: Plan

    @cached_property
    def baseline(self) -> dict[int, RunResult]:
        """The finished FP32 runs by seed."""
        return {run.seed: run for run in self.runs if run.precision == layout.BASELINE and run.finished}

    def row(self, precision: str) -> Row:
        runs = [run for run in self.runs if run.precision == precision]
        done = [run for run in runs if run.finished]
        pairs = [] if precision == layout.BASELINE else self._pairs(done)
        metrics = done[0].metrics if done else []
        measured = self.benchmark if self.benchmark and precision in self.benchmark.seconds else None
        why_unmeasured = None if measured else self.why_unmeasured or "its speed was not measured"
        broken = [run for run in runs if not run.finished]
        reasons = [f"seed {run.seed}: {run.reason}" for run in broken]
        judged = self._judge(metrics[0], pairs) if metrics else None
        return Row(
            experiment=self.experiment,
            precision=precision,
            seeds=len(done),
            pairs=len(pairs),
            metric=metrics[0] if metrics else None,
            mean=mean(_values(done)),
            sd=standard_deviation(_values(done)),
            difference=mean(_differences(pairs)),
            interval=judged.difference if judged else None,
            margin=judged.margin if judged else None,
            verdict=judged.verdict if judged else None,
            looks=self.plan.looks,
            seeds_needed=judged.seeds_needed if judged else None,
            others=[result for metric in metrics[1:] if (result := _other(metric, done, pairs))],
            samples_per_sec=samples_per_second(measured, precision) if measured else None,
            speedup=speedup_of(measured, precision) if measured else None,
            drift=drift_of(measured, precision) if measured else None,
            slower_in=slower_in(measured, precision) if measured else None,
            peak_memory_mib=_largest(run.peak_memory_mib for run in done),
            peak_ratio=self._ratio(done, "peak_memory_mib"),
            saved_for_backward_mib=_largest(run.saved_for_backward_mib for run in done),
            saved_ratio=self._ratio(done, "saved_for_backward_mib"),
            skipped_steps=_total(run.skipped_steps for run in done),
            train_seconds=mean([run.train_seconds for run in done if run.train_seconds is not None]),
            device=next((run.device for run in done), None),
            status=broken[0].status if broken else FAILED if why_unmeasured else FINISHED,
            reason="; ".join([*reasons, *([why_unmeasured] if why_unmeasured else [])]) or None,
            arithmetic=next((run.arithmetic for run in done), None),
        )

    def _judge(self, metric: Metric, pairs: Pairs) -> Judgement | None:
        """The verdict over pairs; None for fewer than two.

        The margin is a share of the metric's range, or of FP32's mean where the range is open. One sample's share
        of the range is the smallest step in which such a metric moves.
        """
        if len(pairs) < 2:
            return None
        margin, resolution = self.plan.margin, 0.0
        if metric.width is None:
            margin *= abs(mean(_values([baseline for _, baseline in pairs])) or 0.0)
        else:
            margin *= metric.width
            resolution = metric.width / pairs[0][0].eval_samples if pairs[0][0].eval_samples else 0.0
        return judge(_differences(pairs), margin, metric.higher_is_better, resolution, self.plan.looks)

    def _ratio(self, runs: Sequence[RunResult], key: str) -> float | None:
        """The median over seeds of the ratio to FP32: a batch of other texts needs other memory."""
        pairs = [(getattr(run, key), getattr(baseline, key)) for run, baseline in self._pairs(runs)]
        ratios = [own / other for own, other in pairs if own is not None and other]
        return statistics.median(ratios) if ratios else None

    def _pairs(self, runs: Sequence[RunResult]) -> Pairs:
        return [(run, self.baseline[run.seed]) for run in runs if run.seed in self.baseline]


def _values(runs: Iterable[RunResult]) -> list[float]:
    return [run.value for run in runs if run.value is not None]


def _differences(pairs: Pairs) -> list[float]:
    both = ((run.value, baseline.value) for run, baseline in pairs)
    return [value - reference for value, reference in both if value is not None and reference is not None]


def _other(metric: Metric, done: Sequence[RunResult], pairs: Pairs) -> MetricResult | None:
    """A further metric; None unless every run has it."""
    values = [run.others[metric.key] for run in done if metric.key in run.others]
    if len(values) != len(done) or not values:
        return None
    differences = [
        run.others[metric.key] - baseline.others[metric.key] for run, baseline in pairs if metric.key in baseline.others
    ]
    return MetricResult(
        metric=metric, mean=statistics.fmean(values), sd=standard_deviation(values), difference=mean(differences)
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _total(values: Iterable[int | None]) -> int | None:
    """The sum where there are runs and every one has a value."""
    values = list(values)
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _leave_out_unequal(runs: Sequence[RunResult], keys: Sequence[str], where: str) -> None:
    finished = [run for run in runs if run.finished]
    for key in keys:
        if any(getattr(run, key) != getattr(finished[0], key) for run in finished):
            for run in finished:
                run.status, run.reason = FAILED, f"not paired: {key} differs between {where}"


def _leave_out_copies(runs: Sequence[RunResult], environments: Sequence[Environment | None]) -> None:
    first: dict[str, RunResult] = {}
    for run, environment in zip(runs, environments, strict=True):
        identity = environment.run_id if environment else None
        other = first.setdefault(identity, run) if identity else run
        if other is not run:
            for copy in (run, other):
                copy.status, copy.reason = FAILED, f"{other.name} and {run.name} are one run, {identity}"


def _check_configurations(folder: Path, comparison: Comparison) -> None:
    """Raise ValueError where the margin, or the recipe of one run, is not that of the others."""
    configs = {run.name: read_config(folder / run.name / layout.CONFIG) for run in comparison.runs if run.finished}
    first = next(iter(configs), "")
    for name, config in configs.items():
        if config.margin != comparison.margin:
            margins = f"the margin {comparison.margin:g}, and the config.yaml of {name} has {config.margin:g}"
            raise ValueError(f"{folder / layout.COMPARISON}: has {margins}")
        if changed := departures(config, configs[first]):
            raise ValueError(f"{folder / name / layout.CONFIG}: is not that of {first}: {', '.join(changed)}")

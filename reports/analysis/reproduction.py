"""Published numbers against ours; `python -m reports.reproduce` lists them with their verdicts.

The rule, for the runs of one precision, measured the way the source selects its figure (`selection` in
published.csv: the last epoch, the best one, or early stopping; where the source does not state it, the last
evaluation is taken):

- REPRODUCED: the mean over seeds is within the margin of the published figure: 0.5% of the metric's range, as 0.5
  points of an accuracy or an error, and 1% of a figure without limits, as a loss.
- WITHIN NOISE: it is not, but at least 3 runs were measured and the published figure lies in the 95% prediction
  interval for one more run of ours (mean ± t * sd * sqrt(1 + 1/n), Student's t with n - 1 degrees of freedom), so
  that it could be one. Fewer runs do not know their noise: with two, t is 12.7 and any figure would pass; nor does
  it pass where that interval reaches further than 10 margins to either side, as one diverged run makes it. Where the
  source evaluated on `evaluated_samples` drawn at random, one run has the error of such a mean too (1.96 times its
  standard deviation, measured by `scripts.evaluation_noise`), added in squares.
- ABOVE, BELOW: neither, and ours is better, or worse.
- SCALED-DOWN: the recipe or the data are reduced, as the experiment's `reduced` says, or the source's figure is the
  best of more runs than ours; no claim is made.
- NOT RUN: there is no record of it.

An evaluation that is not finite is no measurement, and a run without another one counts as none.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from scipy import stats

from reports.analysis import published
from reports.analysis.comparison import comparisons_in
from reports.analysis.published import Measure, measure_of
from reports.analysis.selection import describe, ended_early, figure, runs_chosen_from
from reports.analysis.speed import read_benchmark, samples_per_second
from reports.analysis.statistics import mean, standard_deviation
from reports.records import layout
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment, departures, read_config
from reports.records.estimates import read_estimates
from reports.records.evaluation import Evaluation
from reports.records.files import read_record
from reports.records.metrics import read_history
from reports.records.published import PublishedRow
from reports.records.summary import read_summary

ROOT = published.ROOT
RESULTS = ROOT / "reports" / "results"
FEWEST_RUNS = 3  # of which the noise is known well enough to call a figure one of them
MOST_NOISE = 10  # margins; where single runs differ by more, any figure would be one of them
QUICK = "resnet20_digits"

Verdict = Literal["REPRODUCED", "WITHIN NOISE", "ABOVE", "BELOW", "SCALED-DOWN", "NOT RUN"]
REPRODUCED: Verdict = "REPRODUCED"
WITHIN_NOISE: Verdict = "WITHIN NOISE"
ABOVE: Verdict = "ABOVE"
BELOW: Verdict = "BELOW"
SCALED_DOWN: Verdict = "SCALED-DOWN"
NOT_RUN: Verdict = "NOT RUN"


@dataclass(frozen=True)
class Reproduction:
    """One published row and what was measured for it in one precision; `measured` in the row's own unit.

    `gap` is how far the mean is above the published figure, `noise` how far 95% of single runs lie from the mean;
    None where that is not known. `command` runs it where `scripts/reproduce.sh` does not; empty where nothing does.
    """

    row: PublishedRow
    experiment: str
    precision: str | None
    verdict: Verdict
    measured: tuple[float, ...] = ()
    sd: float | None = None
    rule: str = ""
    gap: float | None = None
    noise: float | None = None
    command: str | None = None

    @property
    def mean(self) -> float | None:
        return mean(self.measured)


class Ruling(NamedTuple):
    """The verdict on measured values, the rule that decided in words, and `gap` and `noise` of `Reproduction`."""

    verdict: Verdict
    rule: str
    gap: float
    noise: float | None


def judge_reproduction(values: Sequence[float], row: PublishedRow, measure: Measure, error: float = 0.0) -> Ruling:
    """The verdict on measured `values` in the unit of the published `row`.

    `error` is the standard deviation of the source's figure that comes from the samples it was evaluated on.
    Raises ValueError for nothing measured and for values that are not finite.
    """
    center = mean(values)
    if center is None or not math.isfinite(center):
        raise ValueError(f"{row.id}: nothing was measured, or what is not finite: {list(values)}")
    target, count = row.target, len(values)
    margin, gap = measure.margin(target), center - target
    deviation, noise, over_runs = standard_deviation(values), None, 0.0
    if deviation is not None and count >= FEWEST_RUNS:
        over_runs = float(stats.t.ppf(0.975, count - 1)) * deviation * math.sqrt(1 + 1 / count)
        noise = math.hypot(over_runs, float(stats.norm.ppf(0.975)) * error)
    distance = f"{gap:+.4g} from the published {target:g}"
    if abs(gap) <= margin:
        return Ruling(REPRODUCED, f"{distance}, within {margin:.3g}", gap, noise)
    if noise is not None and noise <= MOST_NOISE * margin and abs(gap) <= noise:
        drawn = f" evaluated on {row.evaluated_samples} samples drawn at random" if error else ""
        rule = f"{distance}, beyond {margin:.3g} but within {noise:.3g}, where 95% of single runs{drawn} lie"
        if abs(gap) > math.hypot(over_runs / math.sqrt(count + 1), float(stats.norm.ppf(0.975)) * error):
            rule += f"; the 95% interval of our mean lies {'above' if gap > 0 else 'below'} it"
        return Ruling(WITHIN_NOISE, rule, gap, noise)
    if noise is None:
        beyond = f"the noise of {count} run{'s' if count > 1 else ''} is not known well enough"
    elif abs(gap) <= noise:
        beyond = f"the noise of {count} runs, {noise:.3g}, is too large to tell anything by"
    else:
        beyond = f"beyond the noise of {count} runs, {noise:.3g}"
    verdict = ABOVE if (gap > 0) == measure.higher_is_better else BELOW
    return Ruling(verdict, f"{distance}, beyond {margin:.3g}; {beyond}", gap, noise)


def reproductions(results: Path = RESULTS, comparisons: Mapping[Path, Comparison] | None = None) -> list[Reproduction]:
    """Every row that an experiment aims at, in each precision that has runs, in the order of published.csv.

    `comparisons` are the `comparisons_in` the folder `results`, from a caller that has read them already.
    Raises ValueError as `published.aimed_at` does.
    """
    rows, aims = published.aimed_at()
    comparisons = comparisons_in(results)[0] if comparisons is None else comparisons
    reproduced: list[Reproduction] = []
    for row in rows.values():
        names = [name for name, config in aims.items() if row.id in config.published]
        for name in names:
            # `scripts/reproduce.sh` runs the first one.
            command = None if name == names[0] else f"bash scripts/compare.sh configs/{name}.yaml"
            aim = _Aim(row, name, aims[name], results / name, command)
            reproduced += aim.reproductions(comparisons.get(results / name))
    return reproduced


def of_comparison(folder: Path, comparison: Comparison) -> list[Reproduction]:
    """The published rows that one comparison aims at, as its configuration names them and its runs' recorded one.

    A row that is not published any more, or not yet, is NOT RUN: a report that ends a long training must not fail.
    """
    name = comparison.experiment
    file = ROOT / "configs" / f"{name}.yaml"
    config, recorded = read_config(file) if file.exists() else None, _recipe(folder, comparison)
    aims = dict.fromkeys(identity for source in (config, recorded) if source for identity in source.published)
    rows = published.rows() if aims else {}
    reproduced: list[Reproduction] = []
    for identity in aims:
        if identity in rows:
            aim = _Aim(rows[identity], name, config, folder, comparison.command)
            reproduced += aim.reproductions(comparison)
        else:
            rule = f"reports/published.csv has no row {identity!r}"
            reproduced.append(Reproduction(PublishedRow(id=identity), name, None, NOT_RUN, rule=rule, command=""))
    return reproduced


@dataclass(frozen=True)
class _Aim:
    """An experiment that aims at a published row; its runs are in `folder`."""

    row: PublishedRow
    experiment: str
    config: Experiment | None
    folder: Path
    command: str | None

    def reproductions(self, comparison: Comparison | None) -> list[Reproduction]:
        """One a precision of `comparison`; a single one where the row cannot be measured at all."""
        if comparison is None:
            return [self._not_run("no record")]
        metrics = next((run.metrics for run in comparison.runs if run.metrics), [])
        measure, recipe = measure_of(self.row, metrics), _recipe(self.folder, comparison)
        if metrics and measure is None:
            return [self._not_run(f"{self.row.metric} in {self.row.unit} is not what a run records")]
        return [self._in_precision(precision, comparison, measure, recipe) for precision in comparison.precisions]

    def _not_run(self, reason: str, precision: str | None = None) -> Reproduction:
        return Reproduction(self.row, self.experiment, precision, NOT_RUN, rule=reason, command=self.command)

    def _in_precision(
        self, precision: str, comparison: Comparison, measure: Measure | None, recipe: Experiment | None
    ) -> Reproduction:
        runs = [run for run in comparison.runs_of(precision) if run.finished]
        if not runs or measure is None:
            return self._not_run("no finished run", precision)
        selection, held_out = self.row.selection, bool(recipe and recipe.data.held_out)
        histories = {run.name: read_history(self.folder / run.name / layout.METRICS) for run in runs}
        values = {name: figure(history, selection, measure, held_out) for name, history in histories.items()}
        measured = {name: value for name, value in values.items() if value is not None}
        without = _names("no finite evaluation to take", [name for name in values if name not in measured])
        if not measured:
            return self._not_run(without, precision)
        ended = [name for name in measured if ended_early(histories[name], selection, held_out)]
        cut_off = _names("the source would have trained on where these ended", ended)
        error, fault = self._sampling_error([run for run in runs if run.name in measured])
        figures = tuple(measured.values())
        verdict, rule, gap, noise = judge_reproduction(figures, self.row, measure, error)
        if reduced := self._reduced(recipe, len(figures)):
            verdict, rule, noise = SCALED_DOWN, _joined(reduced, rule.partition(",")[0]), None
        else:
            rule = _joined(rule, fault)
        rule, sd = _joined(rule, without, cut_off, describe(selection, held_out)), standard_deviation(figures)
        return Reproduction(self.row, self.experiment, precision, verdict, figures, sd, rule, gap, noise, self.command)

    def _sampling_error(self, runs: Sequence[RunResult]) -> tuple[float, str]:
        """The standard deviation of a mean loss over as many random samples as the source took, 0 where it took all.

        With it, in words, for which runs it was not measured on their final weights.
        """
        samples = self.row.evaluated_samples
        if not samples:
            return 0.0, ""
        deviations = []
        for run in runs:
            path = self.folder / run.name
            evaluation = path / layout.EVALUATION
            noise = read_record(Evaluation, evaluation) if evaluation.exists() else None
            if noise and noise.weights_sha256 == read_summary(path / layout.SUMMARY).final_weights_sha256:
                deviations.append(noise.sample_sd)
        missing = len(runs) - len(deviations)
        some = f" for {missing} of {len(runs)} runs" if deviations else ""
        fault = f"the error of the source's sample of {samples} was not measured{some}" if missing else ""
        return (mean(deviations) or 0.0) / math.sqrt(samples), fault

    def _reduced(self, recipe: Experiment | None, runs: int) -> str | None:
        """How the source did more: in the configurations' words, where `recipe` departs, or by choosing among runs."""
        for experiment in (recipe, self.config):
            if experiment and experiment.reduced:
                return experiment.reduced
        if recipe and self.config and (changed := departures(recipe, self.config)):
            return f"not as configs/{self.experiment}.yaml has it: {', '.join(changed)}"
        selection = self.row.selection
        return f"the mean of {runs} runs against the {selection}" if runs_chosen_from(selection) else None


def _recipe(folder: Path, comparison: Comparison) -> Experiment | None:
    """The configuration of the first run that has one."""
    for run in comparison.runs:
        with contextlib.suppress(ValueError):
            return read_config(folder / run.name / layout.CONFIG)
    return None


def _names(what: str, runs: Sequence[str]) -> str:
    return f"{what}: {', '.join(runs)}" if runs else ""


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def hours(results: Path = RESULTS) -> dict[str, float]:
    """Estimated hours of one FP32 run of each experiment on the machine of the quick start's committed record.

    Operations of its training (`scripts.estimate`) over those a second that the quick start was measured at: an
    estimate, since operations of other shapes run at other speeds. The smaller a network, the more of its time passes
    between the operations, and the smallest ones take many times as long.
    """
    costs = read_estimates(ROOT / "reports" / "estimates.json")
    benchmark, _ = read_benchmark(results / QUICK / layout.BENCHMARK, publish=True)
    if benchmark is None or QUICK not in costs or layout.BASELINE not in benchmark.seconds:
        return {}
    rate = costs[QUICK].forward_flops * samples_per_second(benchmark, layout.BASELINE)
    return {name: cost.forward_flops * cost.samples / rate / 3600 for name, cost in costs.items()}

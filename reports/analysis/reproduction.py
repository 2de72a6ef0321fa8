"""Published numbers against ours; `python -m reports.reproduce` lists them with their verdicts.

`reports.pages.published_table.RULE` has the rule for readers. WITHIN NOISE means within the 95% prediction interval for
the mean of as many further runs as the source's (mean ± t * sd * sqrt(1/m + 1/n), Student's t). The precisions of an
experiment are taken to have the same noise, and their runs of one seed to part as those of two seeds do: sd is pooled
over them, so that three seeds that agree by chance do not make it small. A source that evaluated on
`evaluated_samples` drawn at random adds the error of such a mean (1.96 of its standard deviations, by
`scripts.evaluation_noise`), in squares. Few degrees of freedom do not know their noise, and one diverged run makes it
so wide that any figure would pass.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from scipy import stats

from reports.analysis import published
from reports.analysis.comparison import comparisons_in
from reports.analysis.published import Measure, measure_of
from reports.analysis.selection import Selected, select
from reports.analysis.speed import read_benchmark, samples_per_second
from reports.analysis.statistics import mean, pooled_deviation, standard_deviation
from reports.records import layout
from reports.records.comparison import Comparison, RunResult
from reports.records.config import Experiment, departures, read_config
from reports.records.estimates import QUICK, Estimates
from reports.records.evaluation import Evaluation
from reports.records.files import read_record
from reports.records.published import PublishedRow

ROOT = published.ROOT
RESULTS = ROOT / "reports" / "results"
FEWEST_FREEDOM = 4  # degrees of it that know the noise well enough: t is 2.8, of two 4.3
MOST_NOISE = 10  # margins; where single runs differ by more, any figure would be one of them

Verdict = Literal["REPRODUCED", "WITHIN NOISE", "ABOVE", "BELOW", "SCALED-DOWN", "NOT RUN"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
REPRODUCED, WITHIN_NOISE, ABOVE, BELOW, SCALED_DOWN, NOT_RUN = VERDICTS


@dataclass(frozen=True)
class Reproduction:
    """One published row and what was measured for it in one precision; `measured` in the row's own unit.

    `gap` is how far the mean is above the published figure, `noise` how far from it 95% of means of as many runs as
    the source's lie; None where that is not known. `command` runs it where `scripts/reproduce.sh` does not; empty where
    nothing does.
    """

    row: PublishedRow
    experiment: str
    precision: str | None = None
    verdict: Verdict = NOT_RUN
    measured: tuple[float, ...] = ()
    sd: float | None = None
    rule: str = ""
    gap: float | None = None
    noise: float | None = None
    command: str | None = None

    @property
    def mean(self) -> float | None:
        return mean(self.measured)


def judge_reproduction(
    one: Reproduction, measure: Measure, deviation: float | None, freedom: int, error: float = 0.0
) -> Reproduction:
    """`one` with the verdict on what was `measured`, at least one value and all finite.

    `deviation` is that of single runs, known with `freedom`; `error` the standard deviation of the source's figure that
    comes from the samples it was evaluated on.
    """
    values, target, runs = one.measured, one.row.target, one.row.runs
    count, margin, gap = len(values), measure.margin(target), statistics.fmean(values) - target
    drawn, noise, of_mean = float(stats.norm.ppf(0.975)) * error, None, math.inf
    if deviation is not None and freedom >= FEWEST_FREEDOM:
        reach = float(stats.t.ppf(0.975, freedom)) * deviation
        noise = math.hypot(reach * math.sqrt(1 / runs + 1 / count), drawn)
        of_mean = math.hypot(reach / math.sqrt(count), drawn)
    rule = f"{gap:+.4g} from the published {target:g}, {'within' if abs(gap) <= margin else 'beyond'} {margin:.3g}"
    if abs(gap) <= margin:
        verdict = REPRODUCED
    elif noise is not None and abs(gap) <= noise <= MOST_NOISE * margin:
        of_runs = "single runs" if runs == 1 else f"means of {runs} runs"
        verdict, rule = WITHIN_NOISE, f"{rule} but within {noise:.3g}, where 95% of {of_runs} lie"
        if abs(gap) > of_mean:
            rule += f"; the 95% interval of our mean lies {'above' if gap > 0 else 'below'} it"
    else:
        verdict = ABOVE if (gap > 0) == measure.higher_is_better else BELOW
        known = "is not known, and more seeds would tell it" if noise is None else f"is {noise:.3g}"
        rule += f"; the noise of {count} run{'s' if count > 1 else ''} {known}"
    return replace(one, verdict=verdict, rule=rule, gap=gap, noise=noise)


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
            one = Reproduction(row, name, command=command)
            reproduced += _of_aim(one, aims[name], results / name, comparisons.get(results / name))
    return reproduced


def of_comparison(folder: Path, comparison: Comparison) -> list[Reproduction]:
    """The published rows that one comparison aims at, as its configuration names them and its runs' recorded one.

    A row that is not published any more, or not yet, is NOT RUN: a report that ends a long training must not fail.
    """
    name = comparison.experiment
    file = ROOT / "configs" / f"{name}.yaml"
    config = read_config(file) if file.exists() else None
    reproduced: list[Reproduction] = []
    for identity in dict.fromkeys(row for source in (config, comparison.config) if source for row in source.published):
        try:
            if (row := published.rows().get(identity)) is None:
                raise ValueError(f"reports/published.csv has no row {identity!r}")
            one = Reproduction(row, name, command=comparison.command)
            reproduced += _of_aim(one, config, folder, comparison)
        except ValueError as error:
            reproduced.append(Reproduction(PublishedRow(id=identity), name, rule=str(error), command=""))
    return reproduced


def _of_aim(
    one: Reproduction, config: Experiment | None, folder: Path, comparison: Comparison | None
) -> list[Reproduction]:
    """`one`, of an experiment with runs in `folder`, in each precision; once where it cannot be measured at all."""
    if comparison is None:
        return [replace(one, rule="no record")]
    recorded = comparison.config or config
    if recorded and (fault := published.why_unmeasured(one.row, recorded.data.name)):
        return [replace(one, rule=fault)]
    metrics = next((run.summary.declared_metrics for run in comparison.runs if run.metric), [])
    measure = measure_of(one.row, metrics)
    if metrics and measure is None:
        return [replace(one, rule=f"{one.row.metric} in {one.row.unit} is not what a run records")]
    reduced = _reduced(one, comparison.config, config)
    held_out = bool(comparison.config and comparison.config.data.held_out)
    runs = {
        precision: [run for run in comparison.runs_of(precision) if run.finished] for precision in comparison.precisions
    }
    if measure is None:
        return [replace(one, precision=precision, rule="no finished run") for precision in runs]
    selected = {precision: select(own, folder, one.row.selection, measure, held_out) for precision, own in runs.items()}
    noise = pooled_deviation([list(figures.values.values()) for figures in selected.values()])
    return [
        _of_runs(replace(one, precision=precision), own, folder, measure, selected[precision], noise, reduced)
        for precision, own in runs.items()
    ]


def _of_runs(
    one: Reproduction,
    runs: Sequence[RunResult],
    folder: Path,
    measure: Measure,
    selected: Selected,
    noise: tuple[float | None, int],
    reduced: str | None,
) -> Reproduction:
    """`one` as measured by finished runs of one precision; `noise` is as `pooled_deviation` gives it."""
    if not selected.values:
        return replace(one, rule="; ".join(selected.without) or "no finished run")
    values = tuple(selected.values.values())
    error, fault = _sampling_error(one.row, [run for run in runs if run.name in selected.values], folder)
    one = judge_reproduction(replace(one, measured=values, sd=standard_deviation(values)), measure, *noise, error)
    if reduced:
        one, fault = replace(one, verdict=SCALED_DOWN, noise=None, rule=f"{reduced}; {one.rule.split(',')[0]}"), ""
    return replace(one, rule="; ".join(part for part in (one.rule, fault, *selected.without, *selected.how) if part))


def _sampling_error(row: PublishedRow, runs: Sequence[RunResult], folder: Path) -> tuple[float, str]:
    """The standard deviation of a mean loss over as many random samples as the source took, 0 where it took all.

    With it, in words, for how many runs it was not measured on their final weights.
    """
    samples = row.evaluated_samples
    if not samples:
        return 0.0, ""
    deviations = []
    for run in runs:
        path = folder / run.name / layout.EVALUATION
        noise = read_record(Evaluation, path) if path.exists() else None
        if noise and noise.weights_sha256 == run.summary.final_weights_sha256:
            deviations.append(noise.sample_sd)
    missing = len(runs) - len(deviations)
    fault = f"the error of the source's sample of {samples} was not measured for {missing} of {len(runs)} runs"
    return (mean(deviations) or 0.0) / math.sqrt(samples), fault if missing else ""


def _reduced(one: Reproduction, recipe: Experiment | None, config: Experiment | None) -> str | None:
    """How the source did more: as the configurations say, where `recipe` departs, or by choosing among runs."""
    for experiment in (recipe, config):
        if experiment and experiment.reduced:
            return experiment.reduced
    if recipe and config and (changed := departures(recipe, config)):
        return f"not as configs/{one.experiment}.yaml has it: {', '.join(changed)}"
    selection = one.row.selection
    return f"the mean of our runs against the {selection}" if selection.startswith("best of ") else None


def hours(results: Path = RESULTS) -> dict[str, float]:
    """Estimated hours of one FP32 run of each experiment on the machine of the quick start's committed record.

    Operations of its training (`scripts.estimate`) over those a second that the quick start was measured at. Operations
    of other shapes run at other speeds; the smallest networks take many times as long.
    """
    costs = read_record(Estimates, ROOT / "reports" / "estimates.json").root
    benchmark, _ = read_benchmark(results / QUICK / layout.BENCHMARK, publish=True)
    speed = samples_per_second(benchmark, layout.BASELINE)
    if speed is None or QUICK not in costs:
        return {}
    rate = costs[QUICK].forward_flops * speed
    return {name: cost.forward_flops * cost.samples / rate / 3600 for name, cost in costs.items()}

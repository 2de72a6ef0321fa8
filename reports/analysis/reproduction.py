"""Published numbers against ours; `python -m reports.reproduce` lists them with their verdicts.

The rule, for the runs of one precision, measured the way the source selects its figure (`selection` in
published.csv: the last epoch, the best one, or early stopping; where the source does not state it, the last
evaluation is taken):

- REPRODUCED: the mean over seeds is within the margin of the published figure: 0.5 points of an accuracy or an
  error, 1% of a loss.
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

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import stats

from reports.analysis import published
from reports.analysis.comparison import comparisons_in
from reports.analysis.selection import figure, finite, ran_out, runs_chosen_from, said
from reports.analysis.statistics import mean, standard_deviation
from reports.records.benchmark import read_benchmark
from reports.records.config import departures, first_recipe
from reports.records.files import read_json, read_lines
from reports.records.run import BASELINE

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "reports" / "results"
POINTS, SHARE = 0.5, 0.01
FEWEST_RUNS = 3  # of which the noise is known well enough to call a figure one of them
MOST_NOISE = 10  # margins; where single runs differ by more, any figure would be one of them
QUICK = "resnet20_digits"
REPRODUCED, WITHIN_NOISE, ABOVE, BELOW = "REPRODUCED", "WITHIN NOISE", "ABOVE", "BELOW"
SCALED_DOWN, NOT_RUN = "SCALED-DOWN", "NOT RUN"
UNITS = ("%", "fraction", "nats/char", "nats/token")


@dataclass(frozen=True)
class Reproduction:
    """One published row and what was measured for it in one precision; `measured` in the row's own unit.

    `gap` is how far the mean is above the published figure, `noise` how far 95% of single runs lie from the mean;
    None where that is not known. `command` runs it where `scripts/reproduce.sh` does not; empty where nothing does.
    """

    row: Mapping[str, str]
    experiment: str | None
    precision: str | None
    verdict: str
    measured: tuple[float, ...] = ()
    sd: float | None = None
    rule: str = ""
    gap: float | None = None
    noise: float | None = None
    command: str | None = None

    @property
    def mean(self) -> float | None:
        return mean(self.measured)


@dataclass(frozen=True)
class Judgement:
    """The verdict on measured values, the rule that decided in words, and `gap` and `noise` of `Reproduction`."""

    verdict: str
    rule: str
    gap: float
    noise: float | None


def judge_reproduction(values: Sequence[float], row: Mapping[str, str], error: float = 0.0) -> Judgement:
    """The verdict on measured `values` in the unit of the published `row`.

    `error` is the standard deviation of the source's figure that comes from the samples it was evaluated on.
    Raises ValueError for nothing measured and for values that are not finite.
    """
    center = mean(values)
    if center is None or not math.isfinite(center):
        raise ValueError(f"{row['id']}: nothing was measured, or what is not finite: {list(values)}")
    target, loss, count = float(row["value"]), row["unit"].startswith("nats"), len(values)
    unit = 1.0 if row["unit"] == "%" else 0.01
    margin = SHARE * target if loss else POINTS * unit
    gap = center - target
    deviation, noise, over_runs = standard_deviation(values), None, 0.0
    if deviation is not None and count >= FEWEST_RUNS:
        over_runs = float(stats.t.ppf(0.975, count - 1)) * deviation * math.sqrt(1 + 1 / count)
        noise = math.hypot(over_runs, float(stats.norm.ppf(0.975)) * error)
    shown = f"{gap:+.4g} from the published {target:g}"
    if abs(gap) <= margin:
        return Judgement(REPRODUCED, f"{shown}, within {margin:.3g}", gap, noise)
    if noise is not None and noise <= MOST_NOISE * margin and abs(gap) <= noise:
        drawn = f" evaluated on {row['evaluated_samples']} samples drawn at random" if error else ""
        rule = f"{shown}, beyond {margin:.3g} but within {noise:.3g}, where 95% of single runs{drawn} lie"
        if abs(gap) > math.hypot(over_runs / math.sqrt(count + 1), float(stats.norm.ppf(0.975)) * error):
            rule += f"; the 95% interval of our mean lies {'above' if gap > 0 else 'below'} it"
        return Judgement(WITHIN_NOISE, rule, gap, noise)
    better = (gap < 0) == (loss or "error" in row["metric"])
    if noise is None:
        beyond = f"the noise of {count} run{'s' if count > 1 else ''} is not known well enough"
    elif abs(gap) <= noise:
        beyond = f"the noise of {count} runs, {noise:.3g}, is too large to tell anything by"
    else:
        beyond = f"beyond the noise of {count} runs, {noise:.3g}"
    return Judgement(ABOVE if better else BELOW, f"{shown}, beyond {margin:.3g}; {beyond}", gap, noise)


def reproductions(
    results: Path = RESULTS, recorded: Mapping[Path, Mapping[str, Any]] | None = None
) -> list[Reproduction]:
    """Every row that an experiment aims at, in each precision that has runs, in the order of published.csv.

    `recorded` are the `comparisons_in` the folder `results`, from a caller that has read them already.
    Raises ValueError as `published.aimed_at` does.
    """
    found: list[Reproduction] = []
    rows, aims = published.aimed_at()
    recorded = comparisons_in(results)[0] if recorded is None else recorded
    comparisons = {folder.name: comparison for folder, comparison in recorded.items()}
    for identity, row in rows.items():
        names = [name for name, config in aims.items() if identity in config["published"]]
        for name in names:
            # `scripts/reproduce.sh` runs the first one.
            command = None if name == names[0] else f"bash scripts/compare.sh configs/{name}.yaml"
            found += _of_experiment(row, name, aims[name], results / name, comparisons.get(name), command)
    return found


def of_comparison(folder: Path, comparison: Mapping[str, Any]) -> list[Reproduction]:
    """The published rows that one comparison aims at, as its configuration names them and its runs' recorded one.

    A row that is not published any more, or not yet, is NOT RUN: a report that ends a long training must not fail.
    """
    name, found = comparison["experiment"], list[Reproduction]()
    file = ROOT / "configs" / f"{name}.yaml"
    config = published.configuration(file) if file.exists() else {}
    recorded = first_recipe(folder / run["run"] for run in comparison["runs"]).get("published") or []
    aims = dict.fromkeys([*(config.get("published") or []), *recorded])
    rows = published.rows() if aims else {}
    for identity in aims:
        if identity in rows:
            published.check_figures(rows[identity])
            found += _of_experiment(rows[identity], name, config, folder, comparison, comparison["command"])
        else:
            shown = ("model", "dataset", "metric", "precision", "value", "source")
            row = dict.fromkeys(shown, "not known") | {"id": str(identity), "unit": ""}
            rule = f"reports/published.csv has no row {identity!r}"
            found.append(Reproduction(row, name, None, NOT_RUN, rule=rule, command=""))
    return found


def _of_experiment(
    row: Mapping[str, str],
    name: str,
    config: Mapping[str, Any] | None,
    folder: Path,
    comparison: Mapping[str, Any] | None,
    command: str | None,
) -> list[Reproduction]:
    if comparison is None or row["unit"] not in UNITS:
        reason = "no record" if comparison is None else f"{row['metric']} in {row['unit']} is not what a run records"
        return [Reproduction(row, name, None, NOT_RUN, rule=reason, command=command)]
    recipe = first_recipe(folder / run["run"] for run in comparison["runs"])
    reduced = _reduced(recipe, config or {}, name)
    held_out = bool(recipe.get("data", {}).get("held_out"))
    selected, found = said(row["selection"], held_out), []
    for precision in comparison["precisions"]:
        runs = [run for run in comparison["runs"] if run["precision"] == precision and run["status"] == "finished"]
        histories = {run["run"]: read_lines(folder / run["run"] / "metrics.jsonl")[0] for run in runs}
        values = {run: figure(history, row, held_out) for run, history in histories.items()}
        known = {run: value for run, value in values.items() if value is not None}
        without = [run for run in values if run not in known]
        left_out = f"no finite evaluation to take: {', '.join(without)}" if without else ""
        going = [run for run in known if ran_out(histories[run], row, held_out)]
        cut_off = f"the source would have trained on where these ended: {', '.join(going)}" if going else ""
        if not known:
            reason = left_out or "no finished run"
            found.append(Reproduction(row, name, precision, NOT_RUN, rule=reason, command=command))
            continue
        error, fault = _sampling_error([folder / run for run in known], row)
        measured = tuple(known.values())
        judged = judge_reproduction(measured, row, error)
        less = reduced or _fewer(row["selection"], len(known))
        if less:
            parts = [less, judged.rule.partition(",")[0], left_out, cut_off, selected]
            judged = Judgement(SCALED_DOWN, _joined(parts), judged.gap, None)
        else:
            judged = replace(judged, rule=_joined([judged.rule, fault, left_out, cut_off, selected]))
        deviation = standard_deviation(measured)
        rest = (judged.rule, judged.gap, judged.noise, command)
        found.append(Reproduction(row, name, precision, judged.verdict, measured, deviation, *rest))
    return found


def _sampling_error(runs: Sequence[Path], row: Mapping[str, str]) -> tuple[float, str]:
    """The standard deviation of a mean loss over as many random samples as the source took, 0 where it took all.

    With it, in words, for which runs it was not measured on their final weights.
    """
    if not row.get("evaluated_samples"):
        return 0.0, ""
    deviations = []
    for run in runs:
        summary, found = read_json(run / "summary.json") or {}, read_json(run / "evaluation.json") or {}
        weights, deviation = summary.get("final_weights_sha256"), found.get("sample_sd")
        if weights and found.get("weights_sha256") == weights and finite(deviation) and deviation >= 0:
            deviations.append(deviation)
    missing = len(runs) - len(deviations)
    some = f" for {missing} of {len(runs)} runs" if deviations else ""
    fault = f"the error of the source's sample of {row['evaluated_samples']} was not measured{some}" if missing else ""
    return (mean(deviations) or 0.0) / math.sqrt(int(row["evaluated_samples"])), fault


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(part for part in parts if part)


def _fewer(selection: str, runs: int) -> str | None:
    """How a mean of `runs` of ours is no figure that the source chose from several runs."""
    chosen_from = runs_chosen_from(selection)
    return f"the mean of {runs} runs against the {selection}" if chosen_from else None


def _reduced(recorded: Mapping[str, Any], config: Mapping[str, Any], name: str) -> str | None:
    """How the `recorded` recipe is less than the source's: in its own words, or where it departs from `config`."""
    if words := recorded.get("reduced") or config.get("reduced"):
        return str(words)
    changed = departures(recorded, config)
    return f"not as configs/{name}.yaml has it: {', '.join(changed)}" if changed else None


def hours(results: Path = RESULTS) -> dict[str, float]:
    """Estimated hours of one FP32 run of each experiment on the machine of the quick start's committed record.

    Operations of its training (`scripts.estimate`) over those a second that the quick start was measured at: an
    estimate, since operations of other shapes run at other speeds. The smaller a network, the more of its time passes
    between the operations, and the smallest ones take many times as long.
    """
    counts = read_json(ROOT / "reports" / "estimates.json")
    speed, _ = read_benchmark(results / QUICK / "benchmark.json", publish=True)
    if counts is None or speed is None or QUICK not in counts or BASELINE not in speed.seconds:
        return {}
    rate = counts[QUICK]["forward_flops"] * speed.samples_per_second(BASELINE)
    return {name: count["forward_flops"] * count["samples"] / rate / 3600 for name, count in counts.items()}

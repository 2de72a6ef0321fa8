"""Published numbers against ours: `python -m reports.reproduction` lists every published row with its verdict so far.

The rule, for the runs of one precision, measured the way the source selects its figure (`selection` in
published.csv: the last epoch, the best one, or early stopping):

- REPRODUCED: the mean over seeds is within the margin of the published figure: 0.5 points of an accuracy or an
  error, 1% of a loss.
- WITHIN NOISE: it is not, but the published figure lies in the 95% prediction interval for one more run of ours
  (mean ± t * sd * sqrt(1 + 1/n), Student's t with n - 1 degrees of freedom), so that it could be one. Where the
  source evaluated on `evaluated_samples` drawn at random, one run has the error of such a mean too (1.96 times its
  standard deviation, measured by `scripts.evaluation_noise`), added in squares.
- ABOVE, BELOW: neither, and ours is better, or worse.
- SCALED-DOWN: the recipe or the data are reduced, as the experiment's `reduced` says; no claim is made.
- NOT RUN: there is no record of it.
"""

import argparse
import csv
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

from reports.comparison import comparisons_in
from reports.records import read_config, read_json, read_lines
from reports.run_record import BASELINE
from reports.speed import read_benchmark
from reports.statistics import mean, standard_deviation

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "reports" / "published.csv"
RESULTS = ROOT / "reports" / "results"
POINTS, SHARE = 0.5, 0.01
PATIENCE = 3
QUICK = "resnet20_digits"
REPRODUCED, WITHIN_NOISE, ABOVE, BELOW = "REPRODUCED", "WITHIN NOISE", "ABOVE", "BELOW"
SCALED_DOWN, NOT_RUN = "SCALED-DOWN", "NOT RUN"
UNITS = ("%", "fraction", "nats/char", "nats/token")
# Keys of a configuration that are no part of the recipe.
NO_RECIPE = frozenset({"name", "published", "reduced", "margin", "log_every", "checkpoint_every", "workers"})


@dataclass(frozen=True)
class Reproduction:
    """One published row and what was measured for it in one precision; `measured` in the row's own unit."""

    row: Mapping[str, str]
    experiment: str | None
    precision: str | None
    verdict: str
    measured: tuple[float, ...] = ()
    sd: float | None = None
    rule: str = ""

    @property
    def mean(self) -> float | None:
        return mean(self.measured)


def published_rows(path: Path = PUBLISHED) -> dict[str, dict[str, str]]:
    """The published rows by id."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def experiments(configs: Path = ROOT / "configs") -> dict[str, dict[str, Any]]:
    """The configurations by name that aim at published rows."""
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(configs.glob("*.yaml"))}
    return {name: config for name, config in found.items() if config.get("published")}


def judge_reproduction(values: Sequence[float], row: Mapping[str, str], error: float = 0.0) -> tuple[str, str]:
    """The verdict on measured `values` in the unit of the published `row`, and the rule that decided, in words.

    `error` is the standard deviation of the source's figure that comes from the samples it was evaluated on.
    Raises ValueError for nothing measured.
    """
    center = mean(values)
    if center is None:
        raise ValueError(f"{row['id']}: nothing was measured")
    target, loss = float(row["value"]), row["unit"].startswith("nats")
    unit = 1.0 if row["unit"] == "%" else 0.01
    margin = SHARE * target if loss else POINTS * unit
    gap = center - target
    shown = f"{gap:+.4g} from the published {target:g}"
    if abs(gap) <= margin:
        return REPRODUCED, f"{shown}, within {margin:.3g}"
    deviation, count = standard_deviation(values), len(values)
    if deviation is not None:
        over_runs = float(stats.t.ppf(0.975, count - 1)) * deviation * math.sqrt(1 + 1 / count)
        reach = math.hypot(over_runs, float(stats.norm.ppf(0.975)) * error)
        if abs(gap) <= reach:
            drawn = f" evaluated on {row['evaluated_samples']} samples drawn at random" if error else ""
            where = f"where 95% of single runs{drawn} lie"
            return WITHIN_NOISE, f"{shown}, beyond {margin:.3g} but within {reach:.3g}, {where}"
    lower_is_better = loss or "error" in row["metric"]
    better = (gap < 0) == lower_is_better
    noise = f"beyond the noise of {count} runs" if count > 1 else "the noise over runs is not known from one"
    # One figure out of several runs is no run of ours, and a mean of ours no such figure: that is said, not corrected.
    chosen = (
        f"; the source's figure is the {row['selection']}, ours a mean" if row["selection"].endswith("runs") else ""
    )
    return (ABOVE if better else BELOW), f"{shown}, beyond {margin:.3g}; {noise}{chosen}"


def reproductions(results: Path = RESULTS) -> list[Reproduction]:
    """Every row that an experiment aims at, in each precision that has runs, in the order of published.csv."""
    found: list[Reproduction] = []
    aims = experiments()
    comparisons = {folder.name: comparison for folder, comparison in comparisons_in(results)[0].items()}
    for identity, row in published_rows().items():
        for name in [name for name, config in aims.items() if identity in config["published"]]:
            found += _of_experiment(row, name, aims[name], results / name, comparisons.get(name))
    return found


def of_comparison(folder: Path, comparison: Mapping[str, Any]) -> list[Reproduction]:
    """The published rows that the runs of one comparison aim at, as their recorded configuration names them."""
    aims = read_config(folder / run["run"] for run in comparison["runs"]).get("published")
    if not aims:
        return []
    rows, name = published_rows(), comparison["experiment"]
    file = ROOT / "configs" / f"{name}.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    known = [rows[identity] for identity in aims if identity in rows]
    return [found for row in known for found in _of_experiment(row, name, config, folder, comparison)]


def _of_experiment(
    row: Mapping[str, str],
    name: str,
    config: Mapping[str, Any] | None,
    folder: Path,
    comparison: Mapping[str, Any] | None,
) -> list[Reproduction]:
    if comparison is None or row["unit"] not in UNITS:
        reason = "no record" if comparison is None else f"{row['metric']} in {row['unit']} is not what a run records"
        return [Reproduction(row, name, None, NOT_RUN, rule=reason)]
    reduced = _reduced(read_config(folder / run["run"] for run in comparison["runs"]), config or {}, name)
    found = []
    for precision in comparison["precisions"]:
        runs = [run for run in comparison["runs"] if run["precision"] == precision and run["status"] == "finished"]
        values = [_measured(read_lines(folder / run["run"] / "metrics.jsonl")[0], row) for run in runs]
        known = tuple(value for value in values if value is not None)
        if not known:
            found.append(Reproduction(row, name, precision, NOT_RUN, rule="no finished run"))
            continue
        verdict, rule = judge_reproduction(known, row, _sampling_error([folder / run["run"] for run in runs], row))
        if reduced:
            verdict, rule = SCALED_DOWN, f"{reduced}; {rule.partition(',')[0]}"
        found.append(Reproduction(row, name, precision, verdict, known, standard_deviation(known), rule))
    return found


def _sampling_error(runs: Sequence[Path], row: Mapping[str, str]) -> float:
    """The standard deviation of a mean loss over as many random samples as the source took; 0 where it took all."""
    if not row.get("evaluated_samples"):
        return 0.0
    deviations = [found["sample_sd"] for run in runs if (found := read_json(run / "evaluation.json"))]
    return (mean(deviations) or 0.0) / math.sqrt(int(row["evaluated_samples"]))


def _reduced(recorded: Mapping[str, Any], config: Mapping[str, Any], name: str) -> str | None:
    """How the `recorded` recipe is less than the source's: in its own words, or where it departs from `config`."""
    if words := recorded.get("reduced", config.get("reduced")):
        return str(words)
    run, file = _flat(recorded), _flat(config)
    changed = [key for key in file if key in run and _number(run[key]) != _number(file[key])]
    listed = ", ".join(f"{key} is {run[key]} in place of {file[key]}" for key in changed)
    return f"not as configs/{name}.yaml has it: {listed}" if changed else None


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of the recipe by dotted key."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif prefix + key not in NO_RECIPE:
            found[prefix + key] = value
    return found


def _number(value: Any) -> Any:
    """A text that is a number as a number: YAML takes 1e-3 for a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _measured(history: Sequence[Mapping[str, Any]], row: Mapping[str, str]) -> float | None:
    """One run's figure in the unit of `row`, selected among its evaluations as the source selects."""
    evaluations = [line for line in history if "eval/loss" in line]
    chosen = _selected(evaluations, row["selection"])
    if chosen is None:
        return None
    if row["unit"].startswith("nats"):
        return float(chosen["eval/loss"])
    if "eval/accuracy" not in chosen:
        return None
    share = 1 - chosen["eval/accuracy"] if "error" in row["metric"] else chosen["eval/accuracy"]
    return float(share * (100 if row["unit"] == "%" else 1))


def _selected(evaluations: Sequence[Mapping[str, Any]], selection: str) -> Mapping[str, Any] | None:
    """The last evaluation, unless the source chose another: by a part that was held out, where there is one."""
    if not evaluations:
        return None
    held_out = "eval/held_out_loss" in evaluations[-1]
    loss = "eval/held_out_loss" if held_out else "eval/loss"
    if selection == "early stopping":
        best = 0
        for index, line in enumerate(evaluations):
            if line[loss] < evaluations[best][loss]:
                best = index
            elif index - best >= PATIENCE:
                break
        return evaluations[best]
    if selection.startswith("best") and "eval/accuracy" in evaluations[-1]:
        accuracy = "eval/held_out_accuracy" if held_out else "eval/accuracy"
        return max(evaluations, key=lambda line: line[accuracy])
    if selection.startswith("best"):
        return min(evaluations, key=lambda line: line[loss])
    return evaluations[-1]


def main() -> int:
    """List the published rows, or print the configuration behind one: its path, for `scripts/reproduce.sh`."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("id", nargs="?", help="of a published row: print the configuration that aims at it")
    given = options.parse_args()
    if given.id is None:
        for line in listing():
            print(line)
        return 0
    rows, aims = published_rows(), experiments()
    names = [name for name, config in aims.items() if given.id in config["published"]]
    if names:
        print(f"configs/{names[0]}.yaml")
        return 0
    aimed = sorted({identity for config in aims.values() for identity in config["published"]})
    what = "no experiment aims at" if given.id in rows else "unknown published row"
    print(f"error: {what} {given.id!r}; with an experiment: {', '.join(aimed)}", file=sys.stderr)
    return 2


def listing() -> list[str]:
    """One line for each published row that an experiment aims at: id, figure, verdict so far, data, estimated hours."""
    lines = []
    aims, needed = experiments(), hours()
    for found in reproductions():
        row = found.row
        shown = f"{found.precision} {found.mean:.4g}: {found.verdict}" if found.mean is not None else found.verdict
        cost = f"about {needed[found.experiment]:,.3g} h a run" if found.experiment in needed else "cost not known"
        figure = f"{row['metric']} {row['value']} {row['unit']}"
        data = aims[found.experiment or ""]["data"]["name"]
        lines.append(f"{row['id']}  {row['model']}  {figure}  {shown}  data {data}, {cost} in FP32 on a CPU")
    return lines


def hours(results: Path = RESULTS) -> dict[str, float]:
    """Estimated hours of one FP32 run of each experiment on the machine of the quick start's committed record.

    Operations of its training (`scripts.estimate`) over those a second that the quick start was measured at: an
    estimate within a factor of a few, since operations of other shapes run at other speeds.
    """
    counts, (speed, _) = (
        read_json(ROOT / "reports" / "estimates.json"),
        read_benchmark(results / QUICK / "benchmark.json"),
    )
    if counts is None or speed is None or QUICK not in counts:
        return {}
    rate = counts[QUICK]["forward_flops"] * speed.samples_per_second(BASELINE)
    return {name: count["forward_flops"] * count["samples"] / rate / 3600 for name, count in counts.items()}


if __name__ == "__main__":
    sys.exit(main())

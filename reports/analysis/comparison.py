"""From the run folders of one experiment to its comparison: one row a precision, every figure from a record."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from reports.analysis.statistics import LOOKS, Verdict, judge, mean, standard_deviation
from reports.records.benchmark import Benchmark, read_benchmark
from reports.records.config import departures, first_recipe, read_recipe
from reports.records.environment import read_environment, sources
from reports.records.files import Part, read_as
from reports.records.run import BASELINE, read_run
from reports.records.summary import FAILED, FINISHED, PAIRED

COLUMNS = (
    "experiment",
    "precision",
    "seeds",
    "metric",
    "mean",
    "sd",
    "difference",
    "samples_per_sec",
    "speedup",
    "speedup_low",
    "speedup_high",
    "peak_memory_mib",
    "saved_for_backward_mib",
    "peak_ratio",
    "saved_ratio",
    "skipped_steps",
    "status",
    "reason",
)


def compare(
    folder: Path,
    precisions: Sequence[str],
    seeds: Sequence[int],
    command: str,
    margin: float,
    looks: int = 1,
    publish: bool = False,
) -> dict[str, Any]:
    """The comparison of the runs `<precision>-s<seed>` under `folder` and of its benchmark.json, as plain values.

    `margin` is how far a mixed precision may be from FP32 and still be equivalent: of an accuracy in its own
    unit, of a loss as a fraction of FP32's. `looks` is that of `statistics.judge`. A run that is missing,
    failed, torn or not paired with the others is named, and left out of every figure; so is, where the
    figures are to be published, a smoke run and one of a source with uncommitted changes.
    """
    runs = [read_run(folder, precision, seed, publish) for precision in precisions for seed in seeds]
    for seed in seeds:
        _check_equal([run for run in runs if run["seed"] == seed], PAIRED, f"the precisions of seed {seed}")
    _check_equal(runs, ("config_sha256", "device", "metric", "eval_samples"), "the seeds")
    _check_recipes(folder, runs)
    environments = [read_environment(folder / run["run"] / "environment.json")[0] for run in runs]
    _check_distinct(runs, environments)
    benchmark, unmeasured = read_benchmark(folder / "benchmark.json", runs, publish)
    experiment = next((run["experiment"] for run in runs if run["experiment"]), folder.name)
    all_sources = [source for environment in environments for source in sources(environment)]
    rows = [_row(experiment, precision, runs, benchmark, unmeasured, margin, looks) for precision in precisions]
    return {
        "experiment": experiment,
        "command": command,
        "metric": next((run["metric"] for run in runs if run["metric"]), None),
        "higher_is_better": next((run["higher_is_better"] for run in runs if run["metric"]), True),
        "smoke": any(run["smoke"] for run in runs),
        "margin": margin,
        "looks": looks,
        "precisions": list(precisions),
        "seeds": list(seeds),
        "rows": rows,
        "runs": runs,
        "benchmark": benchmark and benchmark.model_dump(),
        "environment": next((found for found in environments if found), None),
        "commits": sorted({source.commit for source in all_sources if source.commit}),
        "committed": all(source.committed for source in (*all_sources, *([benchmark.git] if benchmark else []))),
        "torch": sorted({str(found["versions"].get("torch")) for found in environments if found.get("versions")}),
    }


class Kept(Part):
    """What a comparison.json is made anew from."""

    precisions: list[Annotated[str, Field(pattern="^[a-z0-9]{1,8}$")]] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(min_length=1)
    command: str
    margin: float = Field(gt=0, allow_inf_nan=False)
    looks: int = Field(default=1, gt=0, le=LOOKS)

    @field_validator("precisions", "seeds")
    @classmethod
    def _each_once(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) < len(values):
            raise ValueError("must have each once")
        return values


def recorded(folder: Path) -> dict[str, Any] | None:
    """The comparison in `folder`, made anew from its run records for publication; None where there is none.

    Its list of runs, its command, its margin and its looks are kept. Raises ValueError naming a comparison.json
    that is not one, or that does not count all runs beside it, or not by the margin of their configuration.
    """
    path = folder / "comparison.json"
    if not path.exists():
        return None
    try:
        kept = read_as(Kept, path, "that of a comparison")
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None
    counted = {f"{precision}-s{seed}" for precision in kept.precisions for seed in kept.seeds}
    if others := sorted({run.parent.name for run in folder.glob("*-s*/summary.json")} - counted):
        raise ValueError(f"{path} does not count {', '.join(others)}")
    for run in sorted(counted):
        margin = first_recipe([folder / run]).get("margin", kept.margin)
        if margin != kept.margin:
            raise ValueError(f"{path} has the margin {kept.margin:g}, and the config.yaml of {run} has {margin:g}")
    return compare(folder, kept.precisions, kept.seeds, kept.command, kept.margin, kept.looks, publish=True)


def comparisons_in(results: Path) -> tuple[dict[Path, dict[str, Any]], dict[str, str]]:
    """The comparisons of the folders in `results`, and by name why others are left out of everything."""
    found, left_out = {}, {}
    for folder in sorted(path for path in results.glob("*") if path.is_dir()):
        try:
            comparison = recorded(folder)
        except ValueError as error:
            left_out[folder.name] = str(error).replace(f"{results}/", "")
            continue
        if comparison is None:
            left_out[folder.name] = "no comparison.json: its comparison did not end"
        else:
            found[folder] = comparison
    return found, left_out


def succeeded(comparison: Mapping[str, Any]) -> bool:
    """Whether every row is finished, with all of its seeds and its speed."""
    return all(row["status"] == FINISHED for row in comparison["rows"])


def _check_equal(runs: Sequence[dict[str, Any]], keys: Sequence[str], where: str) -> None:
    finished = [run for run in runs if run["status"] == FINISHED]
    for key in keys:
        if len({run[key] for run in finished}) > 1:
            for run in finished:
                run["status"] = FAILED
                run["reason"] = f"not paired: {key} differs between {where}"


def _check_recipes(folder: Path, runs: Sequence[dict[str, Any]]) -> None:
    """Name the runs whose config.yaml is not that of most of them."""
    finished = [run for run in runs if run["status"] == FINISHED]
    recipes = [read_recipe(folder / run["run"]) for run in finished]
    alike = [sum(not departures(recipe, other) for other in recipes) for recipe in recipes]
    for run, recipe in zip(finished, recipes, strict=True):
        most = alike.index(max(alike))
        if changed := departures(recipe, recipes[most]):
            reason = f"its config.yaml is not that of {finished[most]['run']}: {', '.join(changed)}"
            run["status"], run["reason"] = FAILED, reason


def _check_distinct(runs: Sequence[dict[str, Any]], environments: Sequence[Mapping[str, Any]]) -> None:
    """Name the runs that are copies of another one."""
    known: dict[str, dict[str, Any]] = {}
    for run, environment in zip(runs, environments, strict=True):
        identity = environment.get("run_id")
        other = known.setdefault(identity, run) if identity and run["status"] == FINISHED else run
        if other is not run:
            for copy in (run, other):
                copy["status"], copy["reason"] = FAILED, f"{other['run']} and {run['run']} are one run, {identity}"


def _row(
    experiment: str,
    precision: str,
    runs: Sequence[dict[str, Any]],
    benchmark: Benchmark | None,
    unmeasured: str | None,
    margin: float,
    looks: int,
) -> dict[str, Any]:
    wanted = [run for run in runs if run["precision"] == precision]
    done = [run for run in wanted if run["status"] == FINISHED]
    baseline = {run["seed"]: run for run in runs if run["precision"] == BASELINE and run["status"] == FINISHED}
    values = [run["value"] for run in done]
    paired = [run for run in done if precision != BASELINE and run["seed"] in baseline]
    differences = [run["value"] - baseline[run["seed"]]["value"] for run in paired]
    verdict = _verdict(paired, [baseline[run["seed"]]["value"] for run in paired], margin, looks)
    measured = benchmark if benchmark and precision in benchmark.seconds else None
    ratio = measured.speedup(precision) if measured else None
    missing = None if measured else unmeasured or "its speed was not measured"
    broken = [run for run in wanted if run["status"] != FINISHED]
    reasons = [f"seed {run['seed']}: {run['reason']}" for run in broken] + ([missing] if missing else [])
    return {
        "experiment": experiment,
        "precision": precision,
        "seeds": len(done),
        "pairs": len(paired),
        "metric": next((run["metric"] for run in done), None),
        "mean": mean(values),
        "sd": standard_deviation(values),
        "difference": mean(differences),
        "difference_low": verdict.difference.low if verdict else None,
        "difference_high": verdict.difference.high if verdict else None,
        "verdict": verdict.word if verdict else None,
        "margin": verdict.margin if verdict else None,
        "looks": looks,
        "seeds_needed": verdict.seeds_needed if verdict else None,
        "samples_per_sec": measured.samples_per_second(precision) if measured else None,
        "speedup": ratio.value if ratio else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "peak_memory_mib": _largest(done, "peak_memory_mib"),
        "saved_for_backward_mib": _largest(done, "saved_for_backward_mib"),
        "drift": measured.drift(precision) if measured else None,
        "slower_in": measured.slower_in(precision) if measured else None,
        "peak_ratio": _ratio(done, baseline, "peak_memory_mib"),
        "saved_ratio": _ratio(done, baseline, "saved_for_backward_mib"),
        "skipped_steps": _total(run["skipped_steps"] for run in done),
        "status": broken[0]["status"] if broken else FAILED if missing else FINISHED,
        "reason": "; ".join(reasons) or None,
        "arithmetic": next((run["arithmetic"] for run in done), None),
    }


def _verdict(
    paired: Sequence[Mapping[str, Any]], baseline: Sequence[float], margin: float, looks: int
) -> Verdict | None:
    """The verdict over pairs; None where there are not at least two."""
    if len(paired) < 2:
        return None
    accuracy = paired[0]["metric"] == "eval/accuracy"
    limit = margin if accuracy else margin * abs(mean(baseline) or 0.0)
    resolution = 1 / paired[0]["eval_samples"] if accuracy and paired[0]["eval_samples"] else 0.0
    differences = [run["value"] - other for run, other in zip(paired, baseline, strict=True)]
    return judge(differences, limit, paired[0]["higher_is_better"], resolution, looks)


def _total(values: Iterable[int | None]) -> int | None:
    """The sum where every run has a value."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _largest(runs: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return max((run[key] for run in runs if run[key] is not None), default=None)


def _ratio(runs: Sequence[Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]], key: str) -> float | None:
    """The median over seeds of the ratio to FP32, of what was measured in both; texts of other lengths need others."""
    pairs = [(run[key], baseline[run["seed"]][key]) for run in runs if run["seed"] in baseline]
    ratios = [own / other for own, other in pairs if own is not None and other]
    return statistics.median(ratios) if ratios else None

"""From the run folders of one experiment to its comparison: one row a precision, every figure from a record."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.records import read_environment, read_json, read_lines
from reports.statistics import Interval, Verdict, drift, judge, mean, speedup, standard_deviation

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
    "saved_ratio",
    "skipped_steps",
    "status",
    "reason",
)
BASELINE = "fp32"
# Equal for all runs of one seed: a pair that began from other weights or saw other data is no pair.
PAIRED = ("initial_weights_sha256", "data_order_sha256", "config_sha256", "device")


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
    runs = [_run(folder, precision, seed, publish) for precision in precisions for seed in seeds]
    for seed in seeds:
        _check_equal([run for run in runs if run["seed"] == seed], PAIRED, f"the precisions of seed {seed}")
    _check_equal(runs, ("config_sha256",), "the seeds")
    benchmark = read_json(folder / "benchmark.json")
    experiment = next((run["experiment"] for run in runs if run["experiment"]), folder.name)
    rows = [_row(experiment, precision, runs, benchmark, margin, looks) for precision in precisions]
    environments = [read_environment(folder / run["run"] / "environment.json")[0] for run in runs]
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
        "benchmark": benchmark,
        "environment": next((found for found in environments if found), None),
    }


def recorded(folder: Path) -> dict[str, Any] | None:
    """The comparison in `folder`, made anew from its run records for publication; None where there is none.

    Its list of runs, its command, its margin and its looks are kept.
    """
    kept = read_json(folder / "comparison.json")
    if kept is None:
        return None
    return compare(
        folder, kept["precisions"], kept["seeds"], kept["command"], kept["margin"], kept["looks"], publish=True
    )


def succeeded(comparison: Mapping[str, Any]) -> bool:
    """Whether every row is finished, with all of its seeds and its speed."""
    return all(row["status"] == "finished" for row in comparison["rows"])


def _run(folder: Path, precision: str, seed: int, publish: bool) -> dict[str, Any]:
    name = f"{precision}-s{seed}"
    summary = read_json(folder / name / "summary.json") or {}
    environment, fault = read_environment(folder / name / "environment.json")
    final = summary.get("final", {})
    metric = summary.get("metric")
    status = summary.get("status", "missing")
    reason = summary.get("reason") or (None if summary else "no summary.json: the run never began or was killed")
    lengths = [attempt["changed"] for attempt in environment.get("attempts", []) if attempt.get("changed")]
    if status == "finished" and fault:
        status, reason = "failed", fault  # whether it was trained in one go is not known
    if status == "finished" and any(key in change for change in lengths for key in ("epochs", "max_steps")):
        status, reason = "failed", f"trained in parts of different length: {lengths}; run it anew with --resume never"
    if status == "finished" and (torn := read_lines(folder / name / "metrics.jsonl")[1]):
        status, reason = "failed", f"its metrics.jsonl has torn lines: {torn}"
    if status == "finished" and publish and summary.get("smoke"):
        status, reason = "failed", "a smoke run"
    if status == "finished" and publish and environment.get("git", {}).get("dirty") is not False:
        status, reason = (
            "failed",
            "its source had changes that are in no commit, or its commit is not known",
        )
    if status == "finished" and final.get(metric) is None:
        status, reason = "failed", f"no {metric} in its record"
    if status == "finished" and not math.isfinite(final[metric]):
        status, reason = "failed", f"its {metric} is {final[metric]}"
    if status == "finished" and not math.isfinite(final.get("eval/loss", 0.0)):
        status, reason = "failed", f"the evaluation loss of its final weights is {final['eval/loss']}"
    return {
        "run": name,
        "experiment": summary.get("experiment"),
        "precision": precision,
        "seed": seed,
        "status": status,
        "reason": reason,
        "metric": metric,
        "higher_is_better": summary.get("higher_is_better"),
        "value": final.get(metric),
        "value_fp32": final.get(metric) if precision == BASELINE else final.get(f"{metric}_fp32"),
        "best": summary.get("best", {}).get(metric),
        "eval_samples": summary.get("eval_samples"),
        "samples_per_sec": final.get("throughput/samples_per_sec"),
        "compute_samples_per_sec": final.get("throughput/compute_samples_per_sec"),
        "data_wait_pct": final.get("time/data_wait_pct"),
        "peak_memory_mib": final.get("memory/peak_allocated_mib", final.get("memory/peak_rss_mib")),
        "saved_for_backward_mib": final.get("memory/saved_for_backward_mib"),
        "skipped_steps": summary.get("skipped_steps"),
        "nonfinite_loss_steps": summary.get("nonfinite_loss_steps"),
        "arithmetic": summary.get("precision", {}).get("effective", {}).get("arithmetic"),
        "smoke": summary.get("smoke", False),
        **{key: summary.get(key) for key in PAIRED},
    }


def _check_equal(runs: Sequence[dict[str, Any]], keys: Sequence[str], where: str) -> None:
    finished = [run for run in runs if run["status"] == "finished"]
    for key in keys:
        if len({run[key] for run in finished}) > 1:
            for run in finished:
                run["status"] = "failed"
                run["reason"] = f"not paired: {key} differs between {where}"


def _row(
    experiment: str,
    precision: str,
    runs: Sequence[dict[str, Any]],
    benchmark: Mapping[str, Any] | None,
    margin: float,
    looks: int,
) -> dict[str, Any]:
    wanted = [run for run in runs if run["precision"] == precision]
    done = [run for run in wanted if run["status"] == "finished"]
    baseline = {run["seed"]: run for run in runs if run["precision"] == BASELINE and run["status"] == "finished"}
    values = [run["value"] for run in done]
    paired = [run for run in done if precision != BASELINE and run["seed"] in baseline]
    differences = [run["value"] - baseline[run["seed"]]["value"] for run in paired]
    verdict = _verdict(paired, [baseline[run["seed"]]["value"] for run in paired], margin, looks)
    saved = _common(run["saved_for_backward_mib"] for run in done)
    saved_baseline = _common(run["saved_for_backward_mib"] for run in baseline.values())
    peaks = [run["peak_memory_mib"] for run in done if run["peak_memory_mib"] is not None]
    rate, ratio, missing = _speed(precision, benchmark)
    broken = [run for run in wanted if run["status"] != "finished"]
    reasons = [f"seed {run['seed']}: {run['reason']}" for run in broken] + ([missing] if missing else [])
    return {
        "experiment": experiment,
        "precision": precision,
        "seeds": len(done),
        "metric": next((run["metric"] for run in done), None),
        "mean": mean(values),
        "sd": standard_deviation(values),
        "difference": mean(differences),
        "difference_low": verdict.difference.low if verdict else None,
        "difference_high": verdict.difference.high if verdict else None,
        "verdict": verdict.word if verdict else None,
        "margin": verdict.margin if verdict else None,
        "seeds_needed": verdict.seeds_needed if verdict else None,
        "samples_per_sec": rate,
        "speedup": ratio.value if ratio else None,
        "speedup_low": ratio.low if ratio else None,
        "speedup_high": ratio.high if ratio else None,
        "peak_memory_mib": max(peaks, default=None),
        "saved_for_backward_mib": saved,
        "drift": _drift(precision, benchmark),
        "slower_in": _slower_in(precision, benchmark),
        "saved_ratio": saved / saved_baseline if saved is not None and saved_baseline else None,
        "skipped_steps": sum(run["skipped_steps"] for run in done) if done else None,
        "status": broken[0]["status"] if broken else "failed" if missing else "finished",
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


def _slower_in(precision: str, benchmark: Mapping[str, Any] | None) -> list[Any] | None:
    """The operator that takes so much longer than in FP32 that no other costs more: its name and both ms a step."""
    times = (benchmark or {}).get("operators_ms", {})
    if precision == BASELINE or BASELINE not in times or precision not in times:
        return None
    here, there = times[precision], times[BASELINE]
    # One that is not among FP32's longest takes there no more than the shortest of them.
    least = min(there.values(), default=0.0)
    name = max(here, key=lambda name: here[name] - there.get(name, least), default=None)
    if name is None or here[name] <= there.get(name, least):
        return None
    return [name, there.get(name), here[name]]


def _drift(precision: str, benchmark: Mapping[str, Any] | None) -> list[float] | None:
    blocks = (benchmark or {}).get("seconds", {})
    if precision == BASELINE or BASELINE not in blocks or precision not in blocks:
        return None
    found = drift(blocks[BASELINE], blocks[precision])
    return list(found) if found else None


def _speed(precision: str, benchmark: Mapping[str, Any] | None) -> tuple[float | None, Interval | None, str | None]:
    """Median samples per second of a benchmark's blocks, the paired speed-up over FP32, and why they are missing."""
    blocks = (benchmark or {}).get("seconds", {})
    if benchmark is None or precision not in blocks:
        return None, None, "its speed was not measured"
    rate = samples_per_second(precision, benchmark)
    if precision == BASELINE or BASELINE not in blocks:
        return rate, None, None
    return rate, speedup(blocks[BASELINE], blocks[precision]), None


def samples_per_second(precision: str, benchmark: Mapping[str, Any]) -> float:
    """Of the median block of a benchmark that has `precision`."""
    seconds = sorted(benchmark["seconds"][precision])
    return float(benchmark["samples_per_step"] * benchmark["block_steps"] / seconds[len(seconds) // 2])


def _common(values: Any) -> float | None:
    """The value that all runs share: bytes saved for backward do not depend on the seed."""
    found = [value for value in values if value is not None]
    return max(found, default=None)

"""One run folder as evidence: its figures, or the reason why none of them may be counted."""

from pathlib import Path
from typing import Any

from reports.records.config import read_recipe
from reports.records.environment import UNCOMMITTED, read_environment, sources
from reports.records.metrics import torn
from reports.records.summary import FAILED, FINISHED, PAIRED, Summary, misread, read_summary

BASELINE = "fp32"


def read_run(folder: Path, precision: str, seed: int, publish: bool = False) -> dict[str, Any]:
    """The run `<precision>-s<seed>` under `folder` as plain values; its figures count where `status` is finished.

    Any other status has a `reason`: the run's own, or what is wrong with its record. Where the figures are to be
    published (`publish`), a smoke run and one of a source with uncommitted changes are wrong too.
    """
    name = f"{precision}-s{seed}"
    summary, status, reason = read_summary(folder / name / "summary.json")
    if status == FINISHED and (fault := _fault(folder / name, summary, precision, seed, publish)):
        status, reason = FAILED, fault
    metric = summary.metric or ""
    return {
        "run": name,
        "experiment": summary.experiment,
        "precision": precision,
        "seed": seed,
        "status": status,
        "reason": reason,
        "value": summary.figure(metric),
        "value_fp32": summary.figure(metric if precision == BASELINE else f"{metric}_fp32"),
        "best": summary.best.get(metric),
        "samples_per_sec": summary.figure("throughput/samples_per_sec"),
        "compute_samples_per_sec": summary.figure("throughput/compute_samples_per_sec"),
        "data_wait_pct": summary.figure("time/data_wait_pct"),
        "peak_memory_mib": summary.figure("memory/peak_allocated_mib", "memory/peak_rss_mib"),
        "saved_for_backward_mib": summary.figure("memory/saved_for_backward_mib"),
        "skipped_steps": summary.skipped_steps,
        "nonfinite_loss_steps": summary.nonfinite_loss_steps,
        "arithmetic": summary.precision.effective.arithmetic,
        "smoke": summary.smoke,
        **{key: getattr(summary, key) for key in PAIRED},
    }


def _fault(path: Path, summary: Summary, precision: str, seed: int, publish: bool) -> str | None:
    """Why a finished run must not be counted; None where it may."""
    environment, fault = read_environment(path / "environment.json")
    if fault or not environment:
        return fault or "no environment.json: whether it was trained in one go is not known"
    if not environment.get("run_id"):
        return "no run_id in its environment.json: whether it is a copy of another run is not known"
    found = (summary.precision.requested, summary.precision.effective.name, summary.seed)
    if found != (precision, precision, seed):
        return f"its record is of precision {found[0]} (effective {found[1]}) and seed {found[2]}"
    ran = (environment.get("precision", {}).get("requested", precision), environment.get("seed", seed))
    if ran != (precision, seed):
        return f"its environment.json is of precision {ran[0]} and seed {ran[1]}"
    where = environment.get("device", {}).get("name")
    if summary.device and where and where != summary.device:
        return f"its environment.json is of {where}, and its summary.json of {summary.device}"
    if publish and summary.experiment != path.parent.name:
        return f"its record is of the experiment {summary.experiment}"
    changes = [attempt["changed"] for attempt in environment.get("attempts", []) if attempt.get("changed")]
    if any(key in change for change in changes for key in ("epochs", "max_steps")):
        return f"trained in parts of different length: {changes}; run it anew with --resume never"
    if publish and summary.smoke:
        return "a smoke run"
    if publish and not all(source.committed for source in sources(environment)):
        return f"its source {UNCOMMITTED}"
    try:
        recipe = read_recipe(path)
    except ValueError as error:
        return f"its {error}"
    if fault := misread(summary):
        return fault
    relogged = any("log_every" in change for change in changes)
    return torn(path / "metrics.jsonl", summary, None if relogged else recipe.get("log_every"))

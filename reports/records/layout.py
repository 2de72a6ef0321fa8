"""Where records lie and what they are called: <out>/[smoke/]<experiment>/<precision>-s<seed>/."""

from pathlib import Path

BASELINE = "fp32"  # what every other precision is compared with
CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
EVALUATION = "evaluation.json"
COMPARISON = "comparison.json"
BENCHMARK = "benchmark.json"
MEMORY = "memory.json"
REPORT = "report.html"
# Of results.csv; further metrics follow under their own names.
COLUMNS = (
    *("experiment", "precision", "seeds", "metric", "mean", "sd"),
    *("difference", "difference_low", "difference_high", "margin", "verdict"),
    *("samples_per_sec", "speedup", "speedup_low", "speedup_high"),
    *("peak_memory_mib", "peak_ratio", "saved_for_backward_mib", "saved_ratio"),
    *("skipped_steps", "train_seconds", "device", "status", "reason"),
)
SMOKE, REPLACED = "smoke", "replaced"  # folders beside the experiments, so no experiment is called so


def experiment_folder(out: Path, experiment: str, smoke: bool) -> Path:
    """The folder of an experiment. Smoke runs lie apart: no report picks them up."""
    return (out / SMOKE if smoke else out) / experiment


def run_name(precision: str, seed: int) -> str:
    """The name of a run within its experiment: its folder, and the end of its name at Weights & Biases."""
    return f"{precision}-s{seed}"

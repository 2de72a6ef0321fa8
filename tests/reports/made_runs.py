"""Run folders made by hand, as a training leaves them behind."""

from pathlib import Path
from typing import Any

from reports.analysis.comparison import compare
from reports.records.benchmark import Benchmark, Start
from reports.records.comparison import Comparison, Plan, Row
from reports.records.config import Data, Experiment, Schedule, Sgd
from reports.records.environment import Environment, Source
from reports.records.files import read_record, write_record
from reports.records.metric import undeclared
from reports.records.metrics import to_line
from reports.records.summary import Summary

COMMAND = "python -m train.compare configs/tiny.yaml --seeds 3"
SAVED = {"fp32": 40.0, "bf16": 20.0, "fp16": 20.0, "tf32": 40.0}
EMULATED = "fp16 operands, FP32 arithmetic, rounded to fp16"
COMMIT = Source(commit="0123456789abcdef", dirty=False)
CPU = "Some CPU, 2 threads"


def write_run(
    folder: Path,
    precision: str,
    seed: int = 0,
    accuracy: float | None = 0.9,
    losses: tuple[float, ...] = (2.0, 1.0, 0.5, 0.25),
    final: dict[str, float] | None = None,
    environment: dict[str, Any] | None = None,
    **summary: object,
) -> Path:
    """The four files of the run (tiny, precision, seed); keywords that are not named here go into summary.json."""
    path = folder / f"{precision}-s{seed}"
    figures: dict[str, float | None] = {
        "eval/accuracy": accuracy,
        "throughput/samples_per_sec": 100.0,
        "throughput/compute_samples_per_sec": 120.0,
        "time/data_wait_pct": 2.5,
        "memory/peak_rss_mib": 60.0 + seed,
        "memory/saved_for_backward_mib": SAVED.get(precision, 40.0),
    }
    figures |= {} if precision == "fp32" else {"eval/accuracy_fp32": accuracy}
    figures |= final or {}
    arithmetic = EMULATED if precision == "fp16" else "native kernels"
    effective = {"requested": precision, "effective": {"name": precision, "arithmetic": arithmetic}}
    lines = _lines(precision, losses, figures)
    metric = str(summary.get("metric", "eval/accuracy"))
    better = max if summary.get("higher_is_better", True) else min
    facts = {
        "experiment": folder.name,
        "config_sha256": "c" * 64,
        "status": "finished",
        "precision": effective,
        "seed": seed,
        "metric": metric,
        "higher_is_better": True,
        "metrics": undeclared(metric, {"eval/accuracy", "eval/loss", metric}),
        "final": figures,
        "best": {metric: better((line[metric] for line in lines if metric in line), default=None)},
        "steps": {"planned": len(losses), "attempted": len(losses), "applied": len(losses)},
        "skipped_steps": 1 if precision == "fp16" else 0,
        "nonfinite_loss_steps": 0,
        "initial_weights_sha256": f"{seed:064x}",
        "data_order_sha256": f"{seed + 100:064x}",
        "device": CPU,
        "eval_samples": 1000,
    }
    machine = {
        "run_id": f"{precision}{seed}",
        "attempts": [{"started": "2026-01-02T03:04:05+00:00"}],
        "versions": {"python": "3.11.7", "torch": "2.14.1"},
        "platform": "Linux",
        "device": {"type": "cpu", "name": CPU},
        "cpu": {"cores": 2, "threads": 2, "memory_gib": 8.0, "instruction_sets": ["avx2", "avx512_bf16"]},
        "git": COMMIT,
        "precision": effective,
        "seed": seed,
    }
    write_record(path / "summary.json", Summary.model_validate(facts | summary))
    write_record(path / "environment.json", Environment.model_validate(machine | (environment or {})))
    (path / "metrics.jsonl").write_text("".join(map(to_line, lines)))
    write_config(path, experiment(folder.name))
    return path


def experiment(name: str = "tiny") -> Experiment:
    """The experiment that `write_run` records."""
    return Experiment(
        name=name,
        model="tinynet",
        arch="tinynet5",
        data=Data(name="dots"),
        batch_size=8,
        log_every=1,
        optimizer=Sgd(name="sgd", lr=0.1),
        schedule=Schedule(name="constant"),
        epochs=2,
    )


def write_config(run: Path, config: Experiment) -> None:
    """The config.yaml of `run`."""
    (run / "config.yaml").write_text(config.to_yaml())


def write_evaluations(run: Path, *evaluations: dict[str, float]) -> None:
    """A history of `run` with these evaluations up to its last step, and a summary that fits it."""
    summary = read_record(Summary, run / "summary.json")
    steps, metric = summary.steps.attempted, summary.metric
    assert steps
    assert metric
    final = {key: value for key, value in summary.final.items() if "held_out" not in key}
    lines = [{"train/step": step, "train/loss": 1.0} for step in range(1, steps + 1)]
    lines += [{"train/step": steps - ago, **line} for ago, line in enumerate(reversed(evaluations))]
    fp32 = {f"{key}_fp32": value for key, value in evaluations[-1].items() if f"{key}_fp32" in final}
    lines = [*sorted(lines, key=lambda line: line["train/step"]), {"train/step": steps, **fp32}]
    best = (max if summary.higher_is_better else min)(line[metric] for line in evaluations)
    final |= evaluations[-1] | fp32
    write_record(run / "summary.json", summary.model_copy(update={"final": final, "best": {metric: best}}))
    (run / "metrics.jsonl").write_text("".join(map(to_line, lines)))


def write_benchmark(folder: Path, **seconds: list[float]) -> None:
    """benchmark.json with three equal process starts, of blocks of 10 steps of 8 samples."""
    write_starts(folder, *[seconds] * 3)


def write_starts(folder: Path, *starts: dict[str, list[float]]) -> None:
    """benchmark.json with these seconds of each process start."""
    measured = [Start(samples_per_step=8, block_steps=10, git=COMMIT, seconds=seconds) for seconds in starts]
    write_record(folder / "benchmark.json", Benchmark(config_sha256="c" * 64, device=CPU, starts=measured))


def write_three(folder: Path, seeds: int = 3, smoke: bool = False) -> None:
    """A whole comparison: bf16 at twice the speed of FP32, fp16 at four fifths."""
    for seed in range(seeds):
        write_run(folder, "fp32", seed, 0.90 + seed / 100, smoke=smoke)
        write_run(folder, "bf16", seed, (0.905, 0.915, 0.91)[seed], losses=(2.0, 1.1, 0.6, 0.2), smoke=smoke)
        write_run(folder, "fp16", seed, 0.90, smoke=smoke)
    write_benchmark(folder, fp32=[1.0, 1.02, 0.98], bf16=[0.5, 0.51, 0.49], fp16=[1.25, 1.275, 1.225])


def compared(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3, publish: bool = False) -> Comparison:
    """The comparison of the runs in `folder`."""
    plan = Plan(command=COMMAND, margin=0.005, precisions=precisions.split(","), seeds=list(range(seeds)))
    return compare(folder, plan, publish)


def rows_of(comparison: Comparison) -> dict[str, Row]:
    return {row.precision: row for row in comparison.rows}


def _lines(precision: str, losses: tuple[float, ...], figures: dict[str, float | None]) -> list[dict[str, float]]:
    lines: list[dict[str, float]] = []
    for step, loss in enumerate(losses, 1):
        scale = {"amp/scale": 32768.0, "amp/skipped_steps": 1} if precision == "fp16" else {}
        lines.append({"train/step": step, "train/loss": loss, **scale})
    accuracy, final_loss, in_fp32 = (figures.get(key) for key in ("eval/accuracy", "eval/loss", "eval/accuracy_fp32"))
    if accuracy is not None:
        lines += [{"train/step": len(losses) // 2, "eval/loss": 1.0, "eval/accuracy": accuracy / 2}]
        lines += [{"train/step": len(losses), "eval/loss": final_loss or 0.5, "eval/accuracy": accuracy}]
        if in_fp32 is not None:
            lines += [{"train/step": len(losses), "eval/accuracy_fp32": in_fp32}]
    return sorted(lines, key=lambda line: line["train/step"])

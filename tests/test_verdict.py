"""--require and --until-decided: the verdict as an exit status, and seeds added until there is one."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from reports.analysis.statistics import LOOKS
from reports.records.files import to_line, write_json
from train import compare

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "resnet20_digits.yaml"
Accuracy = Callable[[str, int], float]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[[Accuracy], list[tuple[str, int]]]:
    """Puts `accuracy(precision, seed)` in the place of training; gives the runs in the order they were asked for."""

    def use(accuracy: Accuracy) -> list[tuple[str, int]]:
        runs: list[tuple[str, int]] = []

        def train(self: compare.Comparison, precision: str, seed: int) -> int:
            if (precision, seed) not in runs:
                runs.append((precision, seed))
            summary = {
                "experiment": self.config.name, "status": "finished", "metric": "eval/accuracy", "seed": seed,
                "precision": {"requested": precision, "effective": {"name": precision}},
                "higher_is_better": True, "eval_samples": 10_000, "config_sha256": "c",
                "final": {"eval/accuracy": accuracy(precision, seed), "memory/saved_for_backward_mib": 1.0},
                "best": {"eval/accuracy": accuracy(precision, seed)}, "steps": {"planned": 1, "attempted": 1},
                "initial_weights_sha256": str(seed), "data_order_sha256": str(seed), "device": "Some CPU",
                "skipped_steps": 0,
            }  # fmt: skip
            folder = self.folder / f"{precision}-s{seed}"
            write_json(folder / "summary.json", summary)
            write_json(folder / "environment.json", {"run_id": folder.name})
            (folder / "metrics.jsonl").write_text(to_line({"train/step": 1, "train/loss": 1.0, **summary["final"]}))
            (folder / "config.yaml").write_text(yaml.safe_dump(self.config.model_dump(mode="json")))
            return 0

        def benchmark(self: compare.Comparison) -> None:
            seconds = {precision: [1.0] * 9 for precision in self.precisions}
            facts = {"samples_per_step": 1, "block_steps": 1, "config_sha256": "c", "device": "Some CPU"}
            write_json(self.folder / "benchmark.json", {**facts, "seconds": seconds})

        monkeypatch.setattr(compare.Comparison, "_train", train)
        monkeypatch.setattr(compare.Comparison, "_benchmark", benchmark)
        monkeypatch.setenv("WANDB_MODE", "disabled")
        return runs

    return use


def run(out: Path, *options: str) -> int:
    return compare.main([str(CONFIG), "--precisions", "fp32,bf16", "--device", "cpu", "--out", str(out), *options])


def noise(seed: int) -> float:
    return (0.0003, -0.0002, 0.0001, -0.0004, 0.0002)[seed % 5]


@pytest.mark.parametrize(
    ("loss", "required", "status"),
    [(0.0, "EQUIVALENT", 0), (0.02, "EQUIVALENT", 4), (0.02, "WORSE", 0), (-0.02, "BETTER", 0), (0.0, "WORSE", 4)],
)
def test_the_verdict_asked_for_is_the_exit_status(
    trained: Callable[[Accuracy], object], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    loss: float, required: str, status: int,
) -> None:  # fmt: skip
    trained(lambda precision, seed: 0.9 + noise(seed) - (loss + noise(seed + 1) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "3", "--require", required) == status
    assert (f"not {required}" in capsys.readouterr().err) == (status == 4)


def test_seeds_are_added_until_it_is_decided(trained: Callable[[Accuracy], list], tmp_path: Path) -> None:  # type: ignore[type-arg]
    runs = trained(lambda precision, seed: 0.9 + (20 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "60") == 0
    comparison = json.loads((tmp_path / "resnet20_digits" / "comparison.json").read_text())
    assert comparison["rows"][1]["verdict"] == "EQUIVALENT"
    assert comparison["looks"] == LOOKS
    assert 2 < len(comparison["seeds"]) <= 60
    assert {seed for _, seed in runs} == set(comparison["seeds"])


def test_no_seed_is_added_once_it_is_decided(trained: Callable[[Accuracy], list], tmp_path: Path) -> None:  # type: ignore[type-arg]
    runs = trained(lambda precision, seed: 0.9 + (noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "4", "--until-decided") == 0
    assert len(runs) == 8


def test_what_stays_open_stops_at_twenty_seeds_unless_told(trained: Callable[[Accuracy], list], tmp_path: Path) -> None:  # type: ignore[type-arg]
    runs = trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided") == 0
    assert len(runs) == 40


def test_what_stays_open_stops_at_the_most_seeds(trained: Callable[[Accuracy], list], tmp_path: Path) -> None:  # type: ignore[type-arg]
    runs = trained(lambda precision, seed: 0.5 + (400 * noise(seed) if precision == "bf16" else 0.0))
    assert run(tmp_path, "--seeds", "2", "--until-decided", "--max-seeds", "7", "--require", "EQUIVALENT") == 4
    assert len(runs) == 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "1", "--require", "WORSE"], "one seed gives no verdict"),
        (["--seeds", "5", "--until-decided", "--max-seeds", "3"], "--max-seeds: 3 is less than the 5 seeds"),
        (["--require", "SAME"], "invalid choice: 'SAME'"),
        (["--precisions", "bf16", "--require", "WORSE"], "--require: a verdict needs fp32 and another precision"),
        (
            ["--precisions", "bf16,fp16", "--until-decided"],
            "--until-decided: a verdict needs fp32 and another precision",
        ),
        (["--precisions", "fp32", "--until-decided"], "--until-decided: a verdict needs fp32 and another precision"),
        (["--max-seeds", "7"], "--max-seeds: only --until-decided adds seeds"),
        (["--seeds", "1", "--until-decided", "--max-seeds", "0"], "--max-seeds: 0 is less than the 1 seeds"),
    ],
)
def test_what_cannot_give_a_verdict_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    try:
        status = run(tmp_path, *options)
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    assert status == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())

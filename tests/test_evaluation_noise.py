"""The loss of a finished run, sample by sample."""

import math
from pathlib import Path

import pytest
import torch

from reports.records.files import read_json, write_json
from scripts.evaluation_noise import evaluation_noise
from train import gpt2
from train.engine.errors import Refused
from train.experiment.run import main

ROOT = Path(__file__).resolve().parent.parent
SHORT = ("max_steps=2", "batch_size=4", "data.length=16", "data.eval_samples=40", "data.train_samples=40")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    config = str(ROOT / "configs" / "gpt2_pydoc.yaml")
    assert main(gpt2.build, gpt2.task, [config, "--precision", "fp32", "--out", str(tmp_path), *SHORT]) == 0
    return tmp_path / "gpt2_pydoc" / "fp32-s0"


def test_the_loss_is_that_of_the_record_and_has_a_deviation(run: Path) -> None:
    found, summary = evaluation_noise(run), read_json(run / "summary.json")
    assert summary is not None
    assert found["loss"] == pytest.approx(summary["final"]["eval/loss"], rel=1e-6)
    assert found["weights_sha256"] == summary["final_weights_sha256"]
    assert (found["samples"], found["labels_per_sample"]) == (40, 16)
    assert 0 < found["sample_sd"] < math.log(96)


def test_other_weights_are_refused(run: Path) -> None:
    summary = read_json(run / "summary.json")
    assert summary is not None
    write_json(run / "summary.json", {**summary, "final_weights_sha256": "0" * 64})
    with pytest.raises(Refused, match="does not hold the final weights of the run"):
        evaluation_noise(run)


def test_a_folder_of_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not the folder of a finished run"):
        evaluation_noise(tmp_path)


def test_the_deviation_is_that_of_the_samples(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluation_noise(run)
    uniform = torch.nn.functional.cross_entropy

    def constant(logits: torch.Tensor, labels: torch.Tensor, **settings: object) -> torch.Tensor:
        return torch.full_like(uniform(logits, labels, reduction="none"), 2.0)

    monkeypatch.setattr("scripts.evaluation_noise.F.cross_entropy", constant)
    flat = evaluation_noise(run)
    assert flat["loss"] == pytest.approx(2.0)
    assert flat["sample_sd"] == pytest.approx(0.0, abs=1e-12) != found["sample_sd"]

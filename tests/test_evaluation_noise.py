"""The loss of a finished run, sample by sample."""

import math
import shutil
from pathlib import Path

import pytest
import torch

from reports.records.files import write_record
from reports.records.summary import read_summary
from scripts.evaluation_noise import evaluation_noise
from tests.experiment.harness import ROOT
from train.cli.run import main
from train.cli.scripts import script_of
from train.engine.errors import Refused

SHORT = ("max_steps=2", "batch_size=4", "data.length=16", "data.eval_samples=40", "data.train_samples=40")


@pytest.fixture(scope="module")
def finished_gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpt2")
    config = ROOT / "configs" / "gpt2_pydoc.yaml"
    script = script_of(config)
    assert main(script.build, script.task, [str(config), "--precision", "fp32", "--out", str(out), *SHORT]) == 0
    return out / "gpt2_pydoc" / "fp32-s0"


def test_the_loss_is_that_of_the_record_and_has_a_deviation(finished_gpt2: Path) -> None:
    noise, summary = evaluation_noise(finished_gpt2), read_summary(finished_gpt2 / "summary.json")
    assert noise.loss == pytest.approx(summary.figure("eval/loss"), rel=1e-6)
    assert noise.weights_sha256 == summary.final_weights_sha256
    assert (noise.samples, noise.labels_per_sample) == (40, 16)
    assert 0 < noise.sample_sd < math.log(96)


def test_other_weights_are_refused(finished_gpt2: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_gpt2, tmp_path / "gpt2_pydoc" / "fp32-s0"))
    summary = read_summary(run / "summary.json")
    write_record(run / "summary.json", summary.model_copy(update={"final_weights_sha256": "0" * 64}))
    with pytest.raises(Refused, match="does not hold the final weights of the run"):
        evaluation_noise(run)


def test_a_folder_of_no_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="is not the folder of a finished run"):
        evaluation_noise(tmp_path)


def test_the_deviation_is_that_of_the_samples(finished_gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = evaluation_noise(finished_gpt2)
    uniform = torch.nn.functional.cross_entropy

    def constant(logits: torch.Tensor, labels: torch.Tensor, **settings: object) -> torch.Tensor:
        return torch.full_like(uniform(logits, labels, reduction="none"), 2.0)

    monkeypatch.setattr("scripts.evaluation_noise.F.cross_entropy", constant)
    flat = evaluation_noise(finished_gpt2)
    assert flat.loss == pytest.approx(2.0)
    assert flat.sample_sd == pytest.approx(0.0, abs=1e-12)
    assert flat.sample_sd != noise.sample_sd

"""A new architecture: three files that run as they are, and names that are refused."""

from pathlib import Path
from typing import Any

import pytest

from train import new
from train.experiment.config import load


@pytest.mark.parametrize("like", sorted(new.LIKE))
def test_a_new_architecture_is_three_files_that_run_as_they_are(
    like: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("train", "configs", "scripts"):
        (tmp_path / folder).mkdir()
    assert new.create("brandnew", like, tmp_path) == 0
    namespace: dict[str, Any] = {"__name__": "train.brandnew"}
    source = (tmp_path / "train" / "brandnew.py").read_text()
    exec(compile(source, "brandnew.py", "exec"), namespace)
    assert len(source.splitlines()) <= 40
    monkeypatch.setattr("train.experiment.config.model_scripts", lambda: ["brandnew"])
    config = tmp_path / "configs" / "brandnew_digits.yaml"
    assert load(config).model == load(config).arch == "brandnew"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    arguments = [str(config), "--precision", "fp16", "--smoke", "--out", str(tmp_path / "runs")]
    assert namespace["main"](namespace["build"], namespace["task"], arguments) == 0
    assert "configs/brandnew_digits.yaml" in (tmp_path / "scripts" / "run_brandnew_amp.sh").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "taken") for name in ("resnet", "torch", "json", "utils")),
        *((name, "identifier") for name in ("My-Net", "class", "on", "null", "_net", "n\u00e9t", "x" * 250)),
    ],
)
def test_a_name_that_will_not_do_is_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        new.create(name, "resnet", tmp_path)
    assert not list(tmp_path.iterdir())

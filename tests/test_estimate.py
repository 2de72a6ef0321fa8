"""The committed counts behind the estimated hours are those of the configurations."""

import json
from pathlib import Path

import pytest

from scripts.estimate import samples
from train.experiment.setup import script_of

ROOT = Path(__file__).resolve().parent.parent
COUNTS = json.loads((ROOT / "reports" / "estimates.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COUNTS)
def test_the_samples_of_an_experiment_are_those_of_its_configuration(name: str) -> None:
    _, task, config = script_of(ROOT / "configs" / f"{name}.yaml", ["pretrained=false"])
    known = task.data_set(config.data.name).training_samples
    assert COUNTS[name]["samples"] == samples(config, known)

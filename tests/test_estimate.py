"""The committed counts behind the estimated hours are those of the configurations."""

import json
from pathlib import Path

import pytest

from scripts.estimate import SAMPLES, samples
from train.experiment.assemble import script_of

ROOT = Path(__file__).resolve().parent.parent
COUNTS = json.loads((ROOT / "reports" / "estimates.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_samples_of_an_experiment_are_those_of_its_configuration(path: Path) -> None:
    _, _, config = script_of(path, ["pretrained=false"])
    if config.max_steps is None and config.data.name not in SAMPLES:
        assert config.name not in COUNTS
    else:
        assert COUNTS[config.name]["samples"] == samples(config)

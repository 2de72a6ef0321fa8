"""The committed counts behind the estimated hours are those of the configurations."""

import pytest

from reports.records.estimates import Estimates
from reports.records.files import read_record
from scripts.estimate import samples
from tests.experiment.harness import ROOT
from train.cli.scripts import script_of

ESTIMATES = read_record(Estimates, ROOT / "reports" / "estimates.json").root


@pytest.mark.parametrize("name", ESTIMATES)
def test_the_samples_of_an_experiment_are_those_of_its_configuration(name: str) -> None:
    path = ROOT / "configs" / f"{name}.yaml"
    script = script_of(path)
    config = script.read(path, ["pretrained=false"])
    assert ESTIMATES[name].samples == samples(config, script.task.entry(config.data.name).training_samples)

"""What the schemas of the records refuse."""

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from reports.records import yaml_file
from reports.records.benchmark import Blocks
from reports.records.comparison import Speedup
from reports.records.layout import COLUMNS
from reports.records.metric import Metric
from reports.records.published import PublishedRow, read_published
from train.engine.errors import Refused
from train.experiment.tasks import image_classification


@pytest.mark.parametrize("name", [*COLUMNS, "", "a b", "a/b", "1st"])
def test_a_metric_has_a_plain_name_that_is_no_column_of_the_results(name: str) -> None:
    with pytest.raises(ValidationError):
        Metric(name=name, higher_is_better=True)


def test_a_task_refuses_two_measures_of_one_name_and_none_at_all() -> None:
    twice = (*image_classification.measures, image_classification.measures[0])
    for measures in (twice, ()):
        with pytest.raises(Refused, match="measures of different names"):
            replace(image_classification, measures=measures)


@pytest.mark.parametrize("seconds", [{"fp32": [1.0]}, {"fp32": [1.0, 1.0], "bf16": [1.0]}, {"fp32": []}])
def test_blocks_of_a_benchmark_are_equally_many(seconds: dict[str, list[float]]) -> None:
    with pytest.raises(ValidationError, match="equally many"):
        Blocks(block_steps=2, seconds=seconds)


def test_an_interval_over_the_rounds_of_one_process_is_not_read_as_one_over_starts() -> None:
    """As older comparisons recorded it."""
    recorded = {"value": 2.0, "low": 1.9, "high": 2.1}
    assert Speedup.model_validate(recorded) == Speedup(value=2.0, interval=None, starts=1)


def test_a_published_row_stands_once_and_its_figure_is_finite(tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text("id,value\na,1\na,2\n")
    with pytest.raises(ValueError, match="an id stands twice"):
        read_published(file)
    with pytest.raises(ValueError, match="'nan' is not a finite number"):
        assert PublishedRow(id="a", value="nan").target


@pytest.mark.parametrize(("text", "value"), [("1e-4", 1e-4), ("-.5", -0.5), ("08", 8.0), ("1:30.5", "1:30.5")])
def test_numbers_in_yaml_are_plain_decimals(text: str, value: float | str) -> None:
    assert yaml_file.parse(text) == value

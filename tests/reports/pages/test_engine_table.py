"""The table of what the engine costs, and the records that it refuses."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from reports.analysis.reproduction import RESULTS
from reports.pages.engine_table import engine_table

RECORD = RESULTS / "engine_benchmark.json"


def test_the_committed_record_is_a_table() -> None:
    assert engine_table(RECORD).startswith("ResNet-20, ")


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"engine_benchmark\.json: not readable"):
        engine_table(tmp_path / "engine_benchmark.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"experiment": None}, "experiment: input should be a valid string"),
        ({"ratios": {"a": "b"}}, r"ratios\.a: input should be a valid"),
        ({"ratios": {"a": [math.nan, 1.0, 1.0]}}, r"ratios\.a\.0: input should be a finite number"),
        ({"tiny": True}, "is of a trial of the command"),
        ({"environment": {"git": {"commit": "0123", "dirty": True}}}, "had changes that are in no commit"),
        ({"environment": {}}, "its commit is not known"),
    ],
)
def test_a_record_that_may_not_be_shown_says_why(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    file = tmp_path / "engine_benchmark.json"
    file.write_text(json.dumps({**json.loads(RECORD.read_text(encoding="utf-8")), **change}))
    with pytest.raises(ValueError, match=rf"engine_benchmark\.json.*{reason}"):
        engine_table(file)

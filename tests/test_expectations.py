"""What a training script says to expect is what the committed record of its quick experiment shows."""

import ast
import re
from pathlib import Path

import pytest

from reports.analysis.comparison import comparisons_in
from reports.records.comparison import Comparison
from train.experiment.config import model_scripts

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "reports" / "results"


@pytest.fixture(scope="module")
def comparisons() -> dict[Path, Comparison]:
    return comparisons_in(RESULTS)[0]


@pytest.mark.parametrize("script", model_scripts())
def test_a_training_script_says_what_its_record_shows(script: str, comparisons: dict[Path, Comparison]) -> None:
    text = (ROOT / "train" / f"{script}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    experiment = re.findall(r"configs/(\w+)\.yaml", docstring)[0]
    comparison = comparisons.get(RESULTS / experiment)
    if comparison is None:
        pytest.skip(f"{experiment} has no committed record yet")
    assert comparison.metric is not None
    figures = ", ".join(
        f"{comparison.metric.text(row.mean)} in {row.precision}" for row in comparison.rows if row.mean is not None
    )
    seeds = len(comparison.seeds)
    source = f"({'one seed' if seeds == 1 else f'mean of {seeds} seeds'}, {experiment})."
    assert docstring.endswith(f"Expect {comparison.metric.label} {figures} {source}")

"""What a training script says to expect is what the committed record of its quick experiment shows."""

import ast
import re
from pathlib import Path

import pytest

from reports.analysis.comparison import recorded
from train.experiment.config import model_scripts

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("script", model_scripts())
def test_a_training_script_says_what_its_record_shows(script: str) -> None:
    text = (ROOT / "train" / f"{script}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    experiment = re.findall(r"configs/(\w+)\.yaml", docstring)[0]
    comparison = recorded(ROOT / "reports" / "results" / experiment)
    if comparison is None:
        pytest.skip(f"{experiment} has no committed record yet")
    assert comparison.metric is not None
    figures = ", ".join(
        f"{comparison.metric.text(row.mean)} in {row.precision}" for row in comparison.rows if row.mean is not None
    )
    seeds = len(comparison.seeds)
    source = f"({'one seed' if seeds == 1 else f'mean of {seeds} seeds'}, {experiment})."
    assert docstring.endswith(f"Expect {comparison.metric.label} {figures} {source}")

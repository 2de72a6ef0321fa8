"""A metric that one script adds, with no other edit, reaches every record, table and verdict."""

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from torch import Tensor

from reports.analysis.reproduction import of_comparison
from reports.records.config import read_config
from reports.records.metric import Metric
from tests.comparisons import MACRO_F1, TASK, Compared, build, count_classes, run_comparison
from tests.experiment.harness import Outcome
from train.comparison_view import comparison_view
from train.experiment.metrics import Measure, Sums
from train.experiment.setup import Script, setup
from train.experiment.tasks import image_classification

COLUMNS = ("macro_f1", "macro_f1_sd", "macro_f1_difference")
KEY = MACRO_F1.metric.key


def mean_recall_in_percent(sums: Sums) -> float:
    return float(100 * (sums["right"] / sums["actual"])[sums["actual"] > 0].double().mean())


BALANCED_ACCURACY_PCT = Measure(
    Metric(name="balanced_accuracy_pct", unit="%", range=(0, 100), higher_is_better=True, decimals=2),
    count_classes,
    mean_recall_in_percent,
)


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A comparison that balanced accuracy in per cent decides."""
    task = replace(image_classification, measures=(BALANCED_ACCURACY_PCT, *image_classification.measures))
    return run_comparison(tmp_path_factory.mktemp("balanced"), "--precisions", "fp32,bf16", "--seeds", "2", task=task)


def predictions(folder: Path, precision: str) -> tuple[Tensor, Tensor]:
    """Labels of all evaluation samples, and the classes that the final weights give in `precision`."""
    config = read_config(folder / "config.yaml")
    wired = setup(Script(build, TASK), config, precision, 0, torch.device("cpu"))
    wired.model.load_state_dict(Outcome(0, "", "", folder).weights())
    wired.model.eval()
    labels, predicted = [], []
    with torch.no_grad(), wired.precision.forward():
        for batch in wired.data.evaluation.epoch(0):
            labels.append(batch["labels"])
            predicted.append(wired.model(batch["images"]).argmax(dim=-1))
    return torch.cat(labels), torch.cat(predicted)


def test_a_further_metric_is_declared_and_measured_in_every_summary(compared: Compared) -> None:
    for run in compared.comparison.runs:
        summary = compared.summary(run.name)
        assert [metric.name for metric in summary.metrics] == ["accuracy", "loss", "macro_f1"]
        assert summary.metrics[-1] == MACRO_F1.metric
        assert 0 < (summary.figure(KEY) or 0) < 1
        assert (summary.figure(MACRO_F1.metric.fp32_key) is None) == (run.precision == "fp32")


@pytest.mark.parametrize(("precision", "evaluated_in"), [("fp32", "fp32"), ("bf16", "bf16"), ("bf16", "fp32")])
def test_its_value_is_scikit_learns(compared: Compared, precision: str, evaluated_in: str) -> None:
    run = f"{precision}-s0"
    labels, predicted = predictions(compared.folder / run, evaluated_in)
    key = KEY if precision == evaluated_in else MACRO_F1.metric.fp32_key
    assert compared.summary(run).figure(key) == pytest.approx(f1_score(labels, predicted, average="macro"), rel=1e-6)


def test_it_has_columns_in_the_csv_and_at_weights_and_biases(compared: Compared) -> None:
    with (compared.folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    view = comparison_view(compared.folder, compared.comparison)
    assert set(COLUMNS) <= set(rows[0]) & set(view.columns)
    baseline = mean(compared, "fp32")
    for row, cells in zip(rows, view.rows, strict=True):
        sent = dict(zip(view.columns, cells, strict=True))
        value, precision = mean(compared, row["precision"]), row["precision"]
        assert float(row["macro_f1"]) == sent["macro_f1"] == pytest.approx(value)
        assert float(row["macro_f1_sd"]) == sent["macro_f1_sd"]
        if precision == "fp32":
            assert (row["macro_f1_difference"], sent["macro_f1_difference"]) == ("", None)
        else:
            assert float(row["macro_f1_difference"]) == pytest.approx(value - baseline)
            assert float(row["macro_f1_difference"]) == sent["macro_f1_difference"]


@pytest.mark.parametrize("page", ["results.md", "report.html"])
def test_it_has_a_column_on_every_page(compared: Compared, page: str) -> None:
    text = (compared.folder / page).read_text(encoding="utf-8")
    assert "macro f1" in text
    for precision in ("fp32", "bf16"):
        assert f"{mean(compared, precision):.4f}" in text


def mean(compared: Compared, precision: str) -> float:
    return sum(compared.summary(f"{precision}-s{seed}").figure(KEY) or 0.0 for seed in (0, 1)) / 2


def test_the_first_metric_decides_in_its_own_unit(balanced: Compared) -> None:
    assert balanced.status == 0, balanced.err
    comparison = balanced.comparison
    assert comparison.metric == BALANCED_ACCURACY_PCT.metric
    row = comparison.row("bf16")
    assert row is not None
    assert row.verdict is not None
    assert row.margin == pytest.approx(0.005 * 100)
    labels, predicted = predictions(balanced.folder / "fp32-s0", "fp32")
    expected = 100 * balanced_accuracy_score(labels, predicted)
    summary = balanced.summary("fp32-s0")
    assert summary.status == "finished"
    assert summary.metric == "eval/balanced_accuracy_pct"
    assert summary.figure("eval/balanced_accuracy_pct") == pytest.approx(expected)


@pytest.mark.parametrize(
    "shown",
    [
        lambda compared: compared.out,
        lambda compared: (compared.folder / "results.md").read_text(encoding="utf-8"),
        lambda compared: (compared.folder / "report.html").read_text(encoding="utf-8"),
    ],
    ids=["terminal", "results.md", "report.html"],
)
def test_a_percentage_is_shown_as_it_is(balanced: Compared, shown: Callable[[Compared], str]) -> None:
    text = " ".join(shown(balanced).split())
    for row in balanced.comparison.rows:
        assert row.mean is not None
        assert 1 < row.mean <= 100
        assert re.search(rf"{row.mean:.2f}%? ±", text)
        assert f"{100 * row.mean:.2f}" not in text
    assert "within 0.5 points either way" in text


def test_a_metric_that_nobody_published_is_compared_with_no_published_figure(balanced: Compared) -> None:
    assert of_comparison(balanced.folder, balanced.comparison) == []
    assert "Published against measured" not in (balanced.folder / "report.html").read_text(encoding="utf-8")

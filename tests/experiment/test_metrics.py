"""Metrics: a new one is declared in one script and then stands in every record, the comparison's included."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from torch import Tensor

from reports.analysis.comparison import compare
from reports.records.comparison import Plan, Row
from reports.records.metric import Metric
from tests.experiment.harness import TINY, Outcome, TinyNet, run
from train.cli.scripts import script_of
from train.engine.precision import Precision
from train.experiment.config import load
from train.experiment.metrics import ACCURACY, LOSS, TOP5_ACCURACY, Measure, Sums
from train.experiment.tasks import Task, image_classification

# What a script with metrics of its own has in it.


def count_by_class(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """By class, how many samples are it, how many are said to be it, and how many are both."""
    classes, best = logits.shape[-1], logits.argmax(dim=-1)
    return {
        "actual": labels.bincount(minlength=classes),
        "said": best.bincount(minlength=classes),
        "right": labels[best == labels].bincount(minlength=classes),
    }


def macro_f1(sums: Sums) -> float:
    """The mean over the classes that occur of 2 right / (actual + said)."""
    occurs = sums["actual"] + sums["said"]
    return (2 * sums["right"] / occurs)[occurs > 0].double().mean().item()


def balanced_accuracy_pct(sums: Sums) -> float:
    """The mean recall in percent of the classes that occur."""
    occurs = sums["actual"] > 0
    return 100 * (sums["right"][occurs] / sums["actual"][occurs]).double().mean().item()


F1 = Measure(Metric(name="macro_f1", range=(0, 1), higher_is_better=True), count_by_class, macro_f1)
BALANCED = Measure(
    Metric(name="balanced_accuracy_pct", unit="%", range=(0, 100), higher_is_better=True, decimals=1),
    count_by_class,
    balanced_accuracy_pct,
)
FURTHER_F1 = replace(image_classification, measures=(ACCURACY, LOSS, F1))
BALANCED_FIRST = replace(image_classification, measures=(BALANCED, LOSS))

# scikit-learn's figures of the same predictions, which know nothing of the counts above.

Figures = Callable[[list[int], list[int]], float]


def sklearn_f1(labels: list[int], predictions: list[int]) -> float:
    return float(f1_score(labels, predictions, average="macro"))


def sklearn_balanced_accuracy(labels: list[int], predictions: list[int]) -> float:
    return 100 * float(balanced_accuracy_score(labels, predictions))


def expected(done: Outcome, figure: Figures, precision: str) -> float:
    """`figure` of what the final weights of a run say in a precision, on the evaluation split as a whole."""
    model = TinyNet(10).eval()
    model.load_state_dict(done.weights())
    cpu = torch.device("cpu")
    config = load(done.folder / "config.yaml")
    labels: list[int] = []
    predictions: list[int] = []
    with torch.no_grad():
        for batch in image_classification.data(config, done.summary.seed or 0, cpu, smoke=False).evaluation.epoch(0):
            with Precision(precision, cpu).forward():
                predictions += model(batch["images"]).argmax(dim=1).tolist()
            labels += batch["labels"].tolist()
    return figure(labels, predictions)


def runs_of(task: Task, out: Path) -> dict[str, list[Outcome]]:
    """Finished runs with two seeds in FP32 and bf16, by precision."""
    return {
        precision: [run(out, precision=precision, task=task, options=("--seed", str(seed))) for seed in (0, 1)]
        for precision in ("fp32", "bf16")
    }


def rows_of(out: Path) -> dict[str, Row]:
    plan = Plan(command="", margin=0.005, precisions=["fp32", "bf16"], seeds=[0, 1])
    return {row.precision: row for row in compare(out / "tiny", plan).rows}


@pytest.mark.parametrize(
    ("task", "measure", "figure"),
    [(FURTHER_F1, F1, sklearn_f1), (BALANCED_FIRST, BALANCED, sklearn_balanced_accuracy)],
    ids=["a further one", "the first one"],
)
def test_a_metric_of_a_script_stands_in_every_record_as_scikit_learn_counts_it(
    task: Task, measure: Measure, figure: Figures, tmp_path: Path
) -> None:
    metric, runs = measure.metric, runs_of(task, tmp_path)
    for precision, outcomes in runs.items():
        for done in outcomes:
            assert done.status == 0, done.err
            assert metric in done.summary.metrics
            assert done.summary.metric == task.metric.key
            value = expected(done, figure, precision)
            assert done.figure(metric.key) == pytest.approx(value)
            column = done.column(metric.key)
            assert list(column) == [6, 12]
            assert column[12] == pytest.approx(value)
            assert f"{metric.label} {metric.text(column[12])}" in done.out
            if precision != "fp32":
                in_fp32 = expected(done, figure, "fp32")
                assert done.column(metric.fp32_key) == {12: pytest.approx(in_fp32)}
                assert done.figure(metric.fp32_key) == pytest.approx(in_fp32)
    means = {precision: math.fsum(done.figure(metric.key) for done in runs[precision]) / 2 for precision in runs}
    difference = means["bf16"] - means["fp32"]
    rows = rows_of(tmp_path)
    if measure is task.measures[0]:
        for precision, row in rows.items():
            assert (row.metric, row.seeds) == (metric, 2)
            assert row.mean == pytest.approx(means[precision])
        assert rows["bf16"].difference == pytest.approx(difference, abs=1e-9)
        assert rows["bf16"].margin == pytest.approx(0.5)  # 0.005 of a range of 100
        assert rows["bf16"].verdict is not None
        for done in runs["fp32"]:
            assert done.summary.best == {metric.key: max(done.column(metric.key).values())}
    else:
        for precision, row in rows.items():
            [result] = [result for result in row.others if result.metric == metric]
            assert result.mean == pytest.approx(means[precision])
            assert result.sd is not None
        [of_bf16] = [result for result in rows["bf16"].others if result.metric == metric]
        assert of_bf16.difference == pytest.approx(difference, abs=1e-9)


def test_metrics_with_one_count_are_counted_once() -> None:
    calls: list[int] = []

    def counting(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        calls.append(len(labels))
        return count_by_class(logits, labels)

    shared = replace(image_classification, measures=(replace(F1, count=counting), replace(BALANCED, count=counting)))
    logits = torch.eye(10)[[0, 1, 2, 2]]
    labels = torch.tensor([0, 1, 2, 3])
    values = shared.summarise(shared.score(logits, labels))
    assert calls == [4]
    assert values["eval/macro_f1"] == pytest.approx(sklearn_f1(labels.tolist(), [0, 1, 2, 2]))
    assert values["eval/balanced_accuracy_pct"] == pytest.approx(75.0)


# Top-5 accuracy


def top5(logits: Tensor, labels: Tensor, sizes: tuple[int, ...]) -> dict[str, float]:
    """The image metrics over batches of these sizes."""
    sums: dict[str, Tensor] = {}
    for part, given in zip(logits.split(sizes), labels.split(sizes), strict=True):
        for name, value in image_classification.score(part, given).items():
            sums[name] = sums.get(name, torch.tensor(0)) + value
    return image_classification.summarise(sums)


@pytest.mark.parametrize("classes", [20, 1000])
def test_top5_accuracy_is_the_share_of_labels_among_the_five_largest_logits(classes: int) -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(50, classes, generator=draw)
    labels = torch.randint(0, classes, (50,), generator=draw)
    logits[torch.arange(30), labels[:30]] += 2  # so that some are right
    hits = sum(label in row.topk(5).indices.tolist() for row, label in zip(logits, labels.tolist(), strict=True))
    assert 0 < hits < 50
    values = top5(logits, labels, (16, 16, 18))
    assert values["eval/top5_accuracy"] == hits / 50
    assert values["eval/top5_accuracy"] > values["eval/accuracy"]


def test_top5_accuracy_is_absent_with_fewer_than_20_classes(fp32: Outcome) -> None:
    assert "eval/top5_accuracy" not in top5(torch.randn(4, 19), torch.arange(4), (2, 2))
    assert "eval/top5_accuracy" not in fp32.summary.final
    assert TOP5_ACCURACY.metric not in fp32.summary.metrics
    assert not any("eval/top5_accuracy" in row for row in fp32.rows)


def test_top5_accuracy_stands_in_the_record_of_a_run_with_20_classes(tmp_path: Path) -> None:
    done = run(tmp_path, "num_classes=20", "max_steps=2")
    assert TOP5_ACCURACY.metric in done.summary.metrics
    assert done.figure("eval/top5_accuracy") >= done.figure("eval/accuracy")


def test_every_task_names_a_deciding_metric_whose_direction_and_range_are_declared() -> None:
    for name in ("resnet", "bert", "gpt2", "t5"):
        task = script_of(TINY, [f"model={name}"]).task
        assert task.metric == task.metrics[0]
        assert all(metric.range != (None, None) for metric in task.metrics)
        assert len({metric.key for metric in task.metrics}) == len(task.metrics)

"""Metrics: a new one is declared in one script and then stands in every record, the comparison's included."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor

from reports.analysis.comparison import compare
from reports.records.comparison import Plan, Row
from reports.records.files import write_record
from reports.records.metric import Metric
from reports.records.summary import Summary, read_summary, to_hex
from tests.experiment.harness import ROOT, TINY, Outcome, TinyNet, build, run
from train.cli.scripts import script_of
from train.engine.errors import Refused
from train.engine.precision import Precision
from train.experiment import metrics
from train.experiment.config import load
from train.experiment.metrics import ACCURACY, LOSS, MATTHEWS_CORRELATION, TOP5_ACCURACY, Measure, Sums
from train.experiment.setup import Script, setup
from train.experiment.tasks import Task, image_classification, sequence_classification

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


def binary(seed: int, classes: int = 2) -> tuple[Tensor, Tensor]:
    """Logits (300, classes) and labels of 0 and 1, of which most are right."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (300,), generator=draw)
    logits = torch.randn(300, classes, generator=draw)
    logits[torch.arange(300), labels] += 1.0
    return logits, labels


@pytest.mark.parametrize(
    ("measure", "oracle"), [(MATTHEWS_CORRELATION, matthews_corrcoef), (metrics.F1, f1_score)], ids=["matthews", "f1"]
)
def test_a_metric_of_two_classes_is_scikit_learns_whatever_the_batches(
    measure: Measure, oracle: Callable[[Tensor, Tensor], float]
) -> None:
    for seed in range(5):
        logits, labels = binary(seed)
        sums: dict[str, Tensor] = {}
        for start in range(0, 300, 70):
            part = slice(start, start + 70)
            for name, value in measure.count(logits[part], labels[part]).items():
                sums[name] = sums.get(name, torch.tensor(0)) + value
        assert not sums["outcomes"].is_floating_point()
        assert measure.compute(sums) == pytest.approx(oracle(labels, logits.argmax(dim=1)), abs=1e-12)


def test_a_class_that_is_never_predicted_has_no_correlation_and_no_f1() -> None:
    labels = torch.tensor([0, 1, 0])
    logits = torch.tensor([[1.0, 0.0]] * 3)
    assert MATTHEWS_CORRELATION.compute(MATTHEWS_CORRELATION.count(logits, labels)) == 0.0
    assert metrics.F1.compute(metrics.F1.count(logits, labels)) == 0.0
    assert matthews_corrcoef(labels, logits.argmax(dim=1)) == 0.0


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("glue/cola", ["matthews_correlation", "accuracy", "loss", "top5_accuracy"]),
        ("glue/mrpc", ["f1", "accuracy", "loss", "top5_accuracy"]),
        ("glue/qqp", ["f1", "accuracy", "loss", "top5_accuracy"]),
        ("glue/rte", ["accuracy", "loss", "top5_accuracy"]),
    ],
)
def test_a_data_set_is_judged_by_the_metric_of_its_benchmark(data: str, names: list[str]) -> None:
    config = load(ROOT / "configs" / "bert_sst2.yaml", [f"data.name={data}"])
    assert [metric.name for metric in sequence_classification.of(config).metrics] == names


def test_a_task_with_a_deciding_metric_of_its_own_keeps_it() -> None:
    config = load(ROOT / "configs" / "bert_sst2.yaml", ["data.name=glue/cola"])
    task = replace(sequence_classification, measures=(LOSS, ACCURACY))
    assert task.of(config) is task


def test_a_run_on_cola_is_judged_by_matthews_correlation(tmp_path: Path) -> None:
    config = ROOT / "configs" / "bert_digits.yaml"
    script = script_of(config)
    changes = ("data.name=glue/cola", "num_classes=2", "vocab_size=1000")
    done = run(
        tmp_path,
        *changes,
        options=("--smoke",),
        config=config,
        build=script.build,
        task=script.task,
        forward=script.task.forward,
    )
    assert done.status == 0, done.err
    summary = read_summary(tmp_path / "smoke" / "bert_digits" / "fp32-s0" / "summary.json")
    assert summary.metric == "eval/matthews_correlation"
    assert summary.right is None


@pytest.mark.parametrize("name", ["accuracy_fp32", "held_out_accuracy", "accuracy_sd", "accuracy_difference"])
def test_a_metric_with_the_name_of_another_ones_figure_is_refused(name: str) -> None:
    metric = ACCURACY.metric.model_copy(update={"name": name})
    with pytest.raises(Refused, match=f"a metric cannot be called '{name}': .* for 'accuracy'"):
        replace(image_classification, measures=(ACCURACY, replace(ACCURACY, metric=metric)))


def test_a_deciding_metric_that_cannot_be_computed_ends_the_run_with_its_name(tmp_path: Path) -> None:
    done = run(tmp_path, task=replace(image_classification, measures=(TOP5_ACCURACY, ACCURACY)))  # of 10 classes
    assert done.status not in (0, 2, 3, 75)
    reason = "the evaluation gives no top5 accuracy, by which the task judges the weights"
    assert (done.summary.status, reason in (done.summary.reason or "")) == ("failed", True)
    assert "KeyError" not in done.err


def test_a_run_records_which_evaluation_samples_it_gets_right(finished: Outcome) -> None:
    config, precision = load(finished.folder / "config.yaml"), finished.summary.precision.requested or ""
    wired = setup(Script(build, image_classification), config, precision, 0, torch.device("cpu"))
    wired.model.load_state_dict(finished.weights())
    wired.model.eval()
    right = []
    with torch.no_grad(), wired.precision.forward():
        for batch in wired.data.evaluation.epoch(0):
            right += (wired.model(batch["images"]).argmax(dim=1) == batch["labels"]).tolist()
    assert finished.summary.right_samples() == right
    assert sum(right) / len(right) == pytest.approx(finished.figure("eval/accuracy"))


def test_samples_in_hexadecimal_digits_are_read_back() -> None:
    for count in range(1, 10):
        right = [index % 3 == 0 for index in range(count)]
        assert Summary(right=to_hex(right), eval_samples=count).right_samples() == right
    assert to_hex([True, False, True, True, True]) == "b8"
    assert Summary(eval_samples=3).right_samples() == []


def test_the_samples_at_hand_and_new_ones_have_intervals_of_their_own(tmp_path: Path) -> None:
    task = replace(image_classification, measures=(ACCURACY, LOSS))
    runs = runs_of(task, tmp_path)
    row = rows_of(tmp_path)["bf16"]
    assert row.interval is not None
    assert row.population is not None
    assert row.population.value == pytest.approx(row.interval.value)
    samples = [[done.summary.right_samples() for done in runs[precision]] for precision in ("fp32", "bf16")]
    assert row.eval_samples == len(samples[0][0])
    differences = [sum(map(int, own)) - sum(map(int, other)) for other, own in zip(*samples, strict=True)]
    assert row.population.value == pytest.approx(sum(differences) / 2 / row.eval_samples)
    for folder in (tmp_path / "tiny").glob("bf16-*"):
        older = read_summary(folder / "summary.json").model_copy(update={"right": None})
        write_record(folder / "summary.json", older)
    assert rows_of(tmp_path)["bf16"].population is None


def test_a_run_that_resumes_after_its_last_evaluation_records_the_samples_too(tmp_path: Path) -> None:
    before = run(tmp_path).summary
    (tmp_path / "tiny" / "fp32-s0" / "summary.json").unlink()
    resumed = run(tmp_path)
    assert resumed.status == 0, resumed.err
    assert "resumes from step 12 of 12" in resumed.out
    assert resumed.summary.right == before.right
    assert before.right is not None

"""Published figures and their verdicts: the rule, by hand, and the way a source selects its figure."""

import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from reports.analysis import published, reproduction
from reports.analysis.published import Measure, measure_of
from reports.analysis.reproduction import (
    ABOVE,
    BELOW,
    NOT_RUN,
    REPRODUCED,
    SCALED_DOWN,
    WITHIN_NOISE,
    Reproduction,
    judge_reproduction,
    reproductions,
)
from reports.analysis.selection import figure
from reports.analysis.statistics import pooled_deviation, standard_deviation
from reports.records.config import Experiment, read_config
from reports.records.evaluation import Evaluation
from reports.records.files import write_record, write_text
from reports.records.metric import Metric
from reports.records.metrics import History
from reports.records.published import PublishedRow, read_published
from tests.reports.made_runs import (
    compared,
    experiment,
    write_benchmark,
    write_config,
    write_evaluations,
    write_run,
    write_three,
)
from train.data import catalog

ACCURACY = PublishedRow(
    id="a", metric="test top-1", unit="%", value="92.0", selection="last", our_data="dots", our_metric="accuracy"
)
ERROR = ACCURACY.model_copy(update={"metric": "test error", "value": "8.0", "our_metric": "1 - accuracy"})
LOSS = ACCURACY.model_copy(update={"metric": "val loss", "unit": "nats/char", "value": "2.0", "our_metric": "loss"})
FRACTION = ACCURACY.model_copy(update={"unit": "fraction", "value": "0.92"})
TOP1_ERROR = ERROR.model_copy(update={"our_metric": "top1_error"})
MATTHEWS = ACCURACY.model_copy(update={"unit": "x100", "our_metric": "matthews_correlation"})
BLEU = ACCURACY.model_copy(update={"unit": "BLEU", "our_metric": "bleu"})
METRICS = [
    Metric(name="accuracy", unit="%", range=(0, 1), higher_is_better=True, decimals=2),
    Metric(name="loss", unit="nats", range=(0, None), higher_is_better=False),
]


def measure(row: PublishedRow) -> Measure:
    """By accuracy or loss, as the row names it."""
    measure = measure_of(row, METRICS)
    assert measure is not None
    return measure


def ruling(
    values: list[float], row: PublishedRow, error: float = 0.0, others: Sequence[list[float]] = ()
) -> Reproduction:
    """The verdict on `values` of one precision, in an experiment that has those of the `others` too."""
    one = Reproduction(row, "tiny", "fp32", measured=tuple(values), sd=standard_deviation(values))
    return judge_reproduction(one, measure(row), *pooled_deviation([values, *others]), error)


@pytest.mark.parametrize(
    ("row", "values", "verdict"),
    [
        (ACCURACY, [91.6, 92.3, 91.9], REPRODUCED),
        (ACCURACY, [91.5], REPRODUCED),
        (ACCURACY, [90.4, 92.0, 91.5, 90.4, 92.0], WITHIN_NOISE),
        (ACCURACY, [90.4, 92.0, 91.5], BELOW),  # two degrees of freedom do not know the noise
        (ACCURACY, [89.0, 93.4, 91.5, 88.0, 93.4], BELOW),  # 95% of single runs lie within 7 points: no statement
        (ACCURACY, [92.4, 91.5, 10.0], BELOW),
        (ACCURACY, [89.0, 93.0], BELOW),  # by Student's t with one degree of freedom 44 points either way would pass
        (ACCURACY, [91.0], BELOW),
        (ACCURACY, [93.0, 93.1, 93.05], ABOVE),
        (ERROR, [9.0, 9.1, 9.05], BELOW),
        (ERROR, [7.0, 7.1, 7.05], ABOVE),
        (LOSS, [2.019, 2.019], REPRODUCED),
        (LOSS, [2.05, 2.051], BELOW),
        (FRACTION, [0.916], REPRODUCED),
        (FRACTION, [0.914], BELOW),
    ],
)
def test_the_rule(row: PublishedRow, values: list[float], verdict: str) -> None:
    assert ruling(values, row).verdict == verdict


def test_few_runs_ask_for_more_because_their_noise_is_not_known() -> None:
    one, three = ruling([91.0], ACCURACY), ruling([91.0, 91.01, 91.02], ACCURACY)
    unknown = "is not known, and more seeds would tell it"
    assert one.rule == f"-1 from the published 92, beyond 0.5; the noise of 1 run {unknown}"
    assert three.rule.endswith(f"beyond 0.5; the noise of 3 runs {unknown}")
    assert one.noise is three.noise is None


def test_gap_and_noise_are_figures_of_their_own() -> None:
    row = ACCURACY.model_copy(update={"evaluated_samples": 100})
    found = ruling([90.0, 92.4, 91.5], row, error=1.0, others=[[1.0, 2.0, 3.0], [5.0]])
    assert found.gap == pytest.approx(-0.7)
    # Variances 1.47 and 1, of 2 degrees of freedom each; t of 4 is 2.776445, and the normal 1.95996 of the error.
    over_runs = 2.776445 * math.sqrt((1.47 + 1) / 2) * math.sqrt(4 / 3)
    assert found.noise == pytest.approx(math.sqrt(over_runs**2 + 1.959964**2), rel=1e-5)
    far = ruling([91.0, 91.01, 91.02, 91.01, 91.0], ACCURACY)
    assert (far.verdict, far.rule.rpartition("; ")[2]) == (BELOW, f"the noise of 5 runs is {far.noise:.3g}")


def test_the_mean_of_many_runs_of_the_source_has_less_noise_than_one() -> None:
    values = [90.4, 92.0, 91.5, 90.4, 92.0]  # mean 91.26, sd 0.810
    of_one, of_thirty = ruling(values, ACCURACY), ruling(values, ACCURACY.model_copy(update={"runs": 30}))
    assert of_one.verdict == WITHIN_NOISE
    assert of_one.noise == pytest.approx(2.776445 * statistics.stdev(values) * math.sqrt(1 + 1 / 5))
    assert of_thirty.noise == pytest.approx(2.776445 * statistics.stdev(values) * math.sqrt(1 / 30 + 1 / 5))
    near = [value + 0.1 for value in values]
    assert ruling(near, ACCURACY.model_copy(update={"runs": 30})).rule.endswith("where 95% of means of 30 runs lie")
    lower = [value - 0.8 for value in values]  # mean 90.46
    assert ruling(lower, ACCURACY).verdict == WITHIN_NOISE
    assert ruling(lower, ACCURACY.model_copy(update={"runs": 30})).verdict == BELOW


def test_seeds_that_agree_by_chance_fare_no_worse_than_others() -> None:
    spread = [[90.4, 92.0, 91.4], [90.6, 92.1, 91.5]]
    agreeing, apart = [91.26, 91.26, 91.27], [90.4, 92.0, 91.39]
    assert ruling(agreeing, ACCURACY, others=spread).verdict == ruling(apart, ACCURACY, others=spread).verdict
    assert ruling(agreeing, ACCURACY, others=spread).verdict == WITHIN_NOISE


@pytest.mark.parametrize("name", ["f1", None, "1 - f1"])
def test_a_metric_of_the_same_unit_does_not_measure_a_row_of_another(name: str | None) -> None:
    assert measure_of(ACCURACY.model_copy(update={"our_metric": name}), METRICS) is None


@pytest.mark.parametrize(
    ("row", "metric", "value", "expected"),
    [
        (ACCURACY, METRICS[0], 0.92, 92.0),
        (FRACTION, METRICS[0], 0.92, 0.92),
        (ERROR, METRICS[0], 0.92, 8.0),
        (LOSS, METRICS[1], 2.0, 2.0),
        (ACCURACY, Metric(name="accuracy", unit="%", range=(0, 100), higher_is_better=True), 92.0, 92.0),
        (FRACTION, Metric(name="accuracy", unit="%", range=(0, 100), higher_is_better=True), 92.0, 0.92),
        (ERROR, Metric(name="accuracy", unit="%", range=(0, 100), higher_is_better=True), 92.0, 8.0),
        (TOP1_ERROR, Metric(name="top1_error", unit="%", range=(0, 1), higher_is_better=False), 0.08, 8.0),
        (MATTHEWS, Metric(name="matthews_correlation", range=(-1, 1), higher_is_better=True), 0.5653, 56.53),
        (BLEU, Metric(name="bleu", unit="BLEU", higher_is_better=True), 28, 28),
    ],
)
def test_a_value_is_read_in_the_unit_of_the_row(
    row: PublishedRow, metric: Metric, value: float, expected: float
) -> None:
    measured = measure_of(row, [metric])
    assert measured is not None
    assert measured.read(value) == pytest.approx(expected)
    assert measured.higher_is_better == (row not in (ERROR, LOSS, TOP1_ERROR))


def test_a_row_of_another_unit_is_not_measured() -> None:
    assert measure_of(ACCURACY.model_copy(update={"unit": "img/s"}), METRICS) is None
    assert measure_of(LOSS, METRICS[:1]) is None


def test_every_row_that_a_configuration_names_is_published() -> None:
    rows, aims = published.aimed_at()
    assert len(rows) == 395
    assert "lenet5_fashion_mnist" in aims
    assert all(math.isfinite(rows[identity].target) for config in aims.values() for identity in config.published)


def test_every_published_row_has_a_source_and_a_selection() -> None:
    for row in published.rows().values():
        assert row.source, row.id
        assert row.selection, row.id


def test_a_row_without_a_number_is_named_when_it_is_judged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row 'a': value '93,5' is not a finite number"):
        ruling([92.0], ACCURACY.model_copy(update={"value": "93,5"}))
    (tmp_path / "published.csv").write_text("id,value,evaluated_samples\na,1,all\n")
    with pytest.raises(ValueError, match="evaluated_samples"):
        read_published(tmp_path / "published.csv")


SQUAD = PublishedRow(id="squad", metric="F1", dataset="SQuAD v1.1", unit="%", value="90.9")
CIFAR = ACCURACY.model_copy(update={"id": "cifar", "dataset": "CIFAR-10", "our_data": "cifar10"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (SQUAD, "row 'squad' is of F1 on SQuAD v1.1, which no experiment measures"),
        (CIFAR, "row 'cifar' is of test top-1 on CIFAR-10 (data.name 'cifar10'), not on 'dots'"),
    ],
)
def test_a_row_of_another_data_set_or_metric_is_refused_by_name(
    aimed: Path, monkeypatch: pytest.MonkeyPatch, row: PublishedRow, message: str
) -> None:
    configured(monkeypatch, published=[row.id])
    monkeypatch.setattr(published, "rows", lambda: {row.id: row})
    with pytest.raises(ValueError, match=re.escape(f"configs/tiny.yaml: published: {message}")):
        reproductions(aimed)
    record(aimed, published=[row.id])
    (found,) = reproduction.of_comparison(aimed / "tiny", compared(aimed / "tiny"))
    assert (found.verdict, found.rule, found.measured) == (NOT_RUN, message, ())


def test_every_row_with_a_metric_of_ours_has_a_data_set_of_the_catalogue() -> None:
    sets = {*catalog.IMAGE_SETS, *catalog.CLASSIFICATION_SETS, *catalog.LANGUAGE_SETS}
    names = {"accuracy", "1 - accuracy", "loss", "matthews_correlation"}
    for row in published.rows().values():
        assert (row.our_data is None) == (row.our_metric is None), row.id
        assert row.our_data is None or (row.our_data in sets and row.our_metric in names), row.id


def test_the_pair_that_resnet50_aims_at_has_one_recipe() -> None:
    config = published.configurations()["resnet50_imagenet"]
    assert config.published == ["nv-rn50-a100-acc90__tf32", "nv-rn50-a100-acc90__amp"]
    # 256 images on each of 8 GPUs, and 0.256 for 256 images.
    assert config.batch_size * config.accumulate == 2048
    assert config.optimizer.lr == pytest.approx(0.256 * 2048 / 256)


def test_a_row_that_cannot_be_aimed_at_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, published=["frist-row"])
    monkeypatch.setattr(published, "rows", lambda: {"first-row": ACCURACY, "other": ACCURACY})
    message = "configs/tiny.yaml: published: unknown published row 'frist-row': did you mean 'first-row'?"
    with pytest.raises(ValueError, match=re.escape(message)):
        reproductions(Path("nowhere"))


EVALUATIONS = [  # accuracy, loss, held-out accuracy, held-out loss
    (0.80, 0.60, 0.81, 0.61),
    (0.85, 0.50, 0.84, 0.49),
    (0.84, 0.51, 0.85, 0.47),
    (0.86, 0.52, 0.86, 0.48),
    (0.87, 0.55, 0.83, 0.56),
    (0.88, 0.40, 0.82, 0.60),
]


@pytest.mark.parametrize(
    ("selection", "held_out", "expected"),
    [
        ("last", False, 88.0),
        ("not stated", False, 88.0),
        ("best", False, 88.0),
        ("best", True, 86.0),  # where the held-out accuracy is highest
        ("early stopping", False, 85.0),  # three epochs without a lower loss, though a later one has it
        ("early stopping", True, 84.0),
    ],
)
def test_a_figure_is_selected_as_the_source_selects_it(selection: str, held_out: bool, expected: float) -> None:
    names = ("eval/accuracy", "eval/loss", "eval/held_out_accuracy", "eval/held_out_loss")
    history = History([dict(zip(names if held_out else names[:2], values, strict=False)) for values in EVALUATIONS])
    assert figure(history, selection, measure(ACCURACY), held_out) == pytest.approx(expected)
    assert figure(history, selection, measure(ERROR), held_out) == pytest.approx(100 - expected)


@pytest.mark.parametrize("selection", ["best", "early stopping"])
def test_what_was_held_out_and_is_not_in_the_record_is_not_replaced_by_the_evaluation(selection: str) -> None:
    history = History([{"eval/accuracy": accuracy, "eval/loss": loss} for accuracy, loss, *_ in EVALUATIONS])
    assert figure(history, selection, measure(ACCURACY), held_out=True) is None


NAN, INFINITE = math.nan, math.inf


@pytest.mark.parametrize(
    ("selection", "figures", "expected"),
    [
        ("best", [(NAN, 0.5), (0.8, 0.5), (0.7, 0.4)], 80.0),
        ("best", [(0.8, 0.5), (INFINITE, 0.5), (NAN, 0.1)], 80.0),
        ("early stopping", [(0.1, NAN), (0.8, 0.5), (0.7, NAN), (0.6, 0.6)], 80.0),
        ("early stopping", [(0.8, 0.5), (0.1, NAN), (0.1, NAN), (0.1, NAN), (0.9, 0.1)], 80.0),
        ("last", [(0.8, 0.5), (NAN, 0.5)], None),  # what was taken in place of it would not be the last
        ("best", [(NAN, NAN)], None),
        ("early stopping", [(0.8, NAN)], None),
        ("last", [], None),
    ],
)
def test_what_is_not_finite_is_no_measurement(
    selection: str, figures: list[tuple[float, float]], expected: float | None
) -> None:
    history = History([{"eval/accuracy": accuracy, "eval/loss": loss} for accuracy, loss in figures])
    assert figure(history, selection, measure(ACCURACY)) == (expected and pytest.approx(expected))


def test_the_lowest_loss_is_not_one_that_is_not_finite() -> None:
    losses = History([{"eval/loss": value} for value in (NAN, 2.0, 1.5, -INFINITE, 1.7)])
    assert figure(losses, "best", measure(LOSS)) == 1.5


@pytest.fixture
def aimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment `tiny` that aims at one row of its own, with three runs in each precision."""
    write_three(tmp_path / "tiny")
    for run in (tmp_path / "tiny").glob("*-s*"):
        accuracy = {"fp32": 0.92, "bf16": 0.93, "fp16": 0.90}[run.name[:4]]
        figures = {"eval/loss": 1.0, "eval/accuracy": accuracy + int(run.name[-1]) / 1000}
        write_evaluations(run, figures)
    write_record(tmp_path / "tiny" / "comparison.json", compared(tmp_path / "tiny"))
    monkeypatch.setattr(published, "rows", lambda: {"a": ACCURACY, "b": ACCURACY.model_copy(update={"id": "b"})})
    return tmp_path


def configured(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """The recorded experiment aims at row a; its configuration has these `changes`."""
    config = Experiment.model_validate({**experiment().model_dump(), "published": ["a"], **changes})
    monkeypatch.setattr(published, "configurations", lambda: {"tiny": config})


def publish(monkeypatch: pytest.MonkeyPatch, row: PublishedRow = ACCURACY, **changes: object) -> None:
    """Row a, the only one, is `row` with these `changes`."""
    monkeypatch.setattr(published, "rows", lambda: {"a": row.model_copy(update=changes)})


def test_the_records_give_a_verdict_in_each_precision(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    assert {found.precision: found.verdict for found in reproductions(aimed)} == {
        "fp32": REPRODUCED,
        "bf16": ABOVE,
        "fp16": BELOW,
    }


def test_mean_gap_and_noise_of_the_runs_stand_beside_the_verdict(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    _, above, below = reproductions(aimed)
    assert (above.mean, above.sd, above.gap) == pytest.approx((93.1, 0.1, 1.1))
    assert (below.mean, below.sd, below.gap) == pytest.approx((90.1, 0.1, -1.9))
    # The variance of all three precisions is 0.01, of 6 degrees of freedom: 2.447 * 0.1 * sqrt(4 / 3).
    assert above.noise == pytest.approx(0.2826, abs=1e-4)


def test_the_error_of_a_source_that_evaluated_on_a_few_samples_counts(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    publish(monkeypatch, LOSS, value="1.05", evaluated_samples=100)
    for seed in range(3):
        run = write_run(aimed / "tiny", "fp32", seed, 0.92, final_weights_sha256=f"{seed}" * 64)
        write_evaluations(run, {"eval/loss": 1.0, "eval/accuracy": 0.92})
    assert reproductions(aimed)[0].verdict == ABOVE
    unmeasured = "; the error of the source's sample of 100 was not measured for 3 of 3 runs; selection"
    assert unmeasured in reproductions(aimed)[0].rule

    def measured(seed: int, weights: str) -> None:
        # Of a mean over 100 samples: 0.03, times 1.96 0.059.
        noise = Evaluation(weights_sha256=weights, loss=1.0, samples=1000, labels_per_sample=1, sample_sd=0.3)
        write_record(aimed / "tiny" / f"fp32-s{seed}" / "evaluation.json", noise)

    measured(0, "of others")
    assert reproductions(aimed)[0].verdict == ABOVE
    assert unmeasured in reproductions(aimed)[0].rule
    measured(0, "0" * 64)
    assert "sample of 100 was not measured for 2 of 3 runs; " in reproductions(aimed)[0].rule
    measured(1, "1" * 64)
    measured(2, "2" * 64)
    found = reproductions(aimed)[0]
    assert found.verdict == WITHIN_NOISE
    assert found.noise == pytest.approx(0.0588, rel=1e-3)
    assert "within 0.0588, where 95% of single runs lie; selection of the source: " in found.rule


def test_a_reason_ends_with_how_the_source_selects(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    endings = {
        "not stated": "; selection of the source: not stated; of each run of ours: its last evaluation",
        "best": "; selection of the source: best; of each run of ours: its best evaluation on the evaluation samples",
    }
    for selection, ending in endings.items():
        publish(monkeypatch, selection=selection)
        rules = {found.verdict: found.rule for found in reproductions(aimed)}
        assert rules[ABOVE].endswith(ending)
        assert rules[BELOW].endswith(ending)
        assert rules[REPRODUCED] == "+0.1 from the published 92, within 0.5" + ending


def test_a_finished_run_without_a_finite_evaluation_is_named_and_not_counted(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"name": "dots", "held_out": 10}
    configured(monkeypatch, data=data)
    publish(monkeypatch, selection="best")
    record(aimed, data=data)

    def evaluated(seed: int, **held_out: float) -> None:
        figures = {"eval/loss": 1.0, "eval/accuracy": 0.93, **{f"eval/{key}": held_out[key] for key in held_out}}
        write_evaluations(aimed / "tiny" / f"bf16-s{seed}", figures)

    for seed in range(3):
        evaluated(seed, held_out_accuracy=0.8)
    evaluated(1)
    found = {one.precision: one for one in reproductions(aimed)}["bf16"]
    assert (found.verdict, found.measured) == (ABOVE, (93.0, 93.0))
    assert "; no finite evaluation to take: bf16-s1; " in found.rule
    evaluated(0)
    evaluated(2)
    found = {one.precision: one for one in reproductions(aimed)}["bf16"]
    expected = (NOT_RUN, None, "no finite evaluation to take: bf16-s0, bf16-s1, bf16-s2")
    assert (found.verdict, found.mean, found.rule) == expected


def test_the_best_of_many_runs_is_no_figure_that_a_mean_reproduces(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    publish(monkeypatch, selection="best of 30 runs")
    found = reproductions(aimed)[0]
    # Of each run the last evaluation: 0.920, 0.921, 0.922.
    assert found.verdict == SCALED_DOWN
    assert found.mean == pytest.approx(92.1)
    assert found.rule.startswith("the mean of our runs against the best of 30 runs; +0.1 from the published 92; ")
    assert found.rule.endswith("selection of the source: best of 30 runs; of each run of ours: its last evaluation")


def test_a_run_that_ended_before_it_would_have_been_stopped_is_named(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    publish(monkeypatch, selection="early stopping")
    for seed, losses in enumerate([(1.0, 1.1, 1.2, 1.3), (1.0, 0.9, 1.2, 1.3), (1.0, 1.1, 1.2, 0.5)]):
        lines = [{"eval/loss": loss, "eval/accuracy": 0.92} for loss in losses]
        write_evaluations(aimed / "tiny" / f"fp32-s{seed}", *lines)
    found = reproductions(aimed)[0]
    assert found.verdict == REPRODUCED
    assert "; the source would have trained on where these ended: fp32-s1, fp32-s2; " in found.rule


def test_a_mean_whose_interval_leaves_the_published_figure_out_says_so() -> None:
    apart = ruling([90.0, 91.0, 89.0, 90.5, 89.5], ACCURACY)
    # t 2.776, sd 0.79: single runs 2.4 from the mean of 90, the mean itself 0.98
    assert apart.verdict == WITHIN_NOISE
    assert apart.rule.endswith("; the 95% interval of our mean lies below it")
    near = ruling([90.5, 93.0, 89.5, 92.5, 90.5], ACCURACY)  # mean 91.2, sd 1.48, the mean itself 1.84
    assert (near.verdict, near.rule[-4:]) == (WITHIN_NOISE, " lie")


def test_a_reduced_recipe_makes_no_claim(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, reduced="2 of 200 epochs")
    for found in reproductions(aimed):
        assert found.verdict == SCALED_DOWN
        assert found.rule.startswith("2 of 200 epochs; ")


def record(folder: Path, **changes: object) -> None:
    """The runs' recorded configurations have these `changes`."""
    for run in (folder / "tiny").glob("*-s*"):
        recorded = read_config(run / "config.yaml").model_dump()
        write_config(run, Experiment.model_validate({**recorded, **changes}))


def test_a_run_that_departs_from_the_recipe_makes_no_claim(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, epochs=3)
    assert {found.verdict for found in reproductions(aimed)} == {SCALED_DOWN}
    assert reproductions(aimed)[0].rule.startswith("not as configs/tiny.yaml has it: epochs is 2 in place of 3; ")
    configured(monkeypatch, epochs=2)
    assert SCALED_DOWN not in {found.verdict for found in reproductions(aimed)}


def test_what_the_runs_say_of_their_reduction_counts(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    record(aimed, reduced="another model")
    assert all(found.rule.startswith("another model; ") for found in reproductions(aimed))


def test_a_comparison_has_the_rows_that_its_runs_aim_at(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    assert reproduction.of_comparison(aimed / "tiny", compared(aimed / "tiny")) == []
    record(aimed, published=["a", "gone"])
    *known, unknown = reproduction.of_comparison(aimed / "tiny", compared(aimed / "tiny"))
    assert [(found.precision, found.verdict, found.rule) for found in known] == [
        (found.precision, found.verdict, found.rule) for found in reproductions(aimed)
    ]
    expected = ("gone", NOT_RUN, "reports/published.csv has no row 'gone'")
    assert (unknown.row.id, unknown.verdict, unknown.rule) == expected


def test_without_a_record_it_was_not_run(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    (found,) = reproductions(aimed / "elsewhere")
    assert (found.verdict, found.rule) == (NOT_RUN, "no record")


def test_a_run_that_must_not_be_published_is_left_out(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    for seed in range(3):
        write_run(aimed / "tiny", "bf16", seed, environment={"git": {"commit": "1", "dirty": True}})
    verdicts = {found.precision: found.verdict for found in reproductions(aimed)}
    assert verdicts["bf16"] == NOT_RUN


def test_each_experiment_of_a_row_has_its_own_command(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = experiment().model_copy(update={"published": ["a"]})
    monkeypatch.setattr(published, "configurations", lambda: {"large": config, "small": config})
    found = reproductions(aimed / "elsewhere")
    assert [(one.experiment, one.command) for one in found] == [
        ("large", None),  # that which scripts/reproduce.sh runs
        ("small", "bash scripts/compare.sh configs/small.yaml"),
    ]


def test_hours_follow_from_operations_and_the_measured_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    costs = {"resnet20_digits": (100, 50), "large": (3600_000, 10)}
    text = json.dumps({name: {"forward_flops": flops, "samples": samples} for name, (flops, samples) in costs.items()})
    write_text(tmp_path / "reports" / "estimates.json", text)
    assert reproduction.hours(tmp_path) == {}  # without a measured speed nothing is said
    write_benchmark(tmp_path / "resnet20_digits", fp32=[0.4, 0.8, 3.2])
    # 80 samples of 100 operations in 0.8 seconds: 10,000 a second.
    assert reproduction.hours(tmp_path) == {"resnet20_digits": 0.5 / 3600, "large": 1.0}

"""Published figures and their verdicts: the rule, by hand, and the way a source selects its figure."""

import math
import re
import sys
from pathlib import Path

import pytest
import yaml

from reports import reproduce
from reports.analysis import published, reproduction
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
from reports.pages import published_table
from reports.records.files import write_json
from tests.reports.made_runs import compared, write_benchmark, write_evaluations, write_run, write_three

ACCURACY = {"id": "a", "metric": "test top-1", "unit": "%", "value": "92.0", "selection": "last"}
ERROR = {**ACCURACY, "metric": "test error", "value": "8.0"}
LOSS = {**ACCURACY, "metric": "val loss", "unit": "nats/char", "value": "2.0"}


@pytest.mark.parametrize(
    ("row", "values", "verdict"),
    [
        (ACCURACY, [91.6, 92.3, 91.9], REPRODUCED),
        (ACCURACY, [91.5], REPRODUCED),
        (ACCURACY, [90.4, 92.0, 91.5], WITHIN_NOISE),
        (ACCURACY, [90.0, 92.4, 91.5], BELOW),  # 95% of single runs lie within 6 points, which is no statement
        (ACCURACY, [92.4, 91.5, 10.0], BELOW),
        (ACCURACY, [89.0, 93.0], BELOW),  # by Student's t with one degree of freedom 44 points either way would pass
        (ACCURACY, [91.0], BELOW),
        (ACCURACY, [93.0, 93.1, 93.05], ABOVE),
        (ERROR, [9.0, 9.1, 9.05], BELOW),
        (ERROR, [7.0, 7.1, 7.05], ABOVE),
        (LOSS, [2.019, 2.019], REPRODUCED),
        (LOSS, [2.05, 2.051], BELOW),
        ({**ACCURACY, "unit": "fraction", "value": "0.92"}, [0.916], REPRODUCED),
        ({**ACCURACY, "unit": "fraction", "value": "0.92"}, [0.914], BELOW),
    ],
)
def test_the_rule(row: dict[str, str], values: list[float], verdict: str) -> None:
    assert judge_reproduction(values, row).verdict == verdict


def test_fewer_than_three_runs_say_that_their_noise_is_not_known() -> None:
    one, two = judge_reproduction([91.0], ACCURACY), judge_reproduction([91.0, 91.01], ACCURACY)
    assert one.rule == "-1 from the published 92, beyond 0.5; the noise of 1 run is not known well enough"
    assert two.rule.endswith("beyond 0.5; the noise of 2 runs is not known well enough")
    assert one.noise is two.noise is None


def test_gap_and_noise_are_figures_of_their_own() -> None:
    found = judge_reproduction([90.0, 92.4, 91.5], {**ACCURACY, "evaluated_samples": "100"}, error=1.0)
    assert found.gap == pytest.approx(-0.7)
    # sd 1.21244, t of 2 degrees of freedom 4.30265, and the normal 1.95996 of the error, in squares
    over_runs = 4.302653 * math.sqrt(1.47) * math.sqrt(4 / 3)
    assert found.noise == pytest.approx(math.sqrt(over_runs**2 + 1.959964**2), rel=1e-5)
    far = judge_reproduction([91.0, 91.01, 91.02], ACCURACY)
    assert (far.verdict, far.rule.rpartition("; ")[2]) == (BELOW, f"beyond the noise of 3 runs, {far.noise:.3g}")


@pytest.mark.parametrize("values", [[], [math.nan], [92.0, math.inf]])
def test_nothing_measured_is_no_verdict(values: list[float]) -> None:
    with pytest.raises(ValueError, match="a: nothing was measured"):
        judge_reproduction(values, ACCURACY)


def test_every_row_that_a_configuration_names_is_published() -> None:
    rows, aims = published.aimed_at()
    assert len(rows) == 395
    assert "lenet5_fashion_mnist" in aims


def test_every_published_row_has_a_source_and_a_selection() -> None:
    for row in published.rows().values():
        assert row["source"], row["id"]
        assert row["selection"], row["id"]


def test_published_rows_that_are_torn_or_stand_twice_are_named(tmp_path: Path) -> None:
    file = tmp_path / "published.csv"
    file.write_text("id,value\na,1\nb,2\na,3\n")
    with pytest.raises(ValueError, match=r"published\.csv: line 4: row 'a' stands twice"):
        published.rows(file)
    for torn in ("id,value\nb\n", "id,value\nb,2,3\n"):
        file.write_text(torn)
        with pytest.raises(ValueError, match=r"published\.csv: line 2: row 'b' has not the columns of the header"):
            published.rows(file)


@pytest.mark.parametrize("text", ["- a\n", "a\n", "", "a: [\n"])
def test_a_configuration_that_is_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"broken\.yaml: "):
        published.experiments(tmp_path)


@pytest.mark.parametrize(
    ("row", "aims", "message"),
    [
        ({"value": "93,5"}, ["first-row"], "published.csv: row 'first-row': value '93,5' is not a finite number"),
        ({"value": "nan"}, ["first-row"], "row 'first-row': value 'nan' is not a finite number"),
        ({"evaluated_samples": "all"}, ["first-row"], "row 'first-row': evaluated_samples 'all' is not a count"),
        ({}, ["frist-row"], "configs/tiny.yaml: published: unknown row 'frist-row': did you mean 'first-row'?"),
        ({}, "first-row", "configs/tiny.yaml: published: 'first-row' is not a list of row ids"),
    ],
)
def test_a_row_that_cannot_be_aimed_at_is_named(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, str], aims: object, message: str
) -> None:
    configured(monkeypatch, published=aims)
    other = {**ACCURACY, "id": "other", "value": "not a number, which nothing aims at"}
    rows = {"first-row": {**ACCURACY, "id": "first-row", **row}, "other": other}
    monkeypatch.setattr(published, "rows", lambda: rows)
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
    history = [dict(zip(names if held_out else names[:2], values, strict=False)) for values in EVALUATIONS]
    row = {**ACCURACY, "selection": selection}
    assert figure(history, row, held_out) == pytest.approx(expected)
    assert figure(history, {**row, "metric": "error"}, held_out) == pytest.approx(100 - expected)


@pytest.mark.parametrize("selection", ["best", "early stopping"])
def test_what_was_held_out_and_is_not_in_the_record_is_not_replaced_by_the_evaluation(selection: str) -> None:
    history = [dict(zip(("eval/accuracy", "eval/loss"), values, strict=False)) for values in EVALUATIONS]
    assert figure(history, {**ACCURACY, "selection": selection}, held_out=True) is None


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
    history = [{"eval/accuracy": accuracy, "eval/loss": loss} for accuracy, loss in figures]
    assert figure(history, {**ACCURACY, "selection": selection}) == (expected and pytest.approx(expected))


def test_the_lowest_loss_is_not_one_that_is_not_finite() -> None:
    losses = [{"eval/loss": value} for value in (NAN, 2.0, 1.5, -INFINITE, 1.7)]
    assert figure(losses, {**LOSS, "selection": "best"}) == 1.5


@pytest.fixture
def aimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment `tiny` that aims at one row of its own, with three runs in each precision."""
    write_three(tmp_path / "tiny")
    for run in (tmp_path / "tiny").glob("*-s*"):
        accuracy = {"fp32": 0.92, "bf16": 0.93, "fp16": 0.90}[run.name[:4]]
        figures = {"eval/loss": 1.0, "eval/accuracy": accuracy + int(run.name[-1]) / 1000}
        write_evaluations(run, figures)
    write_json(tmp_path / "tiny" / "comparison.json", compared(tmp_path / "tiny"))
    monkeypatch.setattr(published, "rows", lambda: {"a": ACCURACY, "b": {**ACCURACY, "id": "b"}})
    return tmp_path


def configured(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    config = {"published": ["a"], "data": {"name": "dots"}, **changes}
    monkeypatch.setattr(published, "experiments", lambda: {"tiny": config})


def test_the_records_give_a_verdict_in_each_precision(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    assert {found.precision: found.verdict for found in reproductions(aimed)} == {
        "fp32": REPRODUCED,
        "bf16": ABOVE,
        "fp16": BELOW,
    }


def test_the_error_of_a_source_that_evaluated_on_a_few_samples_counts(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    drawn = {**LOSS, "id": "a", "value": "1.05", "evaluated_samples": "100"}
    monkeypatch.setattr(published, "rows", lambda: {"a": drawn})
    for seed in range(3):
        run = write_run(aimed / "tiny", "fp32", seed, 0.92, final_weights_sha256=f"{seed}" * 64)
        write_evaluations(run, {"eval/loss": 1.0, "eval/accuracy": 0.92})
    assert reproductions(aimed)[0].verdict == ABOVE
    assert "; the error of the source's sample of 100 was not measured; the source's" in reproductions(aimed)[0].rule

    def measured(seed: int, **changes: object) -> None:
        found = {"weights_sha256": f"{seed}" * 64, "sample_sd": 0.3}  # of a mean over 100: 0.03, times 1.96 0.059
        write_json(aimed / "tiny" / f"fp32-s{seed}" / "evaluation.json", {**found, **changes})

    for wrong in (
        {"weights_sha256": "of others"},
        {"sample_sd": math.nan},
        {"sample_sd": None},
        {"sample_sd": "0.3"},
        {"sample_sd": -0.3},
    ):
        measured(0, **wrong)
        assert reproductions(aimed)[0].verdict == ABOVE
        assert "sample of 100 was not measured; " in reproductions(aimed)[0].rule
    write_json(aimed / "tiny" / "fp32-s0" / "evaluation.json", {})
    assert reproductions(aimed)[0].verdict == ABOVE
    measured(0)
    assert "sample of 100 was not measured for 2 of 3 runs; " in reproductions(aimed)[0].rule
    measured(1)
    measured(2)
    found = reproductions(aimed)[0]
    assert (found.verdict, found.noise) == (WITHIN_NOISE, pytest.approx(0.0588, rel=1e-3))
    decided = (
        "within 0.0588, where 95% of single runs evaluated on 100 samples drawn at random lie; the source's figure"
    )
    assert decided in found.rule


def test_a_reason_ends_with_how_the_source_selects(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    endings = {
        "not stated": "; the source does not state how its figure was selected, and of each run of ours the last "
        "evaluation is taken",
        "best": "; the source's figure is that of the best epoch, as is that of each run of ours, chosen on the "
        "evaluation samples",
    }
    for selection, ending in endings.items():
        monkeypatch.setattr(published, "rows", lambda selection=selection: {"a": {**ACCURACY, "selection": selection}})
        rules = {found.verdict: found.rule for found in reproductions(aimed)}
        assert rules[ABOVE].endswith(ending)
        assert rules[BELOW].endswith(ending)
        assert rules[REPRODUCED] == "+0.1 from the published 92, within 0.5" + ending


def test_a_finished_run_without_a_finite_evaluation_is_named_and_not_counted(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    monkeypatch.setattr(published, "rows", lambda: {"a": {**ACCURACY, "selection": "best"}})
    record(aimed, data={"name": "dots", "held_out": 10})

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
    chosen = {**ACCURACY, "selection": "best of 30 runs"}
    monkeypatch.setattr(published, "rows", lambda: {"a": chosen})
    found = reproductions(aimed)[0]
    # Of each run the last evaluation: 0.920, 0.921, 0.922.
    assert (found.verdict, found.mean) == (SCALED_DOWN, pytest.approx(92.1))
    assert found.rule.startswith("the mean of 3 runs against the best of 30 runs; +0.1 from the published 92; ")
    assert found.rule.endswith("is the best of 30 runs, each judged by its last evaluation, as is each run of ours")


def test_a_run_that_ended_before_it_would_have_been_stopped_is_named(
    aimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(monkeypatch)
    monkeypatch.setattr(published, "rows", lambda: {"a": {**ACCURACY, "selection": "early stopping"}})
    for seed, losses in enumerate([(1.0, 1.1, 1.2, 1.3), (1.0, 0.9, 1.2, 1.3), (1.0, 1.1, 1.2, 0.5)]):
        lines = [{"eval/loss": loss, "eval/accuracy": 0.92} for loss in losses]
        write_evaluations(aimed / "tiny" / f"fp32-s{seed}", *lines)
    found = reproductions(aimed)[0]
    assert found.verdict == REPRODUCED
    assert "; the source would have trained on where these ended: fp32-s1, fp32-s2; " in found.rule


def test_a_mean_whose_interval_leaves_the_published_figure_out_says_so() -> None:
    apart = judge_reproduction([90.0, 91.0, 89.0, 90.5, 89.5], ACCURACY)
    # t 2.776, sd 0.79: single runs 2.4 from the mean of 90, the mean itself 0.98
    assert apart.verdict == WITHIN_NOISE
    assert apart.rule.endswith("; the 95% interval of our mean lies below it")
    near = judge_reproduction([90.5, 93.0, 89.5, 92.5, 90.5], ACCURACY)  # mean 91.2, sd 1.48, the mean itself 1.84
    assert (near.verdict, near.rule[-4:]) == (WITHIN_NOISE, " lie")


def test_a_reduced_recipe_makes_no_claim(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, reduced="2 of 200 epochs")
    for found in reproductions(aimed):
        assert found.verdict == SCALED_DOWN
        assert found.rule.startswith("2 of 200 epochs; ")


def record(folder: Path, **changes: object) -> None:
    for file in (folder / "tiny").glob("*-s*/config.yaml"):
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **changes}))


def test_a_run_that_departs_from_the_recipe_makes_no_claim(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, epochs=3, optimizer={"name": "sgd", "lr": "1e-1"})
    assert {found.verdict for found in reproductions(aimed)} == {SCALED_DOWN}
    assert reproductions(aimed)[0].rule.startswith("not as configs/tiny.yaml has it: epochs is 2 in place of 3; ")
    configured(monkeypatch, epochs=2, optimizer={"name": "sgd", "lr": "1e-1"})
    assert SCALED_DOWN not in {found.verdict for found in reproductions(aimed)}


def test_what_the_runs_say_of_their_reduction_counts(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    record(aimed, reduced="another model")
    assert all(found.rule.startswith("another model; ") for found in reproductions(aimed))


def test_a_comparison_has_the_rows_that_its_runs_aim_at(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    comparison = compared(aimed / "tiny")
    assert reproduction.of_comparison(aimed / "tiny", comparison) == []
    record(aimed, published=["a", "gone"])
    *known, unknown = reproduction.of_comparison(aimed / "tiny", comparison)
    assert [(found.precision, found.verdict, found.rule) for found in known] == [
        (found.precision, found.verdict, found.rule) for found in reproductions(aimed)
    ]
    texts = published_table.published_cells(unknown)
    assert (texts["id"], texts["verdict"], texts["why"]) == (
        "gone",
        NOT_RUN,
        "reports/published.csv has no row 'gone'",
    )


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


def test_each_experiment_of_a_row_has_its_own_command(
    aimed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"published": ["a"], "data": {"name": "dots"}}
    monkeypatch.setattr(published, "experiments", lambda: {"large": config, "small": config})
    full = {"model": "TinyNet", "dataset": "dots", "source": "", "precision": "fp32"}
    monkeypatch.setattr(published, "rows", lambda: {"a": {**ACCURACY, **full}, "b": ACCURACY})
    found = reproductions(aimed / "elsewhere")
    assert [published_table.published_cells(one, 2.0)["why"] for one in found] == [
        "no record: bash scripts/reproduce.sh a, about 2 h a run here",
        "no record: bash scripts/compare.sh configs/small.yaml, about 2 h a run here",
    ]
    assert reproduce.configuration_of("a") == "configs/large.yaml"
    monkeypatch.setattr(reproduce, "reproductions", lambda: found)
    monkeypatch.setattr(sys, "argv", ["reproduce"])
    assert reproduce.main() == 0
    assert [line[:34] for line in capsys.readouterr().out.splitlines()] == [
        "a  large  TinyNet  test top-1 92.0",
        "a  small  TinyNet  test top-1 92.0",
    ]


def test_an_id_that_nothing_aims_at_gets_the_nearest_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for given, message in (
        ("nanogpt-shk-cp", "error: unknown published row 'nanogpt-shk-cp': did you mean 'nanogpt-shk-cpu'? allowed: "),
        ("apex478-rn152-c10-acc__fp32", "error: no experiment aims at published row 'apex478-rn152-c10-acc__fp32': "),
    ):
        monkeypatch.setattr(sys, "argv", ["reproduce", given])
        assert reproduce.main() == 2
        written = capsys.readouterr()
        assert written.err.startswith(message)
        assert written.out == ""


def test_hours_follow_from_operations_and_the_measured_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    counts = {
        "resnet20_digits": {"forward_flops": 100, "samples": 50},
        "large": {"forward_flops": 3600_000, "samples": 10},
    }
    write_json(tmp_path / "reports" / "estimates.json", counts)
    assert reproduction.hours(tmp_path) == {}  # without a measured speed nothing is said
    write_benchmark(tmp_path / "resnet20_digits", fp32=[0.4, 0.8, 3.2])
    # 80 samples of 100 operations in 0.8 seconds: 10,000 a second.
    assert reproduction.hours(tmp_path) == {"resnet20_digits": 0.5 / 3600, "large": 1.0}


def test_the_summary_has_a_line_for_each_row_and_experiment(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    titles, _, line = published_table.summary(reproductions_with_texts(aimed, monkeypatch)).splitlines()
    assert titles == "| published row | experiment | published | fp32 | bf16 | fp16 |"
    assert "| a: TinyNet, dots, test top-1 | [tiny](reports/results/tiny/report.html) | 92.0 % (fp32) |" in line
    # 4.303 * 0.1 * sqrt(4 / 3) = 0.497
    above, below = "93.1 ± 0.1 (n=3): ABOVE (+1.1, noise ±0.5)", "90.1 ± 0.1 (n=3): BELOW (-1.9, noise ±0.5)"
    assert line.endswith(f"| 92.1 ± 0.1 (n=3): REPRODUCED | {above} | {below} |")
    assert published_table.summary(reproductions(aimed / "elsewhere")).startswith("No experiment")


def reproductions_with_texts(results: Path, monkeypatch: pytest.MonkeyPatch) -> list[Reproduction]:
    full = {"model": "TinyNet", "dataset": "dots", "source": "https://example.org/dots", "precision": "fp32"}
    monkeypatch.setattr(published, "rows", lambda: {"a": {**ACCURACY, **full}})
    return reproductions(results)

"""Published figures and their verdicts: the rule, by hand, and the way a source selects its figure."""

import math
from pathlib import Path

import pytest
import yaml
from made_runs import compared, write_run, write_three

from reports import published_table, reproduction
from reports.records import to_line, write_json
from reports.reproduction import (
    ABOVE,
    BELOW,
    NOT_RUN,
    REPRODUCED,
    SCALED_DOWN,
    WITHIN_NOISE,
    experiments,
    judge_reproduction,
    published_rows,
    reproductions,
)

ACCURACY = {"id": "a", "metric": "test top-1", "unit": "%", "value": "92.0", "selection": "last"}
ERROR = {**ACCURACY, "metric": "test error", "value": "8.0"}
LOSS = {**ACCURACY, "metric": "val loss", "unit": "nats/char", "value": "2.0"}


@pytest.mark.parametrize(
    ("row", "values", "verdict"),
    [
        (ACCURACY, [91.6, 92.3, 91.9], REPRODUCED),
        (ACCURACY, [91.5], REPRODUCED),
        (ACCURACY, [90.0, 92.4, 91.5], WITHIN_NOISE),
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
    assert judge_reproduction(values, row)[0] == verdict


def test_one_run_says_that_its_noise_is_not_known() -> None:
    assert judge_reproduction([91.0], ACCURACY)[1].endswith("beyond 0.5; the noise over runs is not known from one")
    assert judge_reproduction([91.0, 91.01], ACCURACY)[1].endswith("beyond 0.5; beyond the noise of 2 runs")


def test_a_figure_picked_from_several_runs_is_said_to_be_one() -> None:
    reason = judge_reproduction([91.0, 91.01], {**ACCURACY, "selection": "best of 30 runs"})[1]
    assert reason.endswith("beyond the noise of 2 runs; the source's figure is the best of 30 runs, ours a mean")


def test_nothing_measured_is_no_verdict() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        judge_reproduction([], ACCURACY)


def test_every_row_that_a_configuration_names_is_published() -> None:
    rows = published_rows()
    for name, config in experiments().items():
        for identity in config["published"]:
            assert identity in rows, f"{name}: {identity}"


def test_every_published_row_has_a_source_and_those_aimed_at_a_number() -> None:
    aimed = {identity for config in experiments().values() for identity in config["published"]}
    for row in published_rows().values():
        assert row["source"], row["id"]
        assert row["selection"], row["id"]
        assert row["id"] not in aimed or math.isfinite(float(row["value"])), row["id"]


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
    assert reproduction._measured(history, row) == pytest.approx(expected)
    assert reproduction._measured(history, {**row, "metric": "error"}) == pytest.approx(100 - expected)


@pytest.fixture
def aimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment `tiny` that aims at one row of its own, with three runs in each precision."""
    write_three(tmp_path / "tiny")
    for run in (tmp_path / "tiny").glob("*-s*"):
        accuracy = {"fp32": 0.92, "bf16": 0.93, "fp16": 0.90}[run.name[:4]]
        lines = [{"train/step": 4, "eval/loss": 1.0, "eval/accuracy": accuracy + int(run.name[-1]) / 1000}]
        (run / "metrics.jsonl").write_text("".join(map(to_line, lines)))
    write_json(tmp_path / "tiny" / "comparison.json", compared(tmp_path / "tiny"))
    monkeypatch.setattr(reproduction, "published_rows", lambda: {"a": ACCURACY, "b": ACCURACY})
    return tmp_path


def configured(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    config = {"published": ["a"], "data": {"name": "dots"}, **changes}
    monkeypatch.setattr(reproduction, "experiments", lambda: {"tiny": config})


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
    monkeypatch.setattr(reproduction, "published_rows", lambda: {"a": drawn})
    assert reproductions(aimed)[0].verdict == ABOVE  # every run has a loss of 1
    for run in (aimed / "tiny").glob("*-s*"):
        write_json(run / "evaluation.json", {"sample_sd": 0.3})  # of a mean over 100: 0.03, and 1.96 times that 0.059
    assert reproductions(aimed)[0].verdict == WITHIN_NOISE
    assert reproductions(aimed)[0].rule.endswith(
        "within 0.0588, where 95% of single runs evaluated on 100 samples drawn at random lie"
    )


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
    record(aimed, published=["a", "unknown"])
    assert reproduction.of_comparison(aimed / "tiny", comparison) == reproductions(aimed)


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


def test_the_published_rows_are_read_whole(tmp_path: Path) -> None:
    assert len(published_rows()) == 394
    assert yaml.safe_load((reproduction.ROOT / "configs" / "lenet5_fashion_mnist.yaml").read_text())["published"]


def test_hours_follow_from_operations_and_the_measured_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    counts = {
        "resnet20_digits": {"forward_flops": 100, "samples": 50},
        "large": {"forward_flops": 3600_000, "samples": 10},
    }
    write_json(tmp_path / "reports" / "estimates.json", counts)
    assert reproduction.hours(tmp_path) == {}  # without a measured speed nothing is said
    speed = {"seconds": {"fp32": [1.0, 2.0, 8.0]}, "samples_per_step": 20, "block_steps": 10}
    write_json(tmp_path / "resnet20_digits" / "benchmark.json", speed)
    # 200 samples of 100 operations in 2 seconds: 10,000 a second.
    assert reproduction.hours(tmp_path) == {"resnet20_digits": 0.5 / 3600, "large": 1.0}


def test_the_summary_has_a_line_for_each_row_and_experiment(aimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch)
    full = {"model": "TinyNet", "dataset": "dots", "source": "https://example.org/dots", "precision": "fp32"}
    monkeypatch.setattr(reproduction, "published_rows", lambda: {"a": {**ACCURACY, **full}})
    titles, _, line = published_table.summary(reproductions(aimed)).splitlines()
    assert titles == "| published row | experiment | published | fp32 | bf16 | fp16 |"
    assert "| a: TinyNet, dots, test top-1 | [tiny](reports/results/tiny/report.html) | 92.0 % (fp32) |" in line
    assert line.endswith("| 92.1 ± 0.1 (n=3): REPRODUCED | 93.1 ± 0.1 (n=3): ABOVE | 90.1 ± 0.1 (n=3): BELOW |")
    assert published_table.summary(reproductions(aimed / "elsewhere")).startswith("No experiment")

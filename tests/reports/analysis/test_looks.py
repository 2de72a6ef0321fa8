"""Looks: how often a verdict was asked for is recorded, and the tests allow for it."""

from pathlib import Path

import pytest
from scipy import stats

from reports.analysis.comparison import compare, comparisons_in
from reports.analysis.looks import earlier, planned
from reports.analysis.statistics import LOOKS
from reports.pages import table
from reports.records.comparison import EQUIVALENT, INCONCLUSIVE, Comparison, Look, Plan
from reports.records.files import read_record, write_record
from tests.reports.made_runs import COMMAND, write_benchmark, write_run

# Differences of bf16: with two seeds open, with three EQUIVALENT for one look, and open for two.
DIFFERENCES = (0.001, -0.001, 0.0032, 0.0006)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    for seed, difference in enumerate(DIFFERENCES):
        write_run(folder, "fp32", seed, 0.9)
        write_run(folder, "bf16", seed, 0.9 + difference)
    write_benchmark(folder, fp32=[1.0, 1.0, 1.0], bf16=[0.5, 0.5, 0.5])
    return folder


def plan(seeds: int, margin: float = 0.005, looks: int = 1) -> Plan:
    return Plan(command=COMMAND, margin=margin, looks=looks, precisions=["fp32", "bf16"], seeds=list(range(seeds)))


def look(folder: Path, asked: Plan) -> Comparison:
    """As the command makes and writes it, after what is there."""
    comparison = compare(folder, asked.model_copy(update={"looks_taken": earlier(folder, asked)}))
    write_record(folder / "comparison.json", comparison)
    return comparison


def verdict(comparison: Comparison) -> str | None:
    row = comparison.row("bf16")
    assert row is not None
    return row.verdict


def test_seeds_added_by_hand_are_a_second_look_and_the_test_allows_for_it(folder: Path) -> None:
    at_once = compare(folder, plan(3))
    assert (at_once.looks, verdict(at_once)) == (1, EQUIVALENT)
    assert verdict(look(folder, plan(2))) == INCONCLUSIVE
    second = look(folder, plan(3))
    assert (second.looks, verdict(second)) == (2, INCONCLUSIVE)
    assert second.looks_taken == [
        Look(precision="bf16", pairs=2, margin=0.005, verdict=INCONCLUSIVE),
        Look(precision="bf16", pairs=3, margin=0.005, verdict=INCONCLUSIVE),
    ]
    row = second.row("bf16")
    assert row is not None
    assert row.interval is not None
    # The 97.5% interval of three differences.
    half = stats.t.ppf(1 - 0.0125, 2) * stats.sem(DIFFERENCES[:3])
    assert row.interval.high - row.interval.value == pytest.approx(half)
    assert "Verdicts were asked for with 2 and 3 seeds; the intervals are those for 2 looks." in table.notes(second)


def test_the_note_on_looks_stays_whatever_the_verdict_is(folder: Path) -> None:
    look(folder, plan(2))
    for seed in range(4):
        write_run(folder, "bf16", seed, 0.9)
    decided = look(folder, plan(4))
    assert verdict(decided) == EQUIVALENT
    assert "Verdicts were asked for with 2 and 4 seeds; the intervals are those for 2 looks." in table.notes(decided)


def test_the_same_runs_again_are_no_new_look(folder: Path) -> None:
    first = look(folder, plan(3))
    again = look(folder, plan(3))
    assert (again.looks, again.looks_taken) == (1, first.looks_taken)


def test_the_records_are_rebuilt_with_the_looks_they_have(folder: Path) -> None:
    look(folder, plan(2))
    made = look(folder, plan(3))
    again = compare(folder, read_record(Plan, folder / "comparison.json"), publish=True)
    assert (again.looks, verdict(again), again.looks_taken) == (2, verdict(made), made.looks_taken)


def test_another_margin_is_another_look(folder: Path) -> None:
    look(folder, plan(3, margin=0.001))
    wider = look(folder, plan(3, margin=0.005))
    assert (wider.looks, verdict(wider)) == (2, INCONCLUSIVE)
    assert any("with 3 seeds and margins of 0.1% and 0.5%; the intervals are" in note for note in table.notes(wider))


def test_one_seed_is_no_look(folder: Path) -> None:
    look(folder, plan(1))
    assert look(folder, plan(3)).looks == 1


@pytest.mark.parametrize("change", [{"smoke": True}, {"config_sha256": "other"}])
def test_smoke_runs_and_other_configurations_are_not_continued(folder: Path, change: dict[str, object]) -> None:
    before = look(folder, plan(3).model_copy(update={"config_sha256": "mine"}))
    asked = plan(1).model_copy(update={"config_sha256": "mine"})
    assert earlier(folder, asked) == before.looks_taken != []
    write_record(folder / "comparison.json", before.model_copy(update=change))
    assert earlier(folder, asked) == []


def test_a_damaged_comparison_is_named_and_not_replaced(folder: Path) -> None:
    (folder / "comparison.json").write_text("{")
    with pytest.raises(ValueError, match=r"comparison\.json: not readable"):
        earlier(folder, plan(3))


def test_adding_seeds_counts_on_from_the_looks_before() -> None:
    looks = [Look(precision="bf16", pairs=pairs, margin=0.005, verdict=INCONCLUSIVE) for pairs in (3, 9, 20)]
    first = plan(3)
    assert planned(first, 20) == LOOKS
    stopped = plan(9).model_copy(update={"looks_taken": looks[:2]})
    assert planned(stopped, 20) == LOOKS
    ended = plan(20).model_copy(update={"looks_taken": looks})
    assert planned(ended, 20) == LOOKS
    assert planned(ended, 60) == LOOKS + 1


def test_a_part_of_the_runs_has_no_verdict_and_is_not_published(folder: Path) -> None:
    part = plan(3).model_copy(update={"partial": "stopped by SIGTERM after 4 of 6 runs"})
    comparison = look(folder, part)
    assert (verdict(comparison), comparison.looks_taken) == (None, [])
    row = comparison.row("bf16")
    assert row is not None
    assert row.interval is None
    assert table.verdict(row) == "not judged"
    assert any("without verdicts: stopped by SIGTERM after 4 of 6 runs" in note for note in table.notes(comparison))
    comparisons, left_out = comparisons_in(folder.parent)
    assert comparisons == {}
    assert left_out["tiny"] == "tiny/comparison.json: is of a part of its runs: stopped by SIGTERM after 4 of 6 runs"

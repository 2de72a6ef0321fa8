"""The rates of wrong verdicts: at most 5% false alarms, and a loss of two margins found in nine of ten."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports import calibrate
from reports.analysis.statistics import DEFAULT_SEEDS
from reports.records.calibration import misfit, why_unfit
from reports.records.files import read_json, write_json


@pytest.mark.parametrize("noise", calibrate.NOISE)
def test_simulated_false_alarms_are_rare(noise: float) -> None:
    found = calibrate.simulated(np.random.default_rng(1), noise)
    assert (found["WORSE"] + found["BETTER"]) / found.total() <= 0.055  # 0.05 and more than the error of 10,000 draws


@pytest.mark.parametrize("noise", calibrate.NOISE)
def test_simulated_losses_of_two_margins_are_found(noise: float) -> None:
    found = calibrate.simulated(np.random.default_rng(1), noise, -calibrate.INJECTED)
    assert found["WORSE"] / found.total() >= 0.89


@pytest.mark.parametrize("noise", [*calibrate.NOISE, calibrate.TOO_MUCH_NOISE])
def test_looking_again_while_seeds_are_added_raises_no_false_alarms(noise: float) -> None:
    found = calibrate.until_decided(np.random.default_rng(1), noise)
    assert found.total() == calibrate.GROWING
    assert (found["WORSE"] + found["BETTER"]) / found.total() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / calibrate.GROWING)


def test_adding_seeds_decides_what_five_leave_open() -> None:
    grown = calibrate.until_decided(np.random.default_rng(1), calibrate.TOO_MUCH_NOISE, -calibrate.INJECTED)
    fixed = calibrate.simulated(np.random.default_rng(1), calibrate.TOO_MUCH_NOISE, -calibrate.INJECTED)
    assert grown["WORSE"] / grown.total() > 0.9 > fixed["WORSE"] / fixed.total()


def test_real_comparisons_take_each_run_once() -> None:
    accuracies = [0.9, 0.9, 0.8, 0.8, 0.9, 0.91, 0.9, 0.91, 0.5]
    found = calibrate.real(record(accuracies=accuracies))
    assert found.total() == 2  # the last run has no partner
    assert found["WORSE"] == 1


def test_intervals_of_speed_are_counted() -> None:
    level, noisy = [1.0] * 21, list(np.random.default_rng(0).lognormal(0, 0.02, 21))
    speed = [{"first": level, "second": noisy}, {"first": level, "second": [2.0] * 21}]
    assert calibrate.intervals_holding_one({"speed": speed}) == (1, 2)


def test_the_table_is_the_same_every_time_and_says_what_is_missing() -> None:
    assert calibrate.table(None) == calibrate.table(None)
    assert "Real runs: no readable record" in calibrate.table(None)


def record(**changes: Any) -> dict[str, Any]:
    """Of 12 comparisons of 2 pairs, in which the accuracies of every comparison are the same."""
    whole = {
        "experiment": "tiny",
        "overrides": ["epochs=3"],
        "smoke": False,
        "pairs": 2,
        "margin": 0.005,
        "eval_samples": 1000,
        "accuracies": [0.9, 0.901, 0.9, 0.901] * 12,
        "speed": [{"first": [1.0, 1.0], "second": [1.0, 1.0]}] * 12,
        "environment": {"git": {"commit": "1234", "dirty": False}},
    }
    return {**whole, **changes}


def notes(found: dict[str, Any]) -> str:
    return calibrate.rates(found)[1]


def real_rows(found: dict[str, Any]) -> list[list[str]]:
    return [row for row in calibrate.rates(found)[0] if row[0].startswith("real")]


def test_a_record_that_keeps_every_limit_says_so() -> None:
    assert [row[:3] for row in real_rows(record())] == [
        ["real FP32 runs against others, 2 pairs", "12", "0.0%"],
        ["real FP32 runs, 2 margins taken off one side, 2 pairs", "12", "100.0% (WORSE)"],
    ]
    found = notes(record())
    assert "Real runs: tiny epochs=3; standard deviation over seeds 0.05 points" in found
    assert "The real runs keep the limit of false alarms: 0 of 12 are WORSE or BETTER, a rate between " in found
    # Clopper and Pearson: of 0 in 12 the upper end is 1 - 0.025^(1/12).
    assert f"a rate between 0% and {1 - 0.025 ** (1 / 12):.0%} with 95% confidence." in found
    assert "The real runs keep the limit of detection: 12 of 12 are WORSE, a rate between " in found
    assert "The real runs keep the limit of the speed: 12 of 12 intervals hold 1, a rate between " in found
    assert "the promise is not for them: fewer than 5 pairs." in found


def test_a_record_that_breaks_a_limit_says_so() -> None:
    # One in twelve is more than 5%, and two in twelve are more than 10%.
    alarm, unlike = [0.9, 0.9, 0.8, 0.8], {"first": [1.0, 1.0], "second": [2.0, 2.0]}
    broken = record(accuracies=alarm + record()["accuracies"][4:], speed=[unlike] * 2 + record()["speed"][2:])
    assert "do NOT keep the limit of false alarms: 1 of 12 are WORSE or BETTER, a rate between " in notes(broken)
    assert "do NOT keep the limit of the speed: 10 of 12 intervals hold 1, a rate between " in notes(broken)
    noisy = record(accuracies=[0.9, 0.95, 0.93, 0.91] * 12)
    assert "do NOT keep the limit of detection: 0 of 12 are WORSE, a rate between " in notes(noisy)
    assert "the promise is not for them: fewer than 5 pairs and noise above one margin." in notes(noisy)


def test_the_promise_and_its_limits_are_stated_with_and_without_a_record() -> None:
    for found in (None, record()):
        text = calibrate.rates(found)[1]
        assert text.startswith("Promised, for comparisons of at least 5 pairs whose differences have a standard ")
        assert "of up to one margin: WORSE or BETTER in at most 5% of those without a difference" in text
        assert "a loss of 2 margins found, as WORSE, in at least 90%" in text
        assert "at least 90% of the intervals of the speed of FP32 over itself hold 1" in text


def test_three_pairs_stand_beside_five() -> None:
    names = [row[0] for row in calibrate.rates(None)[0]]
    for noise in ("0.25 margin", "0.5 margin", "1 margin", "2 margins"):
        three = names.index(f"simulated, 2 margins worse, noise {noise}, 3 pairs")
        assert names[three + 1] == f"simulated, 2 margins worse, noise {noise}, 5 pairs"
    few = calibrate.simulated(np.random.default_rng(1), 1.0, -calibrate.INJECTED, DEFAULT_SEEDS)
    assert 0.4 < few["WORSE"] / few.total() < 0.55  # of a loss that five find in nine of ten


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"smoke": True}, "left out, a smoke run"),
        ({"environment": {"git": {"dirty": True}}}, "changes that are in no commit"),
        ({"environment": {}}, "changes that are in no commit"),
        ({"accuracies": [0.9] * 3}, "incomplete: 0 of 12 comparisons of accuracy"),
        ({"accuracies": [0.9] * 47}, "incomplete: 11 of 12 comparisons of accuracy"),
        ({"accuracies": [], "speed": []}, "0 of 12 comparisons of accuracy and 0 of 12 comparisons of speed"),
        ({"speed": [{"first": [1.0], "second": [1.0]}] * 11}, "incomplete: 11 of 12 comparisons of speed"),
        ({"accuracies": [0.9] * 47 + [math.nan]}, "not a calibration record: accuracies.47: "),
        ({"accuracies": [0.9] * 47 + ["0.9"]}, "not a calibration record: accuracies.47: "),
        ({"accuracies": [0.9] * 47 + [90.0]}, "not a calibration record: accuracies.47: "),
        ({"accuracies": None}, "not a calibration record: accuracies: "),
        ({"pairs": 0}, "not a calibration record: pairs: "),
        ({"pairs": 1}, "not a calibration record: pairs: "),
        ({"margin": 0.0}, "not a calibration record: margin: "),
        ({"speed": [{"first": [1.0, 1.0], "second": [1.0]}] * 12}, "speed.0: 2 blocks of first, 1 of second"),
        ({"speed": [{"first": [], "second": []}] * 12}, "not a calibration record: speed.0.first: "),
        ({"speed": [{"first": [1.0]}] * 12}, "not a calibration record: speed.0.second: field required"),
        ({"speed": [{"first": [1.0], "second": [0.0]}] * 12}, "not a calibration record: speed.0.second.0: "),
        ({"environment": []}, "not a calibration record: environment: "),
    ],
)
def test_a_record_that_must_not_be_published_is_left_out_with_its_reason(
    changes: dict[str, object], reason: str
) -> None:
    assert len(real_rows(record())) == 2
    assert real_rows(record(**changes)) == []
    assert reason in notes(record(**changes))


@pytest.mark.parametrize("key", ["experiment", "smoke", "pairs", "margin", "eval_samples", "accuracies", "speed"])
def test_a_record_without_a_key_is_left_out(key: str) -> None:
    torn = record()
    del torn[key]
    assert f"not a calibration record: {key}: field required" in notes(torn)
    assert real_rows(torn) == []


def test_a_record_that_does_not_say_its_overrides_is_read_and_that_is_said() -> None:
    old = record()
    del old["overrides"]
    assert misfit(old) is None
    assert "Real runs: tiny (overrides not recorded); " in notes(old)


def test_the_command_prints_what_is_wrong_with_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "RECORD", tmp_path / "calibration.json")
    monkeypatch.setattr("sys.argv", ["reports.calibrate"])
    write_json(calibrate.RECORD, record(accuracies=[math.nan]))
    assert calibrate.main() == 0
    assert "accuracies.0: " in capsys.readouterr().out
    calibrate.RECORD.write_text('{"accuracies": [0.9,')
    assert calibrate.main() == 0
    assert "Real runs: no readable record" in capsys.readouterr().out


def test_the_committed_record_keeps_the_promised_rates() -> None:
    committed = read_json(calibrate.RECORD)
    if committed is None:
        pytest.skip("no committed calibration record")
    assert why_unfit(committed) is None
    assert committed["pairs"] >= calibrate.SEEDS
    same, worse = calibrate.real(committed), calibrate.real(committed, -calibrate.INJECTED)
    assert same.total() == worse.total() >= 12
    assert (same["WORSE"] + same["BETTER"]) / same.total() <= 0.05
    assert worse["WORSE"] / worse.total() >= 0.9
    held, count = calibrate.intervals_holding_one(committed)
    assert count >= 12
    assert held / count >= 0.9

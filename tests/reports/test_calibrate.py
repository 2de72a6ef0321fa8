"""The rates of wrong verdicts: at most 5% false alarms, and a loss of two margins found in nine of ten."""

import numpy as np
import pytest

from reports import calibrate
from reports.records import read_json


@pytest.mark.parametrize("noise", calibrate.NOISE)
def test_simulated_false_alarms_are_rare(noise: float) -> None:
    found = calibrate.simulated(np.random.default_rng(1), noise)
    assert (found["WORSE"] + found["BETTER"]) / found.total() <= 0.055  # 0.05 and more than the error of 10,000 draws


@pytest.mark.parametrize("noise", calibrate.NOISE)
def test_simulated_losses_of_two_margins_are_found(noise: float) -> None:
    found = calibrate.simulated(np.random.default_rng(1), noise, -calibrate.INJECTED)
    assert found["WORSE"] / found.total() >= 0.89


def test_real_comparisons_take_each_run_once() -> None:
    accuracies = [0.9, 0.9, 0.8, 0.8, 0.9, 0.91, 0.9, 0.91, 0.5]
    record = {"accuracies": accuracies, "pairs": 2, "margin": 0.005, "eval_samples": 1000}
    found = calibrate.real(record)
    assert found.total() == 2  # the last run has no partner
    assert found["WORSE"] == 1


def test_intervals_of_speed_are_counted() -> None:
    level, noisy = [1.0] * 21, list(np.random.default_rng(0).lognormal(0, 0.02, 21))
    speed = [{"first": level, "second": noisy}, {"first": level, "second": [2.0] * 21}]
    assert calibrate.intervals_holding_one({"speed": speed}) == (1, 2)


def test_the_table_is_the_same_every_time_and_says_what_is_missing() -> None:
    assert calibrate.table(None) == calibrate.table(None)
    assert "Real runs: no record" in calibrate.table(None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"smoke": True}, "a smoke run"), ({"environment": {"git": {"dirty": True}}}, "changes that are in no commit")],
)
def test_a_record_that_must_not_be_published_is_left_out(changes: dict[str, object], reason: str) -> None:
    runs = {"accuracies": [0.9, 0.91, 0.9, 0.91], "pairs": 2, "margin": 0.005, "eval_samples": 1000, "speed": []}
    record = {
        "experiment": "tiny",
        "overrides": ["epochs=3"],
        "smoke": False,
        "environment": {"git": {"dirty": False}},
        **runs,
    }
    assert "real FP32 runs against others" in calibrate.table(record)
    assert "tiny epochs=3" in calibrate.table(record)
    assert "real FP32 runs against others" not in calibrate.table({**record, **changes})
    assert reason in calibrate.table({**record, **changes})


def test_the_committed_record_keeps_the_promised_rates() -> None:
    record = read_json(calibrate.RECORD)
    if record is None:
        pytest.skip("no committed calibration record")
    same, worse = calibrate.real(record), calibrate.real(record, -calibrate.INJECTED)
    assert same.total() == worse.total() >= 12
    assert (same["WORSE"] + same["BETTER"]) / same.total() <= 0.05
    assert worse["WORSE"] / worse.total() >= 0.9
    held, count = calibrate.intervals_holding_one(record)
    assert count >= 12
    assert held / count >= 0.9

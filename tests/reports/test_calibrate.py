"""The rates of wrong verdicts: at most 5% false alarms, and a loss of two margins found in nine of ten."""

import math
from pathlib import Path

import numpy as np
import pytest

from reports import calibrate
from reports.analysis import calibration
from reports.records.calibration import Calibration, PairedBlocks
from reports.records.comparison import DEFAULT_SEEDS
from reports.records.environment import Machine, Source
from reports.records.files import write_record


@pytest.mark.parametrize("noise", calibration.NOISE)
def test_simulated_false_alarms_are_rare(noise: float) -> None:
    found = calibration.simulated(np.random.default_rng(1), noise)
    assert (found["WORSE"] + found["BETTER"]) / found.total() <= 0.055  # 0.05 and more than the error of 10,000 draws


@pytest.mark.parametrize("noise", calibration.NOISE)
def test_simulated_losses_of_two_margins_are_found(noise: float) -> None:
    found = calibration.simulated(np.random.default_rng(1), noise, -calibration.INJECTED)
    assert found["WORSE"] / found.total() >= 0.89


@pytest.mark.parametrize("noise", [*calibration.NOISE, calibration.TOO_MUCH_NOISE])
def test_looking_again_while_seeds_are_added_raises_no_false_alarms(noise: float) -> None:
    found = calibration.until_decided(np.random.default_rng(1), noise)
    assert found.total() == calibration.GROWING
    assert (found["WORSE"] + found["BETTER"]) / found.total() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / calibration.GROWING)


def test_adding_seeds_decides_what_five_leave_open() -> None:
    grown = calibration.until_decided(np.random.default_rng(1), calibration.TOO_MUCH_NOISE, -calibration.INJECTED)
    fixed = calibration.simulated(np.random.default_rng(1), calibration.TOO_MUCH_NOISE, -calibration.INJECTED)
    assert grown["WORSE"] / grown.total() > 0.9 > fixed["WORSE"] / fixed.total()


def test_real_comparisons_take_each_run_once() -> None:
    accuracies = [0.9, 0.9, 0.8, 0.8, 0.9, 0.91, 0.9, 0.91, 0.5]
    found = calibration.real(record(accuracies=accuracies))
    assert found.total() == 2  # the last run has no partner
    assert found["WORSE"] == 1


def test_intervals_of_speed_are_counted() -> None:
    level, noisy = [1.0] * 21, list(np.random.default_rng(0).lognormal(0, 0.02, 21))
    speed = [PairedBlocks(first=level, second=noisy), PairedBlocks(first=level, second=[2.0] * 21)]
    assert calibration.intervals_holding_one(record(speed=speed)) == 1


def test_the_rates_are_the_same_every_time_and_say_what_is_missing() -> None:
    assert calibration.rates(None, "no record") == calibration.rates(None, "no record")
    assert "Real runs: no record; " in calibration.rates(None, "no record").notes[-1]


SAME_SPEED = PairedBlocks(first=[1.0, 1.0], second=[1.0, 1.0])


def record(**changes: object) -> Calibration:
    """Of 12 comparisons of 2 pairs, in which the accuracies of every comparison are the same."""
    whole = Calibration(
        experiment="tiny",
        overrides=["epochs=3"],
        smoke=False,
        pairs=2,
        margin=0.005,
        eval_samples=1000,
        accuracies=[0.9, 0.901, 0.9, 0.901] * 12,
        speed=[SAME_SPEED] * 12,
        environment=Machine(git=Source(commit="1234", dirty=False)),
    )
    return whole.model_copy(update=changes)


def notes(record: Calibration | None) -> str:
    return "\n".join(calibration.rates(record).notes)


def real_rows(record: Calibration | None) -> list[list[str]]:
    return [rate.cells for rate in calibration.rates(record).rows if rate.comparison.startswith("real")]


def test_a_record_that_keeps_every_limit_says_so() -> None:
    assert [row[:3] for row in real_rows(record())] == [
        ["real FP32 runs against others, 2 pairs", "12", "0.0%"],
        ["real FP32 runs, 2 margins taken off one side, 2 pairs", "12", "100.0% (WORSE)"],
    ]
    found = notes(record())
    assert "Real runs: tiny epochs=3; deviation over seeds 0.05 points, noise 0.14 margins of 0.5 points." in found
    assert "Real runs, false alarms: 0 of 12, a rate between " in found
    # Clopper and Pearson: of 0 in 12 the upper end is 1 - 0.025^(1/12).
    assert f"a rate between 0% and {1 - 0.025 ** (1 / 12):.0%} with 95% confidence: kept." in found
    assert "Real runs, losses found: 12 of 12, a rate between " in found
    assert "Real runs, intervals of speed that hold 1: 12 of 12, a rate between " in found
    assert "NOT kept" not in found


def test_a_record_that_breaks_a_limit_says_so() -> None:
    # One in twelve is more than 5%, and two in twelve are more than 10%.
    alarm, unlike = [0.9, 0.9, 0.8, 0.8], PairedBlocks(first=[1.0, 1.0], second=[2.0, 2.0])
    broken = record(accuracies=alarm + record().accuracies[4:], speed=[unlike] * 2 + [SAME_SPEED] * 10)
    alarms, _, intervals = calibration.rates(broken).notes[-3:]
    assert alarms.startswith("Real runs, false alarms: 1 of 12, ")
    assert intervals.startswith("Real runs, intervals of speed that hold 1: 10 of 12, ")
    assert alarms.endswith(": NOT kept.")
    assert intervals.endswith(": NOT kept.")
    noisy = record(accuracies=[0.9, 0.95, 0.93, 0.91] * 12)
    losses = calibration.rates(noisy).notes[-2]
    assert losses.startswith("Real runs, losses found: 0 of 12, ")
    assert losses.endswith(": NOT kept.")


def test_the_promise_and_its_limits_are_stated_with_and_without_a_record() -> None:
    for found in (None, record()):
        text = notes(found)
        assert text.startswith("Promised of at least 5 pairs with noise (the standard deviation of their differences) ")
        assert "of up to one margin: WORSE or BETTER in at most 5% of comparisons without a difference" in text
        assert "WORSE in at least 90% of those with a loss of 2 margins" in text
        assert "1 within at least 90% of the intervals of the speed of FP32 over itself" in text


def test_three_pairs_stand_beside_five() -> None:
    names = [rate.comparison for rate in calibration.rates(None).rows]
    for noise in ("0.25 margin", "0.5 margin", "1 margin", "2 margins"):
        three = names.index(f"simulated, 2 margins worse, noise {noise}, 3 pairs")
        assert names[three + 1] == f"simulated, 2 margins worse, noise {noise}, 5 pairs"
    few = calibration.simulated(np.random.default_rng(1), 1.0, -calibration.INJECTED, DEFAULT_SEEDS)
    assert 0.4 < few["WORSE"] / few.total() < 0.55  # of a loss that five find in nine of ten


NO_COMMIT = Machine(git=Source(commit="1234", dirty=True))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"smoke": True}, "left out, a smoke run"),
        ({"environment": NO_COMMIT}, "changes that are in no commit"),
        ({"environment": Machine()}, "changes that are in no commit"),
        ({"accuracies": [0.9] * 3}, "incomplete: 0 comparisons of accuracy and 12 of speed, of 12 each"),
        ({"accuracies": [0.9] * 47}, "incomplete: 11 comparisons of accuracy and 12 of speed, of 12 each"),
        ({"accuracies": [], "speed": []}, "0 comparisons of accuracy and 0 of speed, of 12 each"),
        ({"speed": [SAME_SPEED] * 11}, "incomplete: 12 comparisons of accuracy and 11 of speed, of 12 each"),
        ({"accuracies": [0.9] * 47 + [math.nan]}, "calibration.json: accuracies.47: "),
        ({"pairs": 1}, "calibration.json: pairs: "),
    ],
)
def test_a_record_that_must_not_be_published_is_left_out_with_its_reason(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    write_record(tmp_path / "calibration.json", record(**changes))
    unread, missing = calibration.read_calibration(tmp_path / "calibration.json")
    assert unread is None
    assert reason in (missing or "")
    rates = calibration.rates(unread, missing)
    assert not [rate for rate in rates.rows if rate.comparison.startswith("real")]
    assert f"Real runs: {missing}; `python -m scripts.run_calibration` makes" in rates.notes[-1]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / "calibration.json", record())
    assert calibration.read_calibration(tmp_path / "calibration.json") == (record(), None)


def test_the_command_prints_what_is_wrong_with_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "RECORD", tmp_path / "calibration.json")
    monkeypatch.setattr("sys.argv", ["reports.calibrate"])
    assert calibrate.main() == 0
    written = capsys.readouterr().out
    assert written.startswith("| comparison | n | WORSE or BETTER | EQUIVALENT | INCONCLUSIVE |\n| :-- | --: | ")
    assert "Real runs: no record; " in written
    calibration.RECORD.write_text('{"accuracies": [0.9,')
    assert calibrate.main() == 0
    assert "Real runs: left out: calibration.json: not readable as JSON: " in capsys.readouterr().out


def test_the_committed_record_keeps_the_promised_rates() -> None:
    committed, missing = calibration.read_calibration()
    assert committed is not None, missing
    assert committed.pairs >= calibration.SEEDS
    same, worse = calibration.real(committed), calibration.real(committed, -calibration.INJECTED)
    assert same.total() == worse.total() >= 12
    assert (same["WORSE"] + same["BETTER"]) / same.total() <= 0.05
    assert worse["WORSE"] / worse.total() >= 0.9
    assert len(committed.speed) >= 12
    assert calibration.intervals_holding_one(committed) / len(committed.speed) >= 0.9

"""The rates of wrong verdicts: at most 5% false alarms, and a loss of two margins found in nine of ten."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest

from reports import calibrate
from reports.analysis import calibration
from reports.analysis.statistics import DEFAULT_SEEDS
from reports.records.calibration import SPEED_STARTS, Calibration, SpeedCalibration
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


def test_each_process_start_is_in_one_interval_of_speed() -> None:
    ratios = [0.01, -0.01, 0.005, 0.5, 0.5, 0.51, -0.02, 0.03, 0.0, 9.0]  # the last one is in no group of three
    assert calibration.intervals_holding_one(ratios, 3) == (2, 3)
    assert calibration.intervals_holding_one(ratios, 5) == (2, 2)
    assert calibration.intervals_holding_one(ratios[:2], 3) == (0, 0)


def test_the_rates_are_the_same_every_time_and_say_what_is_missing() -> None:
    missing = calibration.rates(None, "no record", None, "no starts")
    assert missing == calibration.rates(None, "no record", None, "no starts")
    assert missing.notes[-2:] == [
        "Real runs: no record; `python -m scripts.run_calibration` makes or completes a record.",
        "Real process starts: no starts; `python -m scripts.run_speed_calibration` makes or completes a record.",
    ]


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
        environment=Machine(git=Source(commit="1234", dirty=False)),
    )
    return whole.model_copy(update=changes)


GOOD, BAD = [0.01, -0.01, 0.005], [0.5, 0.5, 0.51]  # intervals that hold 1 (a logarithm of 0) and do not


def starts(**changes: object) -> SpeedCalibration:
    """Of 40 groups of three process starts, of which two do not hold 1."""
    whole = SpeedCalibration(
        experiment="tiny",
        config_sha256="c" * 64,
        smoke=False,
        block_seconds=0.1,
        log_ratios=[*GOOD * 38, *BAD * 2],
        environment=Machine(git=Source(commit="1234", dirty=False)),
    )
    return whole.model_copy(update=changes)


def rates_of(record: Calibration | None, speed: SpeedCalibration | None = None) -> calibration.Rates:
    return calibration.rates(record, "no record", speed, "no record")


def notes(record: Calibration | None, speed: SpeedCalibration | None = None) -> str:
    return "\n".join(rates_of(record, speed).notes)


def real_rows(record: Calibration | None) -> list[list[str]]:
    return [rate.cells for rate in rates_of(record).rows if rate.comparison.startswith("real")]


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
    assert "NOT kept" not in found


def test_the_coverage_of_speed_intervals_is_counted_with_its_own_interval() -> None:
    found = rates_of(None, starts()).notes
    # Clopper and Pearson's 95% interval of 38 in 40 is 83.1% to 99.4%.
    counted = "38 of 40, a rate between 83% and 99% with 95% confidence: kept."
    assert found[-2] == f"Intervals of speed over 3 starts that hold 1: {counted}"
    assert found[-1].startswith("Intervals of speed over 5 starts that hold 1: 23 of 24, ")
    deviation = statistics.stdev(starts().log_ratios)
    assert f"Real process starts: tiny; deviation over starts {deviation:.2%}." in found
    few = rates_of(None, starts(log_ratios=[*GOOD * 30, *BAD * 10])).notes[-2]
    assert few.startswith("Intervals of speed over 3 starts that hold 1: 30 of 40, a rate between 59% and 87% ")
    assert few.endswith(": NOT kept.")


def test_a_record_that_breaks_a_limit_says_so() -> None:
    alarm = [0.9, 0.9, 0.8, 0.8]  # one in twelve is more than 5%
    alarms = rates_of(record(accuracies=alarm + record().accuracies[4:])).notes[2]
    assert alarms.startswith("Real runs, false alarms: 1 of 12, ")
    assert alarms.endswith(": NOT kept.")
    noisy = record(accuracies=[0.9, 0.95, 0.93, 0.91] * 12)
    losses = rates_of(noisy).notes[3]
    assert losses.startswith("Real runs, losses found: 0 of 12, ")
    assert losses.endswith(": NOT kept.")


def test_the_promise_and_its_limits_are_stated_with_and_without_a_record() -> None:
    for found in (None, record()):
        text = notes(found)
        assert text.startswith("Promised of at least 5 pairs with noise (the standard deviation of their differences) ")
        assert "of up to one margin: WORSE or BETTER in at most 5% of comparisons without a difference" in text
        assert "WORSE in at least 90% of those with a loss of 2 margins" in text
        assert "1 within 95% of the intervals of the speed of FP32 over itself" in text


def test_three_pairs_stand_beside_five() -> None:
    names = [rate.comparison for rate in rates_of(None).rows]
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
        ({"accuracies": [0.9] * 3}, "incomplete: 0 comparisons of 12"),
        ({"accuracies": [0.9] * 47}, "incomplete: 11 comparisons of 12"),
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
    assert not real_rows(unread)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"smoke": True}, "left out, a smoke run"),
        ({"environment": NO_COMMIT}, "changes that are in no commit"),
        ({"log_ratios": [0.01] * (SPEED_STARTS - 1)}, "incomplete: 119 process starts of 120"),
        ({"log_ratios": [math.nan] * SPEED_STARTS}, "speed_calibration.json: log_ratios.0: "),
    ],
)
def test_process_starts_that_must_not_be_published_are_left_out_with_their_reason(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    file = tmp_path / "speed_calibration.json"
    assert calibration.read_speed_calibration(file) == (None, "no record")
    write_record(file, starts())
    assert calibration.read_speed_calibration(file) == (starts(), None)
    write_record(file, starts(**changes))
    unread, missing = calibration.read_speed_calibration(file)
    assert unread is None
    assert reason in (missing or "")


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
    committed, missing = calibration.read_calibration(calibration.RECORD)
    assert committed is not None, missing
    assert committed.pairs >= calibration.SEEDS
    same, worse = calibration.real(committed), calibration.real(committed, -calibration.INJECTED)
    assert same.total() == worse.total() >= 12
    assert (same["WORSE"] + same["BETTER"]) / same.total() <= 0.05
    assert worse["WORSE"] / worse.total() >= 0.9

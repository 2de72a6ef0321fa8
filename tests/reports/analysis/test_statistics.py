"""The verdict on paired differences and the speed-up, against SciPy's own tests, by hand and in simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reports.analysis.statistics import Judgement, judge, log_ratio, seeds_for_next_look, speedup
from reports.records.comparison import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, Interval, Speedup, Verdict

finite = st.floats(-1, 1, allow_nan=False).map(lambda value: round(value, 4))


@settings(max_examples=200, deadline=None)
@given(st.lists(finite, min_size=2, max_size=12), st.floats(0.01, 1))
def test_the_verdict_is_that_of_scipys_tests(differences: list[float], margin: float) -> None:
    if np.std(differences) < 1e-3:
        return
    judgement = judge(differences, margin, higher_is_better=True)
    assert judgement is not None
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert (judgement.difference.low, judgement.difference.high) == pytest.approx((expected.low, expected.high))
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    two_sided = stats.ttest_1samp(differences, 0.0).pvalue
    if max(above, below) < 0.05:
        assert judgement.verdict == EQUIVALENT
    elif two_sided < 0.05:
        assert judgement.verdict == (BETTER if np.mean(differences) > 0 else WORSE)
    else:
        assert judgement.verdict == INCONCLUSIVE


@pytest.mark.parametrize(
    ("differences", "higher", "verdict"),
    [
        ([0.001, -0.001, 0.0], True, EQUIVALENT),
        ([-0.02, -0.021, -0.019], True, WORSE),
        ([0.02, 0.021, 0.019], True, BETTER),
        ([0.02, 0.021, 0.019], False, WORSE),
        ([-0.02, -0.021, -0.019], False, BETTER),
        ([0.01, -0.02, 0.03], True, INCONCLUSIVE),
    ],
)
def test_a_verdict_is_one_of_four(differences: list[float], higher: bool, verdict: Verdict) -> None:
    judgement = judge(differences, 0.005, higher)
    assert judgement is not None
    assert judgement.verdict == verdict
    assert (judgement.seeds_needed() is not None) == (verdict == INCONCLUSIVE)


def test_one_seed_gets_no_verdict() -> None:
    assert judge([0.1], 0.005, True) is None
    assert judge([], 0.005, True) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_difference_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        judge([0.0, bad], 0.005, True)


def test_seeds_that_agree_to_the_last_sample_leave_an_interval() -> None:
    step = 1 / 360
    judgement = judge([-step, -step, -step], 0.004, True, resolution=step)
    assert judgement is not None
    width = step / math.sqrt(6) / math.sqrt(3) * stats.t.ppf(0.975, 2)
    assert judgement.difference.high - judgement.difference.value == pytest.approx(width)
    assert judgement.verdict == INCONCLUSIVE


def undecided(difference: float, deviation: float) -> Judgement:
    return Judgement(INCONCLUSIVE, Interval(value=difference, low=-1, high=1), 0.005, deviation)


@pytest.mark.parametrize(
    ("difference", "deviation"), [(0.0, 0.006), (0.002, 0.004), (-0.012, 0.02), (0.0, 0.002), (0.0027, 0.0087)]
)
def test_the_seeds_that_would_decide_do_so_in_four_of_five_simulated_comparisons(
    difference: float, deviation: float
) -> None:
    needed = undecided(difference, deviation).seeds_needed()
    assert needed is not None
    draw = np.random.default_rng(0)

    def decided(count: int) -> float:
        judgements = [judge(list(draw.normal(difference, deviation, count)), 0.005, True) for _ in range(2000)]
        return float(np.mean([judgement is not None and judgement.verdict != INCONCLUSIVE for judgement in judgements]))

    # The share of 2,000 draws is off by 0.009 in its standard deviation.
    assert decided(needed) > 0.77
    assert needed == 2 or decided(needed - 1) < 0.83


def test_a_difference_at_the_margin_is_never_decided_by_more_seeds_of_equivalence() -> None:
    assert undecided(0.0, 10.0).seeds_needed() is None


def test_seeds_that_would_decide_are_not_looked_for_beyond_the_most_there_may_be() -> None:
    needed = undecided(0.0, 0.006).seeds_needed()
    assert needed is not None
    assert undecided(0.0, 0.006).seeds_needed(most=needed) == needed
    assert undecided(0.0, 0.006).seeds_needed(most=needed - 1) is None


@pytest.mark.parametrize(
    ("needed", "last", "expected"),
    [
        ([], False, 3),  # nothing is open
        ([7], False, 7),
        ([7, 12], False, 12),
        ([2], False, 4),  # the estimate was of these three: it did not come out, so one more at least
        ([500], False, 20),
        ([7, None], False, 20),
        ([7], True, 20),
    ],
)
def test_the_next_look_has_the_seeds_that_the_open_verdicts_need(
    needed: list[int | None], last: bool, expected: int
) -> None:
    assert seeds_for_next_look(3, needed, 20, last) == expected


def test_a_process_start_says_the_median_of_its_rounds() -> None:
    assert log_ratio([2.0, 4.0, 3.0], [2.0, 4.0, 3.0]) == 0.0
    assert log_ratio([1.0, 10.0, 1.0], [0.5, 1.0, 4.0]) == pytest.approx(math.log(2.0))
    with pytest.raises(ValueError, match="shorter"):
        log_ratio([1.0, 1.0], [1.0])


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_interval_of_a_speedup_is_that_of_the_t_test_on_the_logarithms(count: int) -> None:
    ratios = np.random.default_rng(count).normal(0.1, 0.05, count).tolist()
    measured, oracle = speedup(ratios), stats.ttest_1samp(ratios, 0.0).confidence_interval(0.95)
    assert measured.interval is not None
    assert measured.value == measured.interval.value == pytest.approx(stats.gmean(np.exp(ratios)))
    assert (measured.interval.low, measured.interval.high) == pytest.approx(tuple(np.exp([oracle.low, oracle.high])))
    assert measured.starts == count


def test_one_process_start_has_no_interval_and_none_has_no_speedup() -> None:
    alone = speedup([math.log(2.0)])
    assert alone == Speedup(value=math.exp(math.log(2.0)), interval=None, starts=1)
    with pytest.raises(ValueError, match="one process start at least"):
        speedup([])


@pytest.mark.parametrize("starts", [3, 5])
def test_intervals_over_starts_hold_the_truth_in_95_of_100_where_those_over_rounds_would_not(starts: int) -> None:
    """Rounds of one process share a deviation that is as large as that between rounds."""
    draw = np.random.default_rng(0)
    logs = draw.normal(0, 0.02, (2000, starts, 1)) + draw.normal(0, 0.02, (2000, starts, 8))
    measured = [speedup([log_ratio(start, [1.0] * 8) for start in one]) for one in np.exp(logs).tolist()]
    holding = sum(one.interval is not None and one.interval.low <= 1 <= one.interval.high for one in measured)
    assert stats.binomtest(holding, len(measured), 0.95).pvalue > 0.01
    rounds = logs.reshape(2000, -1)
    error = stats.t.ppf(0.975, 8 * starts - 1) * stats.sem(rounds, axis=1)
    assert (np.abs(rounds.mean(axis=1)) <= error).mean() < 0.75

"""The verdict on paired differences and the ratio of blocks, against SciPy's own tests, by hand and in simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from reports.analysis.statistics import (
    Judgement,
    drift,
    judge,
    pooled_deviation,
    population,
    seeds_for_next_look,
    speedup,
)
from reports.records.comparison import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE, Interval, Verdict

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


def test_equal_work_in_equal_time_is_a_speedup_of_one() -> None:
    assert speedup([2.0, 4.0], [2.0, 4.0]).value == 1.0


def test_a_machine_that_changes_in_the_middle_is_noticed() -> None:
    steady = [1.0, 1.01, 0.99] * 7
    assert drift(steady, steady[::-1]) is None
    changed = drift([1.0] * 21, [0.5 + 0.001 * i for i in range(10)] + [0.8 + 0.001 * i for i in range(11)])
    assert changed is not None
    assert changed.first == pytest.approx(1 / 0.503)
    assert changed.last == pytest.approx(1 / 0.807)
    assert drift([1.0] * 6, [1, 1, 1, 2, 2, 2]) is None, "two rounds a third say nothing"


def outcomes(draw: np.random.Generator, samples: int, pairs: int) -> list[list[int]]:
    """Differences of runs over samples drawn from a population in which the one precision is 1 point worse.

    1.5% of the samples are nearly always lost and 0.4% nearly always gained; seeds differ in a few more.
    """
    kind = draw.random(samples)
    persistent = np.where(kind < 0.015, -1, np.where(kind < 0.019, 1, 0))
    happens = draw.random((pairs, samples)) < 10 / 11
    by_seed = draw.choice([-1, 0, 1], size=(pairs, samples), p=[0.002, 0.996, 0.002])
    return [list(map(int, row)) for row in np.where(persistent, persistent * happens, by_seed)]


def test_a_loss_of_one_margin_on_new_samples_is_rarely_called_within_it() -> None:
    draw, margin, samples, draws = np.random.default_rng(0), 0.01, 900, 600
    equivalent = within = holds = 0
    for _ in range(draws):
        differences = outcomes(draw, samples, pairs=5)
        judged = judge([sum(one) / samples for one in differences], margin, True, 1 / samples)
        assert judged is not None
        interval = population(differences, 1.0, judged)
        equivalent += judged.verdict == EQUIVALENT
        within += max(abs(interval.low), abs(interval.high)) < margin
        holds += interval.low <= -0.01 <= interval.high
    # Of the samples at hand alone, the verdict is about these: in the population it is wrong far more often than in 5%.
    assert equivalent > 0.15 * draws
    assert within <= 0.05 * draws
    assert holds >= 0.95 * draws


def test_the_interval_on_new_samples_is_mcnemars_where_seeds_agree() -> None:
    differences = [[1] * 30 + [-1] * 20 + [0] * 950] * 3
    judged = judge([0.01] * 3, 0.005, True)
    assert judged is not None
    interval = population(differences, 1.0, judged)
    # 32 and 22 discordant of 1004: Agresti and Coull's two more each way.
    variance = (54 / 1004 - (10 / 1004) ** 2) / 1003
    assert interval.value == pytest.approx(0.01)
    assert interval.high - 0.01 == pytest.approx(stats.t.ppf(0.975, 1003) * math.sqrt(variance))


def test_few_samples_that_agree_do_not_say_that_all_would() -> None:
    judged = judge([0.0, 0.0, 0.0], 0.005, True, 1 / 360)
    assert judged is not None
    assert judged.verdict == EQUIVALENT
    interval = population([[0] * 360] * 3, 1.0, judged)
    # With 1% of all samples lost, 360 without one of them are drawn in 3 of 100 cases.
    assert interval.low < -0.01


def test_the_pooled_deviation_is_that_within_groups() -> None:
    groups = [[1.0, 2.0, 4.0], [10.0, 11.0], [5.0], []]
    expected = math.sqrt((np.var([1, 2, 4], ddof=1) * 2 + np.var([10, 11], ddof=1)) / 3)
    deviation, freedom = pooled_deviation(groups)
    assert deviation == pytest.approx(expected)
    assert freedom == 3
    assert pooled_deviation([[1.0], [2.0]]) == (None, 0)

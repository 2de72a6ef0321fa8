"""Differences to FP32 with their intervals: what is drawn where, and what has no place there."""

import math
import re
import statistics

import matplotlib
import pytest
from matplotlib.axes import Axes
from scipy import stats

from reports.analysis.comparison import compare
from reports.pages import intervals as forest
from reports.pages.style import PAPER
from tests.reports.made_runs import COMMAND, EMULATED, compared, write_three

Drawn = dict[float, tuple[float, ...]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What `errorbar` was called with: the line's place to the interval's low end, value and high end."""
    found: Drawn = {}
    original = Axes.errorbar

    def errorbar(self, value, place, xerr, **look):
        found[round(place, 2)] = (value - xerr[0][0], value, value + xerr[1][0])
        return original(self, value, place, xerr=xerr, **look)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return found


def test_pairs_show_the_difference_in_points_with_its_interval(tmp_path, drawn):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    chart = forest.pairs(comparison)
    rows = {row["precision"]: row for row in comparison["rows"]}
    for place, precision in enumerate(("bf16", "fp16")):
        row = rows[precision]
        expected = [100 * row[key] for key in ("difference_low", "difference", "difference_high")]
        assert drawn[place] == pytest.approx(expected)
    assert "accuracy minus that of FP32 [points]" in chart.svg
    assert "Shaded: differences within the margin." in chart.caption
    assert "Thick: 90% interval; EQUIVALENT is where that lies within the shading." in chart.caption
    assert (
        ">bf16 INCONCLUSIVE, +0.00 points [-2.15, 2.15], 90% [-1.46, 1.46]; fp16 INCONCLUSIVE, -1.00 points "
        "[-3.48, 1.48], 90% [-2.69, 0.69]. Margin: 0.5.</desc>"
    ) in chart.svg


@pytest.fixture
def thick(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What `hlines` was called with: the line's place to its ends. `errorbar` calls it too, with arrays."""
    found: Drawn = {}
    original = Axes.hlines

    def hlines(self, place, low, high, **look):
        if isinstance(low, float):
            found[round(place, 2)] = (low, high)
        return original(self, place, low, high, **look)

    monkeypatch.setattr(Axes, "hlines", hlines)
    return found


@pytest.mark.parametrize("looks", [1, 3])
def test_the_thick_part_is_the_interval_that_decides_equivalence(tmp_path, thick, looks):
    write_three(tmp_path)
    comparison = compare(tmp_path, ["fp32", "bf16", "fp16"], range(3), COMMAND, margin=0.005, looks=looks)
    row = comparison["rows"][2]
    accuracies = [0.0, -0.01, -0.02]  # fp16 minus FP32, as `write_three` has them
    error = statistics.stdev(accuracies) / math.sqrt(3)
    reach = error * float(stats.t.ppf(1 - 0.05 / looks, 2))
    low, high = forest.decisive(row)
    assert (low, high) == pytest.approx((-0.01 - reach, -0.01 + reach))
    assert row["difference_low"] < low < high < row["difference_high"]
    pairs = forest.pairs(comparison)
    assert thick[1] == pytest.approx((100 * low, 100 * high))
    assert f"{'90' if looks == 1 else '96.7'}% [{100 * low:.2f}, {100 * high:.2f}]. Margin" in pairs.svg
    assert ("Both intervals are wider where seeds were added" in pairs.caption) == (looks > 1)
    forest.overview([comparison])
    assert thick[0.3] == pytest.approx((low / row["margin"], high / row["margin"]))
    forest.overview([{**comparison, "higher_is_better": False}])
    assert thick[0.3] == pytest.approx((-high / row["margin"], -low / row["margin"]))


def test_the_line_of_fp32_leaves_out_the_names(tmp_path, monkeypatch):
    names, lines = [], []
    text, vlines = Axes.text, Axes.vlines

    def named(self, x, y, *rest, **look):
        names.append(y)
        return text(self, x, y, *rest, **look)

    def lined(self, x, low, high, **look):
        lines.extend(zip(x, low, high, strict=True))
        return vlines(self, x, low, high, **look)

    monkeypatch.setattr(Axes, "text", named)
    monkeypatch.setattr(Axes, "vlines", lined)
    for name in ("a", "b"):
        write_three(tmp_path / name)
    forest.overview([compared(tmp_path / name) for name in ("a", "b")])
    assert names == [-0.25, 0.75] * 2
    assert lines == [(1, -0.06, 0.5), (1, 0.94, 1.5), (0, -0.06, 0.5), (0, 0.94, 1.5)]


def test_what_is_drawn_of_all_experiments_is_said_in_words(tmp_path):
    write_three(tmp_path / "a")
    write_three(tmp_path / "b")
    first, second = ({**compared(tmp_path / name), "experiment": name} for name in ("a", "b"))
    first["rows"][1] |= {"speedup": 0.9975, "speedup_low": 0.96, "speedup_high": 0.9992}
    speedups, qualities = forest.overview([first, second])
    said = [chart.svg.partition('-finding">')[2].partition("</desc>")[0] for chart in (speedups, qualities)]
    assert said[0] == (
        "b: bf16 2.00x [2.00, 2.00]; fp16 0.80x [0.80, 0.80] (emulated). "
        "a: bf16 0.998x [0.96, 0.999]; fp16 0.80x [0.80, 0.80] (emulated)."
    )
    assert said[1].startswith("a: bf16 INCONCLUSIVE, +0.00 points [-2.15, 2.15], 90% [-1.46, 1.46]; fp16 INCONCLUSIVE")


def test_single_runs_have_no_interval_and_no_chart(tmp_path):
    write_three(tmp_path, seeds=1)
    assert forest.pairs(compared(tmp_path, seeds=1)) is None


def test_all_experiments_are_on_a_line_each_the_fastest_first(tmp_path, drawn):
    write_three(tmp_path / "slow")
    write_three(tmp_path / "fast")
    slow, fast = ({**compared(tmp_path / name), "experiment": name} for name in ("slow", "fast"))
    for row in fast["rows"][1:]:
        row |= {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.2}
    speedups, _ = forest.overview([slow, fast])
    texts = re.findall(r"> ?(slow|fast)</text>", speedups.svg)
    assert texts == ["fast", "slow"]
    assert speedups.svg.count(">bf16</text>") == 1  # in the legend, and once


def test_emulated_speed_does_not_decide_where_an_experiment_stands(tmp_path, drawn):
    for name in ("slow", "fast"):
        write_three(tmp_path / name)
    slow, fast = ({**compared(tmp_path / name), "experiment": name} for name in ("slow", "fast"))
    slow["rows"][1] |= {"speedup": 0.4, "speedup_low": 0.4, "speedup_high": 0.4}  # bf16; fp16 is emulated here
    slow["rows"][2] |= {"speedup": 9.0, "speedup_low": 9.0, "speedup_high": 9.0}
    speedups, _ = forest.overview([slow, fast])
    assert re.findall(r"> ?(slow|fast)</text>", speedups.svg) == ["fast", "slow"]


def test_quality_is_sorted_by_margins_and_its_direction(tmp_path, drawn):
    for name in ("loss", "accuracy"):
        write_three(tmp_path / name)
    loss, accuracy = ({**compared(tmp_path / name), "experiment": name} for name in ("loss", "accuracy"))
    loss["higher_is_better"] = False
    for row in loss["rows"][1:]:
        row |= {"difference": 0.5, "difference_low": 0.4, "difference_high": 0.6, "margin": 0.02}
    _, qualities = forest.overview([loss, accuracy])
    assert re.findall(r"> ?(loss|accuracy)</text>", qualities.svg) == ["accuracy", "loss"]


def test_two_experiments_of_one_name_have_a_line_each(tmp_path, drawn):
    for name in ("a", "b"):
        write_three(tmp_path / name)
    first, second = ({**compared(tmp_path / name), "experiment": "tiny"} for name in ("a", "b"))
    second["rows"][1] |= {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.2}
    second["higher_is_better"] = False
    speedups, qualities = forest.overview([first, second])
    for chart in (speedups, qualities):
        assert re.findall(r"> ?(tiny)</text>", chart.svg) == ["tiny", "tiny"]
    assert [round(place, 2) for place in drawn] == [0.08, 0.3, 1.08, 1.3]
    # The qualities came last: both have one difference, on sides of their own.
    assert drawn[0.3] == pytest.approx([-value for value in reversed(drawn[1.3])])


def test_emulated_speed_is_hollow_and_the_caption_says_so(tmp_path, monkeypatch):
    faces = []
    original = Axes.errorbar

    def errorbar(self, value, place, **look):
        faces.append((round(place, 2), look.get("markerfacecolor")))
        return original(self, value, place, **look)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    write_three(tmp_path)
    comparison = compared(tmp_path)
    speedups, qualities = forest.overview([comparison])
    assert faces == [(0.08, None), (0.3, PAPER), (0.08, None), (0.3, None)]
    assert f"Hollow: emulated (fp16: {EMULATED})" in speedups.caption
    assert "fill: var(--paper); stroke: var(--fp16)" in speedups.svg
    assert "ollow" not in qualities.caption
    assert "var(--paper)" not in qualities.svg
    comparison["rows"][2]["arithmetic"] = "native kernels"
    assert "ollow" not in forest.overview([comparison])[0].caption


def test_quality_is_in_margins_and_better_is_to_the_right(tmp_path, drawn):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    for row in comparison["rows"]:
        row["speedup"] = None
    lower_is_better = {**comparison, "higher_is_better": False}
    row = comparison["rows"][2]
    expected = [row[key] / row["margin"] for key in ("difference_low", "difference", "difference_high")]
    (chart,) = forest.overview([comparison])
    assert drawn[0.3] == pytest.approx(expected)
    assert chart.name == "qualities"
    forest.overview([lower_is_better])
    assert drawn[0.3] == pytest.approx([-value for value in reversed(expected)])


def test_experiments_of_one_seed_have_no_place_among_the_differences(tmp_path):
    write_three(tmp_path, seeds=1)
    (chart,) = forest.overview([compared(tmp_path, seeds=1)])
    assert chart.name == "speedups"
    assert forest.overview([]) == []
    assert matplotlib.rcParams["font.size"] == matplotlib.rcParamsDefault["font.size"]  # the style is not left behind

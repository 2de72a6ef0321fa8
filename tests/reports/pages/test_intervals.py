"""Differences vs FP32 with their intervals, speed-ups and memory: what is drawn where, and what has no place there."""

import math
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.axes import Axes
from scipy import stats

from reports.pages import intervals
from reports.pages.precisions import PRECISIONS, appearance
from reports.pages.style import Chart, standalone
from reports.records.comparison import Comparison, Interval, Speedup
from tests.reports.browser import Checker
from tests.reports.made_runs import compared, rows_of, write_three

Drawn = dict[float, tuple[float, ...]]
Made = Callable[..., Comparison]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What is drawn at each height: the ends of the thin line, where there is one, and the value."""
    ends: Drawn = {}
    original = Axes.plot

    def plot(self: Axes, x: Any, y: Any, *form: str, **style: Any) -> Any:
        if isinstance(y, float):
            ends[round(y, 2)] = (*ends.get(round(y, 2), ()), x)
        elif style.get("linewidth") == 1 and len(y):
            ends[round(y[0], 2)] = tuple(x)
        return original(self, x, y, *form, **style)

    monkeypatch.setattr(Axes, "plot", plot)
    return ends


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A comparison by name, with the speed-up of bf16."""

    def comparison(name: str, bf16: float = 2.0) -> Comparison:
        write_three(tmp_path / name)
        result = compared(tmp_path / name)
        result.experiment = name
        interval = Interval(value=bf16, low=bf16 - 0.1, high=bf16 + 0.2)
        rows_of(result)["bf16"].speedup = Speedup(value=bf16, interval=interval, starts=3)
        return result

    return comparison


def names(chart: Chart, *experiments: str) -> list[str]:
    return re.findall(rf"> ?({'|'.join(experiments)})</text>", chart.svg)


def test_pairs_show_the_difference_in_points_with_its_interval(made: Made, drawn: Drawn) -> None:
    comparison = made("tiny")
    chart = intervals.paired_differences(comparison)
    assert chart is not None
    for place, precision in enumerate(("bf16", "fp16")):
        interval = rows_of(comparison)[precision].interval
        assert interval is not None
        assert drawn[place] == pytest.approx([100 * interval.low, 100 * interval.high, 100 * interval.value])
    assert "accuracy minus FP32's [points]" in chart.svg
    assert "Thick: 90% interval, EQUIVALENT where it lies within the shaded margin." in chart.caption


@pytest.mark.parametrize("looks", [1, 3])
def test_the_thick_part_is_the_interval_that_decides_equivalence(made: Made, looks: int) -> None:
    comparison = made("tiny")
    row = rows_of(comparison)["fp16"]
    differences = [0.0, -0.01, -0.02]  # fp16 minus FP32, as `write_three` has them
    error = statistics.stdev(differences) / math.sqrt(3)
    row.looks = comparison.looks = looks
    wide = error * float(stats.t.ppf(1 - 0.025 / looks, 2))
    row.interval = Interval(value=-0.01, low=-0.01 - wide, high=-0.01 + wide)
    reach = error * float(stats.t.ppf(1 - 0.05 / looks, 2))
    mark = intervals.difference(row, 100)
    assert mark
    assert mark.thick == pytest.approx((-1 - 100 * reach, -1 + 100 * reach))


def test_quality_is_in_margins_and_better_is_to_the_right(made: Made) -> None:
    row = rows_of(made("tiny"))["fp16"]
    assert row.interval
    assert row.margin
    assert row.metric
    ends = row.interval.low / row.margin, row.interval.high / row.margin
    mark = intervals.quality(row)
    assert mark is not None
    assert mark.thin == pytest.approx(ends)
    row.metric = row.metric.model_copy(update={"higher_is_better": False})
    mark = intervals.quality(row)
    assert mark is not None
    assert mark.thin == pytest.approx((-ends[1], -ends[0]))


def test_memory_is_the_ratio_of_what_is_saved_for_backward_with_the_smallest_first(made: Made, drawn: Drawn) -> None:
    more, less = made("more"), made("less")
    for row in more.mixed_rows:
        row.saved_ratio = 1.5
    *_, memory = intervals.overview([more, less])
    assert memory.name == "memory"
    assert names(memory, "more", "less") == ["less", "more"]
    assert [drawn[place][-1] for place in (-0.1, 0.1, 0.9, 1.1)] == [0.5, 0.5, 1.5, 1.5]


def test_single_runs_have_no_interval_and_no_place_among_the_differences(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1)
    comparison = compared(tmp_path, seeds=1)
    assert intervals.paired_differences(comparison) is None
    assert [chart.name for chart in intervals.overview([comparison])] == ["speedups", "memory"]
    assert intervals.overview([]) == []
    assert matplotlib.rcParams["font.size"] == matplotlib.rcParamsDefault["font.size"]  # the style is not left behind


def test_all_experiments_are_on_a_line_each_the_fastest_first(made: Made) -> None:
    speedups, *_ = intervals.overview([made("slow"), made("fast", bf16=3.0)])
    assert names(speedups, "slow", "fast") == ["fast", "slow"]
    assert speedups.svg.count(">bf16</text>") == 1  # in the legend, and once


def test_emulated_speed_does_not_decide_where_an_experiment_stands(made: Made) -> None:
    slow = made("slow", bf16=0.4)
    rows_of(slow)["fp16"].speedup = Speedup(value=9.0)  # fp16 is emulated here
    speedups, *_ = intervals.overview([slow, made("fast")])
    assert names(speedups, "slow", "fast") == ["fast", "slow"]


def test_quality_is_sorted_by_margins_and_its_direction(made: Made) -> None:
    loss, accuracy = made("loss"), made("accuracy")
    for row in loss.mixed_rows:
        assert row.metric
        row.metric = row.metric.model_copy(update={"higher_is_better": False})
        row.interval, row.margin = Interval(value=0.5, low=0.4, high=0.6), 0.02
    _, qualities, _ = intervals.overview([loss, accuracy])
    assert names(qualities, "loss", "accuracy") == ["accuracy", "loss"]


def test_two_experiments_of_one_name_have_a_line_each(made: Made, tmp_path: Path) -> None:
    comparison = made("tiny")
    for chart in intervals.overview([comparison, comparison]):
        assert names(chart, "tiny") == ["tiny", "tiny"]


def test_emulated_speed_is_hollow(made: Made) -> None:
    comparison = made("tiny")
    hollow = f"fill-opacity: 0; stroke: {PRECISIONS['fp16'].colour}"
    speedups, qualities, _ = intervals.overview([comparison])
    assert hollow in speedups.svg
    assert hollow not in qualities.svg
    rows_of(comparison)["fp16"].arithmetic = "native kernels"
    assert hollow not in intervals.overview([comparison])[0].svg


def test_a_chart_alone_is_a_page(made: Made) -> None:
    chart, *_ = intervals.overview([made("tiny")])
    page = standalone(chart)
    assert Checker(page).wrong == []
    assert chart.caption in page
    assert chart.address in page


def luminance(colour: str) -> float:
    """Relative luminance: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", [appearance(name).colour for name in (*PRECISIONS, "other")])
def test_every_colour_reads_on_a_white_and_on_a_dark_page(colour: str) -> None:
    for page in ("#ffffff", "#0d1117"):
        lighter, darker = sorted((luminance(colour), luminance(page)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3

"""What is shown over all experiments, and the formats of its table."""

import csv
import html
import io
import re
from pathlib import Path

import pytest

from reports import build
from reports.analysis import calibration
from reports.analysis.reproduction import NOT_RUN, REPRODUCED, SCALED_DOWN, WITHIN_NOISE, Reproduction
from reports.overview import overview
from reports.pages import keys, overview_page
from reports.pages.overview_page import TITLES, conclusions, devices, reproduced
from reports.pages.precisions import PRECISIONS, in_order
from reports.pages.published_table import published
from reports.records.comparison import Comparison, Interval, Speedup
from reports.records.config import Experiment
from reports.records.environment import Device, Environment
from reports.records.published import PublishedRow
from tests.reports.browser import CHROMIUM, Checker, measure
from tests.reports.made_runs import EMULATED, compared, rows_of, write_run, write_three

ROW = PublishedRow(
    id="row-1",
    model="TinyNet",
    dataset="dots",
    metric="test accuracy",
    unit="fraction",
    precision="fp32",
    value="0.92",
    source="https://example.org/a_b & c",
)
MEASURED = Reproduction(ROW, "tiny", "bf16", REPRODUCED, (0.921, 0.919, 0.922), 0.0015, "+0.0007, within 0.005")
LONG = "a_long_name_of_an_experiment_of_many_words_on_many_samples"


def write(folder: Path, comparisons: dict[Path, Comparison], reproductions: list[Reproduction]) -> None:
    left_out = {"gone": "no comparison.json & <more>"}
    overview_page.write(folder, comparisons, left_out, reproductions, calibration.Rates([], ["Nothing was counted."]))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_three(tmp_path / "results" / "tiny")
    write_three(tmp_path / "results" / "other", seeds=1)
    write_run(tmp_path / "results" / "other", "bf16", 0, status="diverged", reason="step 3: non-finite & <gone>")
    folders = [tmp_path / "results" / name for name in ("other", "tiny")]
    comparisons = {folder: compared(folder, seeds=3 if folder.name == "tiny" else 1) for folder in folders}
    write(tmp_path, comparisons, [MEASURED, Reproduction(ROW, "tiny", None, NOT_RUN, rule="no record")])
    return tmp_path


def test_the_page_is_whole_and_links_every_experiment(written: Path) -> None:
    text = (written / "index.html").read_text(encoding="utf-8")
    assert Checker(text).wrong == []
    links = re.findall(r'<th scope="row"><a href="([^"]+)"', text)
    assert links == ["results/other/report.html", *["results/tiny/report.html"] * 2]
    assert 'href="https://example.org/a_b"' in text


def test_the_code_host_has_pictures_and_links_what_is_committed(written: Path) -> None:
    text = (written / "README.md").read_text(encoding="utf-8")
    assert ".html" not in text
    assert re.findall(r"\]\((results/[^)]+)\)", text)[:2] == ["results/other/results.md", "results/tiny/results.md"]
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert pictures == ["figures/speedups.svg", "figures/qualities.svg", "figures/memory.svg"]
    assert all((written / picture).exists() for picture in pictures)


def test_the_experiments_stand_first_and_then_what_they_say_together(written: Path) -> None:
    bf16 = (
        "bf16 on CPUs: faster than FP32 in 2 of 2 experiments and slower in 0 (median 2x, from 2x to 2x); accuracy: "
        "1 INCONCLUSIVE, 1 without a verdict."
    )
    fp16 = (
        "fp16 on CPUs: faster than FP32 in 0 of 2 experiments and slower in 2 (median 0.8x, from 0.8x to 0.8x), "
        f"emulated ({EMULATED}), not as on hardware for it; accuracy: 1 INCONCLUSIVE, 1 without a verdict."
    )
    page = html.unescape((written / "index.html").read_text(encoding="utf-8"))
    chance = "Each verdict is a test of its own: it may be wrong by chance in 5% of cases, about 0.1 of 2 here."
    readme = (written / "README.md").read_text("utf-8")
    assert f"\n\n- {bf16}\n- {fp16}\n- {chance}\n- Published numbers: " in readme
    for text, row, chart in ((page, '<th scope="row">', "<figure>"), (readme, "| [tiny]", "![")):
        assert 0 < text.index(row) < text.index(bf16) < text.index(fp16) < text.index(chart)
        assert text[: text.index(row)].count("experiments on") == 1  # no other prose before the table


def on(comparison: Comparison, kind: str, name: str) -> Comparison:
    return comparison.model_copy(update={"environment": Environment(device=Device(type=kind, name=name))}, deep=True)


def test_experiments_on_devices_of_two_kinds_are_not_counted_together(written: Path) -> None:
    first = compared(written / "results" / "tiny")
    second, third = on(first, "cpu", "Other CPU"), on(first, "cuda", "Some GPU")
    rows_of(second)["bf16"].speedup = Speedup(value=0.998, interval=Interval(value=0.998, low=0.9, high=1.1), starts=3)
    rows_of(second)["fp16"].arithmetic = "native kernels"
    third.rows = third.rows[:2]
    third.rows[1].speedup = None
    bf16, fp16, on_gpu = conclusions([first, second, third])
    assert bf16.startswith(
        "bf16 on CPUs: faster than FP32 in 1 of 2 experiments and slower in 0 (median 1.5x, from 0.998x"
    )
    assert bf16.endswith("accuracy: 2 INCONCLUSIVE.")
    assert f"emulated ({EMULATED})" in fp16
    assert on_gpu == "bf16 on GPUs: speed not compared with FP32; accuracy: 1 INCONCLUSIVE."
    rows_of(first)["bf16"].speedup = Speedup(value=9.0)
    assert conclusions([first, second])[0].startswith(
        "bf16 on CPUs: faster than FP32 in 0 of 1 experiments and slower in 0, measured in one process start, without "
        "an interval, in 1 (median 5x, from 0.998x to 9x)"
    )
    assert conclusions([first])[0].startswith(
        "bf16 on CPUs: speed measured in one process start, without an interval, in 1 (median 9x"
    )
    assert devices([first, second, first]) == "Some CPU, 2 threads (2); Other CPU (1)"


def test_published_rows_are_counted_once_and_their_measurements_by_verdict() -> None:
    other = PublishedRow(id="row-2")
    found = [
        MEASURED,
        Reproduction(ROW, "tiny", "fp16", WITHIN_NOISE, (0.9,)),
        Reproduction(ROW, "longer", None, NOT_RUN),
        Reproduction(other, "longer", None, NOT_RUN),
    ]
    text = "1 of 2 were measured; verdicts by number and precision: 1 REPRODUCED, 1 WITHIN NOISE."
    assert reproduced(found) == text
    assert reproduced(found[2:]) == "0 of 2 were measured; verdicts by number and precision: none."


def test_published_rows_stand_with_their_verdict_and_what_was_not_run_with_its_command() -> None:
    table = published([Reproduction(ROW, "later", None, NOT_RUN, rule="no record"), MEASURED], {"later": 2.0}, "at/{}")
    what = "TinyNet, dots, test accuracy; https://example.org/a_b & c"
    assert table.rows == [
        ["tiny", "row-1", "bf16", "REPRODUCED", "0.92 (fp32)", "0.9207 ± 0.0015 (n=3)", what, "+0.0007, within 0.005"],
        ["later", "row-1", "n/a", "NOT RUN", "0.92 (fp32)", "n/a", "", "no record: bash scripts/reproduce.sh row-1, "
         "about 2 h a run here"],
    ]  # fmt: skip
    assert table.links == ["at/tiny", ""]


def test_an_experiment_without_record_and_published_row_is_listed_with_its_command(written: Path) -> None:
    sentence = "- resnet20_fashion_mnist: `bash scripts/compare.sh configs/resnet20_fashion_mnist.yaml`"
    assert sentence in (written / "README.md").read_text("utf-8").partition("## Not run")[2]
    folder = written / "results" / "resnet20_fashion_mnist"
    write_three(folder, seeds=1)
    write(written, {folder: compared(folder, seeds=1)}, [MEASURED])
    assert sentence not in (written / "README.md").read_text("utf-8")


def test_what_is_left_out_is_named_with_the_reason(written: Path) -> None:
    assert "gone is left out: no comparison.json &amp; &lt;more&gt;" in (written / "index.html").read_text("utf-8")
    assert "- gone is left out: no comparison.json & <more>" in (written / "README.md").read_text("utf-8")


def test_every_experiment_is_a_row_with_its_cells_for_each_mixed_precision(written: Path) -> None:
    comparisons = {name: compared(written / "results" / name, seeds=3) for name in ("tiny",)}
    table = overview_page.summary(comparisons)
    assert table.titles[:5] == ["experiment", "device", "fp32", "margin", "bf16 speed-up [95%]"]
    assert table.rows == [
        ["tiny", "Some CPU, 2 threads", "91.00% ± 1.00 (n=3)", "0.50 points", "2.00x [2.00, 2.00]",
         "+0.00 points [-2.15, 2.15] INCONCLUSIVE",
         "0.50x", "0.80x [0.80, 0.80] (emulated)", "-1.00 points [-3.48, 1.48] INCONCLUSIVE", "0.50x"]
    ]  # fmt: skip


def test_a_reader_orders_the_experiments_without_a_script(written: Path) -> None:
    comparisons = {name: compared(written / "results" / "tiny") for name in "abc"}
    for comparison, speed, accuracy, ratio in zip(
        comparisons.values(), (1.1, None, 1.5), (0.002, 0.004, None), (0.9, 0.5, 0.7), strict=True
    ):
        row = rows_of(comparison)["bf16"]
        row.speedup = Speedup(value=speed, starts=1) if speed else None
        row.interval = Interval(value=accuracy, low=-1.0, high=1.0) if accuracy else None
        row.saved_ratio = ratio
    orders = overview_page.summary(comparisons).orders
    assert orders["experiment"] == [0, 1, 2]
    assert orders["bf16 speed-up [95%]"] == [1, 2, 0]  # the fastest first, what was not measured last
    assert orders["bf16 difference, verdict"] == [1, 0, 2]
    assert orders["bf16 saved for backward"] == [2, 0, 1]  # the least memory first
    page = (written / "index.html").read_text("utf-8")
    choices = re.findall(r'<input type="radio" name="order" id="by-(\d)"', page)
    assert len(choices) == 7
    for choice in choices:
        assert f"#by-{choice}:checked ~ table tbody tr {{ order: var(--by-{choice}); }}" in page
        assert len(re.findall(rf"<tr style=.*--by-{choice}: \d+;", page)) == 2


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_puts_the_rows_into_the_order_that_is_chosen(written: Path) -> None:
    page = (written / "index.html").read_text("utf-8").replace('id="by-1" checked', 'id="by-1"')
    page = page.replace('id="by-4"', 'id="by-4" checked')
    (written / "chosen.html").write_text(page)
    cells = measure(written / "chosen.html", 1200)["cells"]
    columns = len(TITLES) * 2 + 4
    assert cells[0][4] > cells[columns][4] > 0  # the row that is first in the file stands below the second


def test_no_experiment_is_still_a_page(tmp_path: Path) -> None:
    write(tmp_path, {}, [])
    assert Checker((tmp_path / "index.html").read_text(encoding="utf-8")).wrong == []
    assert "0 of 0 were measured" in (tmp_path / "README.md").read_text("utf-8")


def test_the_formats_hold_the_same_rows(written: Path) -> None:
    tiny = compared(written / "results" / "tiny")
    rows = list(csv.DictReader(io.StringIO(overview({"tiny": tiny}, "csv"))))
    assert [(row["experiment"], row["precision"]) for row in rows] == [("tiny", name) for name in tiny.precisions]
    speedups = [row.speedup for row in tiny.mixed_rows]
    assert [row["speedup"] for row in rows] == ["", *(str(one.value) for one in speedups if one)]
    assert (
        overview({"tiny": tiny}, "markdown")
        .splitlines()[2]
        .startswith("| tiny | Some CPU, 2 threads | 91.00% ± 1.00 (n=3)")
    )
    latex = overview({"tiny": tiny}, "latex").splitlines()
    assert latex[0] == rf"\begin{{tabular}}{{ll{'r' * 8}}}"
    assert all(len(re.findall(r"(?<!\\)&", line)) == 9 for line in latex if line.endswith(r"\\"))
    assert r"91.00\% $\pm$ 1.00" in latex[4]


def test_what_latex_reads_as_a_command_is_written_out(written: Path) -> None:
    tiny = compared(written / "results" / "tiny")
    row = overview({r"~a^b_c\d{e}": tiny}, "latex").splitlines()[4]
    assert row.startswith(r"\textasciitilde{}a\textasciicircum{}b\_c\textbackslash{}d\{e\} & ")


def test_the_order_of_precisions_is_one_table() -> None:
    assert in_order(["fp16", "new", "fp32", "bf16", "fp16"]) == ["fp32", "bf16", "fp16", "new"]
    assert next(iter(PRECISIONS)) == "fp32"


def test_every_key_of_an_experiment_is_in_the_table() -> None:
    lines = keys.table(Experiment).splitlines()
    rows = {line.split("`")[1]: line for line in lines[2:]}
    assert rows["epochs"].startswith("| `epochs` | integer ≥ 1, null | null | Passes over the training data")
    assert rows["accumulate"].startswith("| `accumulate` | integer ≥ 1 | 1 | ")
    assert "| `sgd`, `adamw`, text | required |" in rows["optimizer.name"]
    assert "| `constant`, `cosine`, `linear`, `step` | required |" in rows["schedule.name"]
    assert "number ≥ 0 and < 1, null" in rows["dropout"]
    sections = {"data", "optimizer", "schedule", "scaler"}
    assert {name.partition(".")[0] for name in rows} == set(Experiment.model_fields)
    assert sections.isdisjoint(rows)


@pytest.mark.parametrize("text", ["", "<!-- keys:begin -->", "<!-- keys:end -->"])
def test_missing_markers_are_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"FILE: has no <!-- keys:(begin|end) -->"):
        build.between_markers("FILE", text, "keys", "new")
    assert build.between_markers("FILE", "a<!-- keys:begin -->old<!-- keys:end -->b", "keys", "new") == (
        "a<!-- keys:begin -->\nnew\n<!-- keys:end -->b"
    )


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_runs_over_the_edge(written: Path, width: int) -> None:
    why = "the noise over runs is not known from one, " * 4
    changes = {"dataset": "sequences " * 12, "unit": "nats/char", "precision": "fp32 (CPU path is nullcontext)"}
    row = ROW.model_copy(update=changes)
    found = Reproduction(row, LONG, "bf16", SCALED_DOWN, (0.921, 0.919, 0.922), 0.00153, why)
    folder = (written / "results" / "tiny").rename(written / "results" / LONG)
    write(written, {folder: compared(folder)}, [found, Reproduction(row, "tiny", None, NOT_RUN, rule="no record")])
    seen = measure(written / "index.html", width)
    assert seen["scroll"] <= seen["client"] <= width
    assert seen["body"] <= seen["client"]
    for _, left, right, height, _ in seen["cells"]:
        assert 0 <= left < right <= seen["client"]
        assert height > 0


def test_the_overview_says_once_how_many_verdicts_may_be_wrong_by_chance(tmp_path: Path) -> None:
    write_three(tmp_path / "tiny")
    comparison = compared(tmp_path / "tiny")
    expected = "Each verdict is a test of its own: it may be wrong by chance in 5% of cases, about 0.5 of 10 here."
    assert overview_page.multiplicity([comparison] * 5) == [expected]
    assert overview_page.multiplicity([compared(tmp_path / "tiny", seeds=1)]) == []

"""What is shown over all experiments, and the formats of its table."""

import csv
import html
import io
import re
from pathlib import Path

import pytest

from reports.analysis.reproduction import NOT_RUN, REPRODUCED, SCALED_DOWN, WITHIN_NOISE, Reproduction
from reports.overview import cells as overview_cells
from reports.overview import overview
from reports.pages import experiment_page as page
from reports.pages import filters as markup
from reports.pages import overview_page as index
from reports.pages import table
from reports.pages.sentences import conclusions, hardware, reproduced
from tests.reports.browser import CHROMIUM, Checker, measure
from tests.reports.made_runs import EMULATED, compared, write_run, write_three

ROW = {
    "id": "row-1", "value": "0.92", "unit": "fraction", "precision": "fp32", "model": "TinyNet", "dataset": "dots",
    "metric": "test accuracy", "source": "https://example.org/a_b & c",
}  # fmt: skip
LONG = {"experiment": "a_long_name_of_an_experiment_of_many_words_on_many_samples"}
MEASURED = Reproduction(ROW, "tiny", "bf16", REPRODUCED, (0.921, 0.919, 0.922), 0.0015, "+0.0007, within 0.005")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_three(tmp_path / "results" / "tiny")
    write_three(tmp_path / "results" / "other", seeds=1)
    write_run(tmp_path / "results" / "other", "bf16", 0, status="diverged", reason="step 3: non-finite & <gone>")
    folders = [tmp_path / "results" / name for name in ("other", "tiny")]
    comparisons = {folder: compared(folder, seeds=3 if folder.name == "tiny" else 1) for folder in folders}
    found = [MEASURED, Reproduction(ROW, "tiny", None, NOT_RUN, rule="no record")]
    index.write(tmp_path, comparisons, {"gone": "no comparison.json & <more>"}, found, None)
    return tmp_path


def test_the_page_is_whole_and_links_every_experiment(written: Path) -> None:
    text = (written / "index.html").read_text(encoding="utf-8")
    assert Checker(text).wrong == []
    assert re.findall(r'<h3 id="[^"]+"><a href="([^"]+)"', text) == [
        "results/other/report.html",
        "results/tiny/report.html",
    ]
    assert 'href="https://example.org/a_b"' in text


def test_the_page_begins_with_the_answer_over_all_experiments(written: Path) -> None:
    text = html.unescape((written / "index.html").read_text(encoding="utf-8"))
    answer, _, rest = text.partition("<main>")[2].partition("</section>")
    bf16, fp16, published = re.findall(r"<p>(.*?)</p>", answer)
    assert bf16 == (
        "bf16 trains faster than FP32 in 2 of 2 experiments on Some CPU, 2 threads (median 2.00x, from 2.00x to "
        "2.00x) and slower in 0; accuracy is equivalent in 0, inconclusive in 1, better in 0 and worse in 0 of the 1 "
        "with at least two seeds, and 1 has no result."
    )
    assert fp16 == (
        "fp16 trains faster than FP32 in 0 of 2 experiments on Some CPU, 2 threads (median 0.80x, from 0.80x to "
        "0.80x) and slower in 2; accuracy is equivalent in 0, inconclusive in 1, better in 0 and worse in 0 of the 1 "
        "with at least two seeds, and 1 is a single run, which has no verdict. Its arithmetic is emulated "
        f"({EMULATED}): that speed says nothing about fp16 hardware."
    )
    assert published == (
        '<a href="#published">Published against measured</a>: 1 of 1 measurement of 1 published row, one for each '
        "precision of an experiment, are REPRODUCED."
    )
    assert "2 experiments on Some CPU, 2 threads (2); every figure" in rest
    contents = rest.partition("</nav>")[0]
    assert re.findall(r'href="#(\w+)"', contents) == ["charts", "answers", "published", "results", "calibration"]
    assert (written / "README.md").read_text(encoding="utf-8").startswith(f"# Results\n\n{bf16}\n\n{fp16}\n\n")


def test_experiments_on_devices_of_two_kinds_are_not_counted_together(written: Path) -> None:
    first = compared(written / "results" / "tiny")
    second = {**first, "environment": {"device": {"type": "cpu", "name": "Other CPU"}}}
    third = {**first, "environment": {"device": {"type": "cuda", "name": "Some GPU"}}, "rows": first["rows"][:2]}
    quick = [*second["rows"][:1], {**second["rows"][1], "speedup": 0.998, "speedup_low": 0.9, "speedup_high": 1.1}]
    second["rows"] = [*quick, {**second["rows"][2], "arithmetic": "native kernels", "metric": "eval/loss"}]
    third["rows"][1] = {**third["rows"][1], "speedup": None, "speedup_low": None, "speedup_high": None}
    bf16, fp16, on_gpu = conclusions([first, second, third])
    assert "faster than FP32 in 1 of 2 experiments on CPUs (median 1.50x, from 0.998x to 2.00x) and slower in 0" in bf16
    assert ", with 1 undecided; accuracy is equivalent in 0, inconclusive in 2, better" in bf16
    assert "; accuracy or loss is equivalent" in fp16
    assert "Its arithmetic in 1 of them is emulated" in fp16
    assert on_gpu.startswith("bf16 was not compared in speed with FP32 on Some GPU; accuracy is equivalent in 0, incon")
    assert hardware([first, second, first]) == "Some CPU, 2 threads (2); Other CPU (1)"


def test_published_rows_are_counted_once_and_their_measurements_by_verdict() -> None:
    other = {**ROW, "id": "row-2"}
    found = [
        MEASURED,
        Reproduction(ROW, "tiny", "fp16", WITHIN_NOISE, (0.9,)),
        Reproduction(ROW, "longer", None, NOT_RUN),
        Reproduction(other, "longer", None, NOT_RUN),
    ]
    assert reproduced(found) == (
        "1 of 2 measurements of 1 published row, one for each precision of an experiment, are REPRODUCED, 1 WITHIN "
        "NOISE; not run: 1 published row."
    )
    assert reproduced(found[2:]) == "no published row was measured; not run: 2 published rows."


def test_every_address_of_a_source_is_a_link_and_the_text_is_kept() -> None:
    source = "https://x.org/a_(b)/c.md (not tested); recipe: https://y.org/d?e=1&f, and (also https://z.org)."
    assert markup.linked(source) == (
        '<a href="https://x.org/a_(b)/c.md">https://x.org/a_(b)/c.md</a> (not tested); recipe: '
        '<a href="https://y.org/d?e=1&amp;f">https://y.org/d?e=1&amp;f</a>, and '
        '(also <a href="https://z.org">https://z.org</a>).'
    )
    assert markup.linked("a/b 1.3/_sources/<c> @f43fd82") == "a/b 1.3/_sources/&lt;c&gt; @f43fd82"
    assert markup.coded("`--seeds <n>` & ` alone") == "<code>--seeds &lt;n&gt;</code> &amp; ` alone"


def test_the_answers_are_those_of_the_experiments_pages(written: Path) -> None:
    text = html.unescape((written / "index.html").read_text(encoding="utf-8"))
    folder = written / "results" / "tiny"
    comparison = compared(folder)
    for sentence in page.answers(comparison, page.model_of(folder, comparison)):
        assert sentence in text
        assert sentence in (written / "README.md").read_text(encoding="utf-8")


def test_published_rows_stand_with_their_verdict_and_what_was_not_run_with_its_command(written: Path) -> None:
    text = (written / "README.md").read_text(encoding="utf-8")
    shown = "| row-1 | tiny | bf16 | 0.92 (fp32) | 0.9207 ± 0.0015 (n=3) | REPRODUCED | TinyNet, dots, test accuracy |"
    assert shown in text
    assert "| NOT RUN | TinyNet, dots, test accuracy | https://example.org/a_b & c | no record: bash scripts/" in text


def test_an_experiment_without_record_and_published_row_is_listed_with_its_command(written: Path) -> None:
    sentence = "resnet20_fashion_mnist: bash scripts/compare.sh configs/resnet20_fashion_mnist.yaml"
    assert f"<li>{sentence}" in (written / "index.html").read_text("utf-8")
    assert f"- {sentence}" in (written / "README.md").read_text("utf-8")
    folder = written / "results" / "resnet20_fashion_mnist"
    write_three(folder, seeds=1)
    index.write(written, {folder: compared(folder, seeds=1)}, {}, [MEASURED], None)
    assert sentence not in (written / "README.md").read_text("utf-8")


def test_what_is_left_out_is_named_with_the_reason(written: Path) -> None:
    assert "gone is left out: no comparison.json &amp; &lt;more&gt;" in (written / "index.html").read_text("utf-8")
    assert "- gone is left out: no comparison.json & <more>" in (written / "README.md").read_text("utf-8")


def test_the_verdict_stands_right_after_what_it_is_about(written: Path) -> None:
    text = (written / "index.html").read_text(encoding="utf-8")
    published, results = (
        text.partition(f'id="{name}"')[2].partition("</table>")[0] for name in ("published", "results")
    )
    titles = ["published row", "experiment", "precision", "verdict", "published", "measured", "why"]
    assert re.findall(r'<th scope="col"[^>]*>(.*?)</th>', published) == titles
    assert re.findall(r'data-label="([^"]+)"', published) == titles[1:]
    titles = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', results)
    assert titles[:5] == ["experiment", "precision", "verdict", "speed-up [95%]", "metric"]
    assert re.findall(r'data-label="([^"]+)"', results) == 6 * titles[1:]


def test_a_folder_that_is_called_like_a_part_of_the_page_is_another_part(tmp_path: Path) -> None:
    write_three(tmp_path / "results" / "published", seeds=1)
    folder = tmp_path / "results" / "published"
    index.write(tmp_path, {folder: compared(folder, seeds=1)}, {}, [MEASURED], None)
    assert Checker((tmp_path / "index.html").read_text(encoding="utf-8")).wrong == []


def test_no_experiment_is_said_to_be_none(tmp_path: Path) -> None:
    index.write(tmp_path, {}, {}, [], None)
    assert "No experiment has a committed record yet" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_csv_is_data_and_latex_holds_what_markdown_holds(written: Path) -> None:
    tiny = compared(written / "results" / "tiny")
    entries = [("tiny", tiny), ("gone", None)]
    found = list(csv.DictReader(io.StringIO(overview(entries, "csv"))))
    assert [(row["experiment"], row["precision"]) for row in found] == [("tiny", name) for name in tiny["precisions"]]
    assert [row["speedup"] for row in found] == ["", *(str(row["speedup"]) for row in tiny["rows"][1:])]
    titles, *cells = overview_cells(entries)
    rows = [titles, *cells[0]]
    assert [table.line(row) for row in rows] == [
        line for line in overview(entries).splitlines() if not line.startswith("| :--")
    ]
    latex = overview(entries, "latex").splitlines()
    assert latex[0] == rf"\begin{{tabular}}{{ll{'r' * (len(rows[0]) - 2)}}}"
    assert len(latex) == 2 + 1 + 1 + len(rows) - 1 + 2
    assert all(len(re.findall(r"(?<!\\)&", line)) == len(rows[0]) - 1 for line in latex if line.endswith(r"\\"))
    assert r"91.00\%" in latex[4]


def test_what_latex_reads_as_a_command_is_written_out() -> None:
    row = overview([(r"~a^b_c\d{e}", None)], "latex").splitlines()[4]
    name = r"\textasciitilde{}a\textasciicircum{}b\_c\textbackslash{}d\{e\}"
    assert row.startswith(name + " & ")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_runs_over_the_edge(written: Path, width: int) -> None:
    comparisons = {written / "results" / LONG["experiment"]: {**compared(written / "results" / "tiny"), **LONG}}
    row = {**ROW, "precision": "fp32 (CPU path is nullcontext)", "unit": "nats/char", "dataset": "sequences " * 12}
    why = "the noise over runs is not known from one, " * 4
    found = Reproduction(row, LONG["experiment"], "bf16", SCALED_DOWN, (0.921, 0.919, 0.922), 0.00153, why)
    index.write(written, comparisons, {}, [found, Reproduction(row, "tiny", None, NOT_RUN, rule="no record")], None)
    seen = measure(written / "index.html", width)
    assert seen["scroll"] <= seen["client"] <= width
    assert seen["body"] <= seen["client"]
    assert seen["scrolling"] == []  # so that a verdict is seen without it
    assert [label for label, *_ in seen["cells"]].count("verdict") == 1 + 3
    for _, left, right, height in seen["cells"]:
        assert 0 <= left < right <= seen["client"]
        assert height > 0

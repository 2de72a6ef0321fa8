"""The page: its answer, its charts, its tables, and that a browser shows it as it is meant."""

import html
import json
import math
import re
from pathlib import Path

import matplotlib
import pytest

from reports.pages import charts, experiment_page, sentences, table
from reports.records.comparison import Interval
from reports.records.metrics import to_line
from tests.reports.browser import CHROMIUM, Checker, browse, measure
from tests.reports.made_runs import (
    COMMAND,
    EMULATED,
    compared,
    experiment,
    rows_of,
    write_benchmark,
    write_config,
    write_run,
    write_three,
)

CHARTS = ["loss", "metric", "pairs", "speed", "memory", "scale"]


def written(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3) -> str:
    experiment_page.write(folder, compared(folder, precisions, seeds))
    return (folder / "report.html").read_text(encoding="utf-8")


def answer(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3) -> list[str]:
    return sentences.answers(compared(folder, precisions, seeds), experiment())


def captions(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3) -> dict[str, str]:
    return {chart.name: chart.caption for chart in charts.draw(folder, compared(folder, precisions, seeds))}


def test_the_answer_is_one_sentence_a_mixed_precision(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert answer(tmp_path) == [
        "On this CPU (Some CPU, 2 threads), bf16 trains tinynet5 on dots faster than FP32, at 2.00x [2.00, 2.00] its "
        "speed, with 0.50x the memory saved for backward; accuracy 91.00% against 91.00% over 3 seeds, difference "
        "+0.00 points [-2.15, 2.15]: INCONCLUSIVE at a margin of 0.5 points.",
        "fp16 trains tinynet5 on dots slower than FP32, at 0.80x [0.80, 0.80] (emulated) its speed, with 0.50x the "
        "memory saved for backward; accuracy 90.00% against 91.00% over 3 seeds, difference -1.00 points "
        "[-3.48, 1.48]: INCONCLUSIVE at a margin of 0.5 points.",
    ]
    page = html.unescape(written(tmp_path))
    for text in (page, (tmp_path / "results.md").read_text(encoding="utf-8")):
        assert all(sentence in text for sentence in answer(tmp_path))


def test_slower_larger_and_undecided_are_called_so(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    (sentence,) = answer(tmp_path, "fp32,bf16", seeds=1)
    assert "slower than FP32, at 0.40x [0.40, 0.40] its speed" in sentence
    assert "with 1.25x the memory saved for backward, which is more than FP32 saves" in sentence
    assert "over a single run each" in sentence
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[1.1, 1.0, 0.9])
    (sentence,) = answer(tmp_path, "fp32,bf16", seeds=1)
    assert "neither faster nor slower than FP32 for certain, at 1.00x [0.91, 1.11] its speed" in sentence


def test_faster_and_slower_are_what_an_interval_says_that_does_not_hold_one(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    for value, low, high, text in (
        (0.98, 0.9612, 0.99921, "slower than FP32, at 0.98x [0.96, 0.999] its speed"),
        (1.002, 1.00004, 1.1, "faster than FP32, at 1.002x [1.00004, 1.10] its speed"),
        (0.9996, 0.9978, 1.0001, "for certain, at 1.00x [1.00, 1.00] its speed"),
    ):
        rows_of(comparison)["bf16"].speedup = Interval(value=value, low=low, high=high)
        assert text in sentences.answers(comparison, None)[0]


def test_texts_of_charts_are_eleven_pixels_on_a_page_of_400_and_ticks_are_in_full(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_benchmark(tmp_path, fp32=[1e-4, 1e-4, 1e-4], bf16=[1e-4, 1e-4, 1e-4], fp16=[2e-4, 2e-4, 2e-4])
    drawn = {chart.name: chart.drawing for chart in charts.draw(tmp_path, compared(tmp_path))}
    assert list(drawn) == CHARTS
    for drawing in drawn.values():
        width = float(drawing.partition('viewBox="0 0 ')[2].partition(" ")[0])
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", drawing)]
        assert min(sizes) * (400 - 2 * 16) / width >= 11
    assert re.findall(r">([\d.]+[kM])</text>", drawn["speed"]) == ["300k", "600k", "900k"]
    assert "1e" not in "".join(re.findall(r">([^<]*)</text>", drawn["speed"]))


def test_the_effective_precision_is_that_of_the_first_run(tmp_path: Path) -> None:
    effective = {"name": "fp32", "arithmetic": "native kernels", "cudnn_conv_fp32": "tf32", "loss_scaling": False}
    precision = {"requested": "fp32", "effective": effective, "module_outputs": {"float32": 5}}
    write_run(tmp_path, "fp32", environment={"precision": precision})
    expected = (
        "name fp32, arithmetic native kernels, loss scaling False, cudnn conv fp32 tf32; module outputs: 5 float32"
    )
    assert f'data-label="value">{expected}</td>' in written(tmp_path, "fp32", seeds=1)


def test_what_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    write_run(tmp_path, "bf16", 0)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="step 3: non-finite gradient")
    bf16, fp16, fp32 = answer(tmp_path, seeds=2)
    assert "at a speed that was not compared with FP32's, with the memory saved for backward not compared" in bf16
    assert "accuracy 90.00% against a missing FP32 over 1 of 2 seeds, difference n/a." in bf16
    assert "Incomplete: seed 1: step 3: non-finite gradient; its speed was not measured." in bf16
    assert fp16.startswith("fp16 has no result: missing, seed 0: no summary.json")
    assert fp32.startswith("FP32 has no result to compare with: seed 0: no summary.json")


def test_fp32_alone_is_no_comparison(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    assert "there is nothing to compare it with" in answer(tmp_path, "fp32", seeds=1)[0]


def test_a_page_of_nothing_is_still_a_page(tmp_path: Path) -> None:
    text = written(tmp_path)
    assert "<svg" not in text
    assert text.count("missing no summary.json") == 9
    assert "On this machine (unknown hardware), bf16 has no result" in answer(tmp_path)[0]


def test_every_text_of_the_table_is_on_the_page_and_every_cell_names_its_column(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    page = written(tmp_path)
    text = " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())
    made = table.results(comparison)
    for shown in (*made.titles, *table.notes(comparison), *(cell for row in made.texts for cell in row)):
        assert shown in text
    results = page.partition('id="results"')[2].partition("</table>")[0]
    for row in re.findall(r"<tr><th scope=\"row\" class=\"precision\">.*?</tr>", results, flags=re.DOTALL):
        assert re.findall(r'data-label="([^"]+)"', row) == made.titles[1:]
    assert '0.80x <span class="whole">[0.80, 0.80]</span> (emulated)</td>' in results


def test_the_published_rows_that_the_runs_aim_at_have_a_table(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert 'id="published-against-measured"' not in written(tmp_path)
    aiming = experiment(tmp_path.name).model_copy(update={"published": ["kl-resnet18-c10"]})  # test top-1 of 93.02%
    for run in tmp_path.glob("*-s*"):
        write_config(run, aiming)
    rows = written(tmp_path).partition('id="published-against-measured"')[2].partition("</table>")[0]
    assert rows.count('data-label="published">93.02 % (fp32)</td>') == 3
    measured = re.findall(r'data-label="measured">(.*?)</td>', rows)
    assert measured == ["91 ± 1 (n=3)", "91 ± 0.5 (n=3)", "90 ± 0 (n=3)"]
    write_three(tmp_path, smoke=True)
    assert 'id="published-against-measured"' not in written(tmp_path)


def test_every_run_has_a_line_with_its_hashes_and_a_link(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="the reason")
    text = written(tmp_path)
    rows = re.findall(
        r'<tr><th scope="row" class="text"><a href="(\w+-s\d)/summary.json">(.*?)</tr>', text, flags=re.DOTALL
    )
    lines = dict(rows)
    assert list(lines) == [f"{name}-s{seed}" for name in ("fp32", "bf16", "fp16") for seed in range(3)]
    assert "diverged the reason" in lines["bf16-s1"]
    cells = [cell.strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", lines["fp16-s2"])]
    assert cells == ["finished", "90.00%", "90.00%", "100", "120", "2.5%", "1", "00000000", "00000000"]
    for target in re.findall(r'href="([^#"][^"]*)"', text):
        assert (tmp_path / target).exists(), target


def test_the_environment_and_the_command_are_those_of_the_runs(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1)
    text = written(tmp_path, seeds=1)
    for part in ("Some CPU, 2 threads", "avx2, avx512_bf16", "torch 2.14.1", "memory gib 8.0", "0123456789abcdef"):
        assert part in text
    again = "python -m train.tinynet FOLDER/fp32-s0/config.yaml --precision fp32 --seed 0 --out OTHER"
    assert f"<pre>{COMMAND}\n{again}</pre>" in text
    assert "in no commit" not in text
    write_run(tmp_path, "bf16", environment={"git": {"commit": "0123456789abcdef", "dirty": True}})
    assert "with changes that are in no commit" in written(tmp_path, seeds=1)


def test_texts_of_records_are_escaped(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="failed", reason="<script>alert('x')</script> & more")
    comparison = compared(tmp_path)
    comparison.command = 'python "<b>"'
    experiment_page.write(tmp_path, comparison)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more" in text


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    write_three(tmp_path)
    before = dict(matplotlib.rcParams)
    written(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    written(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == first
    assert {"report.html", "results.md", "results.csv"} <= set(first)
    assert dict(matplotlib.rcParams) == before


def test_every_chart_has_a_name_a_caption_and_selectable_text(tmp_path: Path) -> None:
    write_three(tmp_path)
    figures = re.findall(r"<figure>(.*?)</figure>", written(tmp_path), flags=re.DOTALL)
    assert len(figures) == len(CHARTS)
    for figure in figures:
        assert re.search(r'<svg role="img" aria-label="[^"]+"', figure)
        assert re.search(r"<figcaption><strong>.+\.</strong> .+</figcaption>", figure)
        assert "<text" in figure
    texts = captions(tmp_path)
    assert "mean over 3 seeds" in texts["loss"]
    assert "fp16: 3 skipped steps over all seeds." in texts["scale"]
    assert "3 rounds in one process" in texts["speed"]
    assert EMULATED in texts["speed"]


def test_charts_without_records_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    texts = captions(tmp_path, "fp32,bf16", seeds=1)
    assert list(texts) == ["loss", "metric", "memory"]
    assert "A single run each." in texts["loss"]


def test_losses_that_are_not_finite_are_gaps_and_counted(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert "NaN or infinite" not in captions(tmp_path)["loss"]
    run = write_run(tmp_path, "fp16", 0, losses=(2.0, math.nan, math.inf, 0.25, 0.2))
    assert "fp16: NaN or infinite in 2 steps." in captions(tmp_path)["loss"]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"train/step": 9, "train/loss": "NaN", "train/nonfinite_loss_steps": 4}\n{"torn')
    assert "fp16: NaN or infinite in 6 steps." in captions(tmp_path)["loss"]


def test_a_diverged_run_is_drawn_apart_from_the_mean(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, losses=(2.0, 9.0), status="diverged", reason="step 3: non-finite gradient")
    loss = captions(tmp_path)["loss"]
    assert "mean over fp32 3 seeds, bf16 2 seeds, fp16 3 seeds" in loss
    assert "Thin, up to a cross: bf16-s1 (diverged)." in loss


def test_of_very_many_skipped_steps_the_number_is_said_and_no_cross_drawn(tmp_path: Path) -> None:
    write_three(tmp_path, seeds=1)
    file = write_run(tmp_path, "fp16", 0, losses=(1.0,) * 300) / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for number, row in enumerate(rows, 1):
        row |= {"amp/skipped_steps": number, "amp/scale": 1024.0} if "train/loss" in row else {}
    file.write_text("".join(map(to_line, rows)))
    assert "At 300 points, too many to mark each, steps were skipped" in captions(tmp_path, seeds=1)["scale"]


def test_a_precision_without_a_colour_of_its_own_is_drawn_and_shown(tmp_path: Path) -> None:
    for precision in ("fp32", "fp8"):
        write_run(tmp_path, precision)
    write_benchmark(tmp_path, fp32=[1.0, 1.0], fp8=[0.5, 0.5])
    text = written(tmp_path, "fp32,fp8", seeds=1)
    assert Checker(text).wrong == []
    assert ">fp8</text>" in text


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    write_three(tmp_path)
    text = written(tmp_path)
    assert text.startswith("<!DOCTYPE html>")
    assert Checker(text).wrong == []
    assert "@import" not in text
    assert "<?xml" not in text
    bad = '<p id="a"></p><p id="a" aria-labelledby="b"><img src="http://x/">'
    assert len(Checker(bad).wrong) == 5


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_draws_the_charts_and_nothing_runs_over_the_edge(tmp_path: Path, width: int) -> None:
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="failed", reason="x" * 300)
    written(tmp_path)
    found = measure(tmp_path / "report.html", width)
    assert found["scroll"] <= found["client"] <= width
    assert found["body"] <= found["client"]
    assert found["scrolling"] == []
    assert len(found["charts"]) == len(CHARTS)
    assert all(across > 300 and down > 50 for across, down in found["charts"])
    assert all(count >= 8 for count in found["texts"])


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_browser_test_sees_console_errors(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<script>nothing.here</script>")
    assert "CONSOLE" in browse(tmp_path / "bad.html", tmp_path / "profile").stderr

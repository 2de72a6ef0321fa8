"""The page: its answer, its charts, its tables, and that a browser shows it as it is meant."""

import html
import json
import math
import re
from pathlib import Path

import matplotlib
import pytest

from reports.pages import experiment_page as page
from reports.pages import table
from reports.records.files import to_line
from tests.reports.browser import CHROMIUM, Checker, browse, measure
from tests.reports.made_runs import COMMAND, EMULATED, compared, write_benchmark, write_run, write_three

FINDINGS = {
    "loss": "At the end: fp32 0.25 (from 0.25 to 0.25) at step 4; bf16 0.2 (from 0.2 to 0.2) at step 4; "
    "fp16 0.25 (from 0.25 to 0.25) at step 4.",
    "metric": "At the end: fp32 91.00% (from 90.00% to 92.00%) at step 4; bf16 91.00% (from 90.50% to 91.50%) at "
    "step 4; fp16 90.00% (from 90.00% to 90.00%) at step 4.",
    "pairs": "bf16 INCONCLUSIVE, +0.00 points [-2.15, 2.15], 90% [-1.46, 1.46]; fp16 INCONCLUSIVE, -1.00 points "
    "[-3.48, 1.48], 90% [-2.69, 0.69]. Margin: 0.5.",
    "speed": "fp32 80 samples/s; bf16 2.00x [2.00, 2.00], 160 samples/s; fp16 0.80x [0.80, 0.80] (emulated), "
    "64 samples/s.",
    "memory": "Saved for backward: fp32 40.0 MiB, bf16 20.0 MiB, fp16 20.0 MiB. Peak: fp32 62 MiB, bf16 62 MiB, "
    "fp16 62 MiB.",
    "scale": "fp16, seed 0: from 32,768 to 32,768; fp16, seed 1: from 32,768 to 32,768; fp16, seed 2: from 32,768 to "
    "32,768.",
}
CHARTS = list(FINDINGS)


def written(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3) -> str:
    page.write(folder, compared(folder, precisions, seeds))
    return (folder / "report.html").read_text(encoding="utf-8")


def answer(folder: Path, precisions: str = "fp32,bf16,fp16", seeds: int = 3) -> list[str]:
    section = written(folder, precisions, seeds).partition('aria-label="Answer">')[2].partition("</section>")[0]
    return [html.unescape(text) for text in re.findall(r"<p>(.*?)</p>", section)]


def captions(text: str) -> dict[str, str]:
    found = re.findall(r'<figcaption id="(\w+)-caption">(.*?)</figcaption>', text)
    return {name: html.unescape(re.sub("<[^>]+>", "", caption)) for name, caption in found}


def test_the_answer_is_one_sentence_a_mixed_precision(tmp_path):
    write_three(tmp_path)
    bf16, fp16 = answer(tmp_path)
    assert bf16 == (
        "On this CPU (Some CPU, 2 threads), bf16 trains tinynet5 on dots faster than FP32, at 2.00x its speed "
        "[2.00, 2.00], with 0.50x the memory saved for backward; accuracy inconclusive at a margin of "
        "0.5 points over 3 seeds (91.00% against 91.00%, difference +0.00 points [-2.15, 2.15]; about 25 seeds would "
        "decide with 80% power, were these the true difference and spread)."
    )
    assert fp16 == (
        "fp16 trains tinynet5 on dots slower than FP32, at 0.80x its speed [0.80, 0.80], with 0.50x the memory saved "
        "for backward; accuracy inconclusive at a margin of 0.5 points over 3 seeds (90.00% against 91.00%, difference "
        "-1.00 points [-3.48, 1.48]; about 10 seeds would decide with 80% power, were these the true difference and "
        "spread). "
        f"Its arithmetic here ({EMULATED}) says nothing about the speed of fp16 hardware."
    )


def test_slower_larger_and_undecided_are_called_so(tmp_path):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16", final={"memory/saved_for_backward_mib": 50.0})
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[2.5, 2.5, 2.5])
    (sentence,) = answer(tmp_path, "fp32,bf16", seeds=1)
    assert "slower than FP32, at 0.40x its speed [0.40, 0.40]" in sentence
    assert "with 1.25x the memory saved for backward, which is more than FP32 saves" in sentence
    assert "in a single run each" in sentence
    write_benchmark(tmp_path, fp32=[1.0, 1.0, 1.0], bf16=[1.1, 1.0, 0.9])
    (sentence,) = answer(tmp_path, "fp32,bf16", seeds=1)
    assert "at 1.00x the speed of FP32 [0.91, 1.11], an interval that holds 1" in sentence


def test_an_interval_that_excludes_one_does_not_read_as_if_it_held_it(tmp_path):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    comparison = compared(tmp_path, "fp32,bf16", seeds=1)
    slower = {"speedup": 0.98, "speedup_low": 0.9612, "speedup_high": 0.99921}
    holding = {"speedup": 0.9996, "speedup_low": 0.9978, "speedup_high": 1.0001}
    for speed, shown in (
        (slower, "slower than FP32, at 0.98x its speed [0.96, 0.999],"),
        (
            {"speedup": 1.002, "speedup_low": 1.00004, "speedup_high": 1.1},
            "faster than FP32, at 1.002x its speed [1.00004, ",
        ),
        (holding, "at 1.00x the speed of FP32 [1.00, 1.00], an interval that holds 1,"),
    ):
        comparison["rows"][1] |= speed
        assert shown in page.answers(comparison, "tinynet")[0]


def test_texts_of_charts_are_eleven_pixels_on_a_page_of_400_and_ticks_are_in_full(tmp_path):
    write_three(tmp_path)
    write_benchmark(tmp_path, fp32=[1e-4, 1e-4, 1e-4], bf16=[1e-4, 1e-4, 1e-4], fp16=[2e-4, 2e-4, 2e-4])
    text = written(tmp_path)
    figures = re.findall(r'<svg role.*? viewBox="0 0 ([\d.]+) [\d.]+">(.*?)</svg>', text, flags=re.DOTALL)
    assert len(figures) == len(CHARTS)
    for width, figure in figures:
        sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px", figure)]
        assert min(sizes) * (400 - 2 * 16) / float(width) >= 11
    speed = figures[CHARTS.index("speed")][1]
    assert re.findall(r">([\d.]+[kM])</text>", speed) == ["300k", "600k", "900k"]
    assert "1e" not in "".join(re.findall(r">([^<]*)</text>", speed))


@pytest.mark.parametrize(
    ("device", "shown"), [("cpu", "cpu matmul ieee"), ("cuda", "cuda matmul ieee, cudnn conv tf32"), (None, "all")]
)
def test_the_modes_of_fp32_products_are_those_of_the_device(tmp_path, device, shown):
    modes = {"cuda_matmul_fp32": "ieee", "cudnn_conv_fp32": "tf32", "cpu_matmul_fp32": "ieee"}
    precision = {"requested": "fp32", "effective": {"name": "fp32", **modes}}
    write_run(tmp_path, "fp32", environment={"precision": precision, "device": {"type": device, "name": "A device"}})
    row = written(tmp_path, "fp32", seeds=1).partition('id="arithmetic"')[2].partition("</table>")[0]
    everything = "cuda matmul ieee, cudnn conv tf32, cpu matmul ieee"
    assert f'data-label="FP32 operands">{everything if shown == "all" else shown}</td>' in row


def test_what_is_missing_is_said_to_be_missing(tmp_path):
    write_run(tmp_path, "bf16", 0)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="step 3: non-finite gradient")
    bf16, fp16, fp32 = answer(tmp_path, seeds=2)
    assert "at a speed that was not compared with FP32's, with the memory saved for backward not compared" in bf16
    assert "accuracy 90.00% against a missing FP32 over 1 seed of 2 (paired difference n/a)" in bf16
    assert "Incomplete: seed 1: step 3: non-finite gradient; its speed was not measured." in bf16
    assert fp16.startswith("fp16 has no result: missing, seed 0: no summary.json")
    assert fp32.startswith("FP32 has no result to compare with: seed 0: no summary.json")


def test_fp32_alone_is_no_comparison(tmp_path):
    write_run(tmp_path, "fp32")
    assert "there is nothing to compare it with" in answer(tmp_path, "fp32", seeds=1)[0]


def test_a_page_of_nothing_is_still_a_page(tmp_path):
    text = written(tmp_path)
    assert "<svg" not in text
    assert text.count("missing: no summary.json") == 9
    assert "On this machine (unknown), bf16 has no result" in text


def test_every_text_of_the_table_is_on_the_page(tmp_path):
    write_three(tmp_path)
    comparison = compared(tmp_path)
    text = html.unescape(re.sub("<[^>]+>", "", written(tmp_path)))
    cells = [cell for row in comparison["rows"] for cell in table.cells(row)]
    for shown in (*table.header(comparison), *table.notes(comparison), *cells):
        assert shown.replace("`", "") in text
    assert "<code>--until-decided</code> makes up" in written(tmp_path)


def test_what_decides_stands_first_and_every_cell_names_its_column(tmp_path):
    write_three(tmp_path)
    results = written(tmp_path).partition('id="results"')[2].partition("</table>")[0]
    titles = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', results)
    assert titles[:4] == ["precision", "verdict", "speed-up [95%]", "accuracy"]
    assert sorted(titles) == sorted(table.header(compared(tmp_path)))
    for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", results, flags=re.DOTALL):
        assert re.findall(r'data-label="([^"]+)"', row) == titles[1:]
    assert 'data-label="speed-up [95%]">0.80x <span class="whole">[0.80, 0.80]</span> (emulated)</td>' in results


def test_only_a_smoke_run_has_the_banner(tmp_path):
    write_three(tmp_path / "full", seeds=1)
    write_three(tmp_path / "smoke", seeds=1, smoke=True)
    assert "Smoke run." not in written(tmp_path / "full", seeds=1)
    assert 'class="banner" role="note"><strong>Smoke run.' in written(tmp_path / "smoke", seeds=1)


def test_the_published_rows_that_the_runs_aim_at_have_a_table(tmp_path):
    write_three(tmp_path)
    assert 'id="published"' not in written(tmp_path)
    assert "compute only is of a few steps after it, timed apart: on a shared machine either may be" in written(
        tmp_path
    )
    for run in tmp_path.glob("*-s*"):
        with (run / "config.yaml").open("a") as file:
            file.write("published: [kl-resnet18-c10]\n")  # CIFAR-10, test top-1 of 93.02%
    rows = written(tmp_path).partition('id="published"')[2].partition("</table>")[0]
    titles = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', rows)
    assert titles == ["published row", "precision", "verdict", "published", "measured", "why"]
    assert re.findall(r'"published">93\.02 % \(fp32\)</td><td [^>]*"measured">(.*?)</td>', rows) == [
        "91 ± 1 (n=3)",
        "91 ± 0.5 (n=3)",
        "90 ± 0 (n=3)",
    ]
    write_three(tmp_path, smoke=True)
    assert 'id="published"' not in written(tmp_path)


def test_every_run_has_a_line_with_its_hashes_and_links(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="diverged", reason="the reason")
    text = written(tmp_path)
    lines = dict(re.findall(r'<tr><th scope="row">(\w+-s\d)</th>(.*?)</tr>', text, flags=re.DOTALL))
    assert list(lines) == [f"{name}-s{seed}" for name in ("fp32", "bf16", "fp16") for seed in range(3)]
    assert "diverged: the reason" in lines["bf16-s1"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", lines["fp16-s2"])
    assert cells[:7] == ["finished", "90.00%", "90.00%", "100", "120", "2.5 %", "1"]
    assert cells[7:9] == ["<code>00000000</code>", "<code>00000000</code>"]
    for target in re.findall(r'href="([^#"][^"]*)"', text):
        assert (tmp_path / target).exists(), target
    assert 'href="fp16-s2/metrics.jsonl"' in lines["fp16-s2"]


def test_the_environment_is_that_of_the_runs(tmp_path):
    write_three(tmp_path, seeds=1)
    text = written(tmp_path, seeds=1)
    for part in ("Some CPU, 2 threads", "avx2, avx512_bf16", "torch 2.14.1", "memory 8.0 GiB", "0123456789abcdef"):
        assert part in text
    assert f"<pre>{COMMAND}</pre>" in text
    assert "uncommitted" not in text
    assert "differs between runs" not in text
    write_run(tmp_path, "bf16", environment={"git": {"commit": "0123456789abcdef", "dirty": True}})
    text = written(tmp_path, seeds=1)
    assert "with uncommitted changes" in text
    assert "the commit alone does not give these runs again" in text
    assert "differs between runs" in text


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "5",
        "{",
        '{"attempts": 5}',
        '{"device": {"type": "cpu", "name": "Some CPU, 2 threads"}}',
        '{"device": {"type": "cpu"}, "cpu": null, "git": {"branch": "main"}, "versions": null, "precision": {}}',
    ],
)
def test_an_environment_that_lacks_parts_or_is_no_environment_still_gives_a_page(tmp_path, content):
    folder = tmp_path / "tiny"
    write_three(folder, seeds=1)
    for run in folder.glob("*-s0"):
        (run / "environment.json").write_text(content)
    text = written(folder, seeds=1)
    assert Checker(text).wrong == []
    assert "<dt>git commit</dt><dd>n/a</dd>" in text.replace("<code>n/a</code>", "n/a")
    shown = (folder / "results.md").read_text().splitlines()[0]
    if '"name"' in content:
        assert shown == "**tiny** on Some CPU, 2 threads (CPU; 16-bit instruction sets: not recorded)"
    else:
        assert shown.startswith("**tiny** on unknown hardware")


def test_texts_of_records_are_escaped(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, status="failed", reason="<script>alert('x')</script> & more")
    comparison = compared(tmp_path) | {"command": 'python "<b>"'}
    page.write(tmp_path, comparison)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more" in text


def test_the_same_records_give_the_same_bytes(tmp_path):
    write_three(tmp_path)
    before = dict(matplotlib.rcParams)
    page.write(tmp_path, compared(tmp_path))
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    page.write(tmp_path, compared(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == first
    assert {"report.html", "results.md", "results.csv"} <= set(first)
    assert dict(matplotlib.rcParams) == before


def test_every_chart_has_a_name_a_caption_and_selectable_text(tmp_path):
    write_three(tmp_path)
    text = written(tmp_path)
    figures = re.findall(r"<figure>(.*?)</figure>", text, flags=re.DOTALL)
    assert list(captions(text)) == CHARTS
    for name, figure in zip(CHARTS, figures, strict=True):
        svg = re.search(
            r'<svg role="img" aria-label="([^"]+)" aria-describedby="([^"]+)"[^>]*><desc[^>]*>(.+?)</desc>', figure
        )
        assert svg is not None
        assert svg[1]
        assert svg[2] == f"{name}-finding {name}-caption"
        assert html.unescape(svg[3]) == FINDINGS[name]
        assert "<text" in figure
    assert "mean over 3 seeds" in captions(text)["loss"]
    assert "fp16: 3 skipped steps over 3 seeds." in captions(text)["scale"]
    assert "3 rounds in one process" in captions(text)["speed"]


def test_charts_without_records_are_left_out(tmp_path):
    write_run(tmp_path, "fp32")
    write_run(tmp_path, "bf16")
    assert list(captions(written(tmp_path, "fp32,bf16", seeds=1))) == ["loss", "metric", "memory"]
    assert "A single run each." in captions(written(tmp_path, "fp32,bf16", seeds=1))["loss"]


def test_losses_that_are_not_finite_are_gaps_and_counted(tmp_path):
    write_three(tmp_path)
    whole = written(tmp_path)
    write_run(tmp_path, "fp16", 0, losses=(2.0, math.nan, math.inf, 0.25, 0.2))
    text = written(tmp_path)
    assert "NaN or infinite" not in whole
    assert "fp16: NaN or infinite in 2 steps." in captions(text)["loss"]
    assert "nan" not in re.sub(r"<[^>]+>", "", text).lower().replace("nan or infinite", "")


def test_steps_within_a_logged_window_are_counted_one_by_one(tmp_path):
    run = write_run(tmp_path, "fp32")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"train/step": 9, "train/loss": "NaN", "train/nonfinite_loss_steps": 4}\n{"torn')
    assert "fp32: NaN or infinite in 4 steps." in captions(written(tmp_path, "fp32", seeds=1))["loss"]


def test_a_diverged_run_is_drawn_apart_from_the_mean(tmp_path):
    write_three(tmp_path)
    write_run(tmp_path, "bf16", 1, losses=(2.0, 9.0), status="diverged", reason="step 3: non-finite gradient")
    loss = captions(written(tmp_path))["loss"]
    assert "mean over fp32 3 seeds, bf16 2 seeds, fp16 3 seeds" in loss
    assert "Thin, up to a cross: bf16-s1 (diverged)." in loss


def test_the_page_is_whole_and_needs_nothing_else(tmp_path):
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
def test_a_browser_draws_the_charts_and_nothing_runs_over_the_edge(tmp_path, width):
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
def test_the_browser_test_sees_console_errors(tmp_path):
    (tmp_path / "bad.html").write_text("<script>nothing.here</script>")
    assert "CONSOLE" in browse(tmp_path / "bad.html", tmp_path / "profile").stderr


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_damaged_history_still_gives_a_page(tmp_path, status):
    write_three(tmp_path, seeds=1)
    file = write_run(tmp_path, "fp16", 0, 0.9, status=status, reason="the reason") / "metrics.jsonl"
    lines = [
        {"train/step": "x", "train/loss": 1.0, "amp/scale": 2.0},
        {"train/step": 1, "train/loss": [1.0], "train/nonfinite_loss_steps": "many", "amp/scale": 1024.0},
        {"train/step": 2, "train/loss": 0.5, "amp/skipped_steps": 1},
        {"train/step": 3, "amp/skipped_steps": "many", "amp/scale": "large"},
        {"train/step": 4, "train/loss": 0.25, "eval/accuracy": "high"},
    ]
    file.write_text("".join(map(to_line, lines)))
    text = written(tmp_path, seeds=1)
    assert Checker(text).wrong == []
    assert "fp16 has no result: " in text or status == "failed"


def test_of_very_many_skipped_steps_the_number_is_said_and_no_cross_drawn(tmp_path):
    write_three(tmp_path, seeds=1)
    file = write_run(tmp_path, "fp16", 0, losses=(1.0,) * 300) / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for number, row in enumerate(rows, 1):
        row |= {"amp/skipped_steps": number, "amp/scale": 1024.0} if "train/loss" in row else {}
    file.write_text("".join(map(to_line, rows)))
    assert "At 300 points, too many to mark each, steps were skipped" in written(tmp_path, seeds=1)

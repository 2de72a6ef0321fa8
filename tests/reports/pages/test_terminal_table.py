"""The table of a terminal: short texts, the words that decide, and no line beyond 80 columns."""

import io
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from reports.pages.terminal_table import heading, reasons, terminal_table
from tests.reports.made_runs import compared, write_benchmark, write_run, write_three
from train.cli import terminal


def test_a_row_has_the_figures_that_decide(tmp_path: Path) -> None:
    write_three(tmp_path)
    comparison = compared(tmp_path)
    made = terminal_table(comparison)
    assert made.titles == ["", "accuracy, %", "difference", "speed", "act.\nmemory", "verdict"]
    fp32, bf16, _ = made.rows
    assert fp32 == ["fp32", "91.00 ±1.00", "", "", "", "baseline"]
    row = comparison.row("bf16")
    assert row is not None
    assert row.interval is not None
    assert row.speedup is not None
    interval = f"[{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]"
    assert bf16[:3] == ["bf16", "91.00 ±0.50", f"+0.00 {interval}"]
    assert bf16[3].startswith(f"{row.speedup.value:.2f}x")
    assert bf16[5] == row.verdict


def test_what_is_missing_is_said_in_words_below_the_table(tmp_path: Path) -> None:
    write_three(tmp_path)
    (tmp_path / "bf16-s1" / "summary.json").unlink()
    write_run(tmp_path, "fp16", 0, status="diverged", reason="the loss scale fell to 0.5")
    for seed in (1, 2):
        (tmp_path / f"fp16-s{seed}" / "summary.json").unlink()
    comparison = compared(tmp_path)
    _, bf16, fp16 = terminal_table(comparison).rows
    assert bf16[1].endswith("(n=2)")
    assert fp16[1] == "n/a"
    assert fp16[5] == "diverged"
    assert [reason.partition(":")[0] for reason in reasons(comparison)] == ["bf16 missing", "fp16 diverged"]
    assert "fell to 0.5" in reasons(comparison)[1]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_and_its_notes_fit_80_columns_and_only_a_terminal_has_colours(
    tmp_path: Path, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    final = {"eval/loss": 2.0}
    for seed in range(3):
        for precision in ("fp32", "bf16"):
            values = {**final, "eval/loss": 2.0 + seed / 1000 + (precision == "bf16") * seed / 700}
            write_run(tmp_path, precision, seed, final=values, metric="eval/loss", higher_is_better=False, best=final)
    write_benchmark(tmp_path, fp32=[1.0, 1.1, 1.05], bf16=[0.8, 0.7, 0.9])
    comparison = compared(tmp_path, "fp32,bf16")
    printed = io.StringIO()
    colours: Literal["auto", "standard"] = "standard" if is_terminal else "auto"
    console = Console(file=printed, width=80, force_terminal=is_terminal, color_system=colours)
    monkeypatch.setattr(terminal, "terminal", console)
    made = terminal_table(comparison)
    terminal.print_table(heading(comparison), made.titles, made.rows)
    terminal.say(f"a note of many words that is longer than a line and names {tmp_path / ('x' * 100)} in the middle")
    assert ("\x1b[" in printed.getvalue()) is is_terminal
    lines = [*Text.from_ansi(printed.getvalue()).plain.splitlines(), *capsys.readouterr().out.splitlines()]
    assert [line for line in lines if len(line) > 80 and "/xxx" not in line] == []
    assert str(tmp_path / ("x" * 100)) in " ".join(lines), "a path stays whole"
    assert any("EQUIVALENT" in line for line in lines)

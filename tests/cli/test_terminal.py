"""What a run and a table print where there is little room."""

import io
import os
import signal

import pytest
from rich.console import Console

from reports.records.metric import ACCURACY, LOSS
from train.cli import options, signals, terminal


@pytest.mark.parametrize("of_a_comparison", [True, False])
def test_the_lines_of_a_run_fit_80_columns_and_its_name_stands_once(
    of_a_comparison: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if of_a_comparison:
        monkeypatch.setenv(signals.REASON_FILE, "reason")
    text, title = io.StringIO(), "fashion_simple_net_fashion_mnist_held_out bf16-s0"
    monkeypatch.setattr(terminal, "terminal", Console(file=text, width=80))
    progress = terminal.Progress(title, 60_000, 0)
    progress.update({"train/step": 59_990, "train/loss": 0.1, "throughput/samples_per_sec": 12_345.0})
    for step in (59_000, 60_000):
        progress.evaluated(step, [(ACCURACY, 0.99), (LOSS, 1.2345)])
    progress.stop()
    lines = text.getvalue().splitlines()
    assert lines[-1] == "  step 60000/60000  accuracy 99.00%  loss 1.2345 nats  12,345 samples/s"
    assert max(map(len, lines)) <= 80
    assert (capsys.readouterr().out + text.getvalue()).count(title) == (0 if of_a_comparison else 1)


@pytest.mark.parametrize("width", [40, 59])
def test_a_narrow_terminal_gets_whole_figures_a_line_each(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=width)
    monkeypatch.setattr(terminal, "terminal", console)
    header = ["", "accuracy, %", "difference", "speed", "act.\nmemory", "verdict"]
    rows = [
        ["fp32", "99.43 ±0.21", "", "", "", "baseline"],
        ["bf16", "99.46 ±0.22", "+0.03 [-0.2, 0.3]", "1.24x [1.23, 1.26]", "0.55x", "EQUIVALENT"],
    ]
    terminal.print_table("a title", header, rows)
    assert capsys.readouterr().out.splitlines() == [
        "a title",
        *("fp32", "  accuracy, %: 99.43 ±0.21", "  verdict: baseline"),
        *("bf16", "  accuracy, %: 99.46 ±0.22", "  difference: +0.03 [-0.2, 0.3]"),
        *("  speed: 1.24x [1.23, 1.26]", "  act. memory: 0.55x", "  verdict: EQUIVALENT"),
    ]


def test_a_command_goes_on_when_its_reader_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python starts; a test before may have changed it
    read, write = os.pipe()
    os.close(read)
    done: list[int] = []

    def work() -> int:
        for number in range(3):
            print(number, flush=True)
            terminal.terminal.print("progress")
            done.append(number)
        return 0

    try:
        with os.fdopen(write, "w") as stream:
            monkeypatch.setattr("sys.stdout", stream)
            assert options.finish(work) == 0
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert done == [0, 1, 2]

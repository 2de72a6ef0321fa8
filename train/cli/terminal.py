"""What a person sees: progress bars and tables on a terminal, plain lines everywhere else."""

import io
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from reports.records.metric import Metric
from train.cli.signals import spoken_for

terminal = Console()
QUIET_SECONDS = 30.0
NARROW = 60  # columns: in fewer, a table would cut its figures
STYLES = {  # of a table's cells
    **dict.fromkeys(("EQUIVALENT", "BETTER", "ready"), "green"),
    **dict.fromkeys(("WORSE", "failed", "diverged", "fault"), "red"),
    **dict.fromkeys(("INCONCLUSIVE", "interrupted", "missing"), "yellow"),
}


class Output(io.TextIOBase):
    """`stream`, and nothing once its reader has gone: a training must not end because `| head` has read enough."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: TextIO | None = stream

    def write(self, text: str) -> int:
        try:
            if self.stream is not None:
                self.stream.write(text)
                self.stream.flush()
        except BrokenPipeError:
            # What it still holds would be an error again at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # type: ignore[union-attr]
            self.stream = None
        return len(text)

    def isatty(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def fileno(self) -> int:
        return (self.stream or sys.__stdout__ or sys.stdout).fileno()


class Progress:
    """The progress of one run. `update` takes the contract metrics of a log line.

    The lines do not repeat the title: a bar has it, a comparison has said which run it starts, and otherwise it stands
    once above them.
    """

    def __init__(self, title: str, total: int, done: int) -> None:
        self.total = total
        self.rate = ""
        self.spoke = time.monotonic()
        self.bar: RichProgress | None = None
        if terminal.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = RichProgress(*columns, TextColumn("{task.fields[note]}"), console=terminal, refresh_per_second=2)
            self.task = self.bar.add_task(title, total=total, completed=done, note="")
            self.bar.start()
        elif not spoken_for():
            say(title)

    def update(self, metrics: Mapping[str, float]) -> None:
        speed = metrics.get("throughput/samples_per_sec")
        self.rate = f"{speed:,.0f} samples/s" if speed else ""
        if self.bar is None and time.monotonic() - self.spoke > QUIET_SECONDS:
            self._say(f"step {metrics['train/step']}/{self.total}  loss {metrics['train/loss']:.4f}")
        if self.bar is not None:
            note = f"loss {metrics['train/loss']:.4f}  {self.rate}"
            self.bar.update(self.task, completed=metrics["train/step"], note=note)

    def evaluated(self, step: int, values: Sequence[tuple[Metric, float]]) -> None:
        figures = "  ".join(f"{metric.label} {metric.text(value)}" for metric, value in values)
        self._say(f"step {step}/{self.total}  {figures}")

    def _say(self, text: str) -> None:
        self.spoke = time.monotonic()
        terminal.print(f"  {text}  {self.rate}".rstrip(), highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()


def counted(total: int, title: str) -> Iterator[int]:
    """The numbers from 0 to `total` - 1, and how many have passed: a bar on a terminal, elsewhere a line now and then.

    It is drawn when the next number is asked for and never in between, where it would take time from a measurement.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    spoke = time.monotonic()
    with RichProgress(*columns, console=terminal, auto_refresh=False, disable=not terminal.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        for number in range(total):
            yield number
            bar.update(task, completed=number + 1, refresh=True)
            if not terminal.is_terminal and time.monotonic() - spoke > QUIET_SECONDS:
                spoke = time.monotonic()
                terminal.print(f"{title} {number + 1}/{total}", highlight=False, soft_wrap=True)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts as wide as the terminal at most, of 80 columns where there is none, with colours on one.

    On a terminal too narrow for whole figures each stands on a line of its own, below the first of its row.
    """
    say(title)
    if terminal.width < NARROW:
        for first, *cells in rows:
            print(first)
            for name, cell in zip(header[1:], cells, strict=True):
                if cell:
                    terminal.print(Text(f"  {' '.join(name.split())}: {cell}"), soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in header:
        table.add_column(Text(name), justify="left" if name in (header[0], "verdict") else "right")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    terminal.print(table)


def say(text: str) -> None:
    """Print a paragraph, wrapped at words; a path that is longer than a line stays whole."""
    print(_wrapped(text), flush=True)


def complain(text: str) -> None:
    """Print an error: wrapped at words for a person at a terminal, on one line for a program that reads it."""
    print(_wrapped(text) if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, max(40, terminal.width), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )

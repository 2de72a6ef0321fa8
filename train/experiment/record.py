"""The record of a run while it trains: metrics.jsonl a line at a time, summary.json at the end.

Each line is flushed: a killed process loses at most the line it was writing. What a checkpoint counts on is in the
checkpoint itself. A tracker gets all of it too.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from reports.records.files import naming, write_record, write_text
from reports.records.layout import METRICS, SUMMARY
from reports.records.metrics import STEP, Figure, newest, parse_lines, to_line
from reports.records.summary import Summary


class Tracker(Protocol):
    """A service that shows a run, such as Weights & Biases. None of its failures reaches the run."""

    def open(self, rows: Sequence[Mapping[str, Figure]]) -> None:
        """Start, with the rows logged so far."""
        ...

    def log(self, row: Mapping[str, Figure]) -> None: ...

    def close(self, summary: Summary, exit_status: int) -> None: ...

    def location(self) -> str | None:
        """One line on where to look."""
        ...


class RunRecord:
    """metrics.jsonl and summary.json of one run folder, and the tracker.

    `history` are the lines in the checkpoint that the run resumes from, and take the place of what the file has: later
    lines are written again, and damaged, doubled, moved or foreign ones are none of the run's.
    """

    def __init__(self, folder: Path, history: str, tracker: Tracker) -> None:
        self.folder, self.tracker = folder, tracker
        path = folder / METRICS
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        _, damaged = parse_lines(text)
        if damaged:
            print(f"warning: {path} had {damaged} damaged lines; they are left out", flush=True)
        if not text.startswith(history):
            print(f"warning: {path} is restored from the checkpoint", flush=True)
        write_text(path, history)
        self.file = path.open("a+", encoding="utf-8")
        self.newest: dict[str, Figure] = {}
        self.nonfinite_loss_steps = 0
        rows, _ = parse_lines(history)
        for row in rows:
            self._count(row)
        tracker.open(rows)

    def log(self, step: int, metrics: Mapping[str, Figure | None]) -> None:
        """Append one line; a figure that is None was not measured and is left out."""
        row: dict[str, Figure] = {STEP: step} | {key: value for key, value in metrics.items() if value is not None}
        with naming(self.folder / METRICS):
            self.file.write(to_line(row))
            self.file.flush()
        self._count(row)
        self.tracker.log(row)

    def history(self) -> str:
        """All lines, for a checkpoint; it needs them on the disk only as a part of itself."""
        with naming(self.folder / METRICS):
            self.file.flush()
            self.file.seek(0)
            return self.file.read()

    def last(self) -> dict[str, Figure]:
        """The newest value of every figure."""
        figures = newest([self.newest])
        figures.pop("train/nonfinite_loss_steps", None)
        return figures

    def close(self, summary: Summary, exit_status: int) -> None:
        """Write summary.json and end the tracker. Raises OSError naming the file that the disk does not take."""
        try:
            with contextlib.suppress(OSError):  # what `log` could not write and has named
                self.file.flush()
                os.fsync(self.file.fileno())  # a summary on the disk has its history there
            with contextlib.suppress(OSError):
                self.file.close()
            write_record(self.folder / SUMMARY, summary)
        finally:
            self.tracker.close(summary, exit_status)

    def _count(self, row: Mapping[str, Figure]) -> None:
        self.newest |= row
        self.nonfinite_loss_steps += int(row.get("train/nonfinite_loss_steps", 0))

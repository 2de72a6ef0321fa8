"""The record of a run while it trains: metrics.jsonl a line at a time, summary.json at the end.

Each line is flushed: a killed process loses at most the line it was writing. A tracker gets all of it too.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from reports.records.files import naming, write_record, write_text
from reports.records.layout import METRICS, SUMMARY
from reports.records.metrics import STEP, Figure, newest, read_lines, to_line
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

    `history` are the lines up to the checkpoint that the run resumes from; later lines are dropped, because the
    resumed run writes them again.
    """

    def __init__(self, folder: Path, history: Sequence[Mapping[str, Figure]], tracker: Tracker) -> None:
        self.folder, self.tracker = folder, tracker
        path = folder / METRICS
        _, damaged = read_lines(path)
        if damaged:
            print(f"warning: {path} had {damaged} damaged lines; they are left out", flush=True)
        self.rows = [dict(row) for row in history]
        write_text(path, "".join(map(to_line, self.rows)))
        self.file = path.open("a", encoding="utf-8")
        self.nonfinite_loss_steps = sum(int(row.get("train/nonfinite_loss_steps", 0)) for row in self.rows)
        tracker.open(self.rows)

    def log(self, step: int, metrics: Mapping[str, Figure | None]) -> None:
        """Append one line; a figure that is None was not measured and is left out."""
        row: dict[str, Figure] = {STEP: step} | {key: value for key, value in metrics.items() if value is not None}
        with naming(self.folder / METRICS):
            self.file.write(to_line(row))
            self.file.flush()
        self.rows.append(row)
        self.nonfinite_loss_steps += int(row.get("train/nonfinite_loss_steps", 0))
        self.tracker.log(row)

    def last(self) -> dict[str, Figure]:
        """The newest value of every figure."""
        figures = newest(self.rows)
        figures.pop("train/nonfinite_loss_steps", None)
        return figures

    def close(self, summary: Summary, exit_status: int) -> None:
        """Write summary.json and end the tracker. Raises OSError naming the file that the disk does not take."""
        try:
            with contextlib.suppress(OSError):  # what `log` could not write and has named
                self.file.close()
            write_record(self.folder / SUMMARY, summary)
        finally:
            self.tracker.close(summary, exit_status)

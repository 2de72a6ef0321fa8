"""metrics.jsonl: one strict-JSON object a line, each with its `train/step`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reports.records.files import from_json, to_json

STEP, LOSS = "train/step", "train/loss"
Figure = int | float | str  # a figure, or the reason why there is none


@dataclass
class History:
    """What a run logged. `rows` hold the figures alone; `damaged` counts lines that are no JSON object."""

    rows: list[dict[str, float]] = field(default_factory=list)
    damaged: int = 0

    def series(self, key: str) -> dict[int, float]:
        """Step to value, of the lines that have both."""
        return {int(row[STEP]): row[key] for row in self.rows if STEP in row and key in row}

    def rows_with(self, key: str) -> list[dict[str, float]]:
        """The lines that have `key`."""
        return [row for row in self.rows if key in row]


def newest(rows: Iterable[Mapping[str, Figure]]) -> dict[str, Figure]:
    """The newest value of every figure, and why there is no throughput where none was measured."""
    figures = {name: value for row in rows for name, value in row.items()}
    if "throughput/samples_per_sec" in figures:
        figures.pop("throughput/reason", None)  # of the warm-up
    return figures


def to_line(row: Mapping[str, Figure]) -> str:
    """`row` as one line of the file."""
    return json.dumps(to_json(dict(row)), allow_nan=False) + "\n"


def read_lines(path: Path) -> tuple[list[dict[str, Figure]], int]:
    """The lines as they were logged, and how many were left out because they are no JSON object."""
    return parse_lines(path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "")


def parse_lines(text: str) -> tuple[list[dict[str, Figure]], int]:
    """As `read_lines`, of the file's text."""
    rows: list[dict[str, Figure]] = []
    damaged = 0
    for line in text.splitlines():
        try:
            value = from_json(json.loads(line))
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            rows.append(value)
        else:
            damaged += 1
    return rows, damaged


def read_history(path: Path) -> History:
    """The history in `path`; empty where there is none."""
    rows, damaged = read_lines(path)
    figures = [{key: x for key, x in row.items() if isinstance(x, int | float)} for row in rows]
    return History(figures, damaged)

"""The record of one run: its folder is the truth, Weights & Biases a mirror.

`metrics.jsonl` has one strict-JSON object a line, flushed: a killed process loses at most the line it was
writing. JSON has no NaN, so a value that is not finite is the text "NaN", "Infinity" or "-Infinity".
"""

import json
import math
from pathlib import Path
from typing import Any

from train.experiment.mirror import Mirror

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Any:
    """`value` as strict JSON can hold it: numbers of torch and NumPy become Python's, non-finite ones their names."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def revive(value: Any) -> Any:
    """The number that `plain` wrote as a name; everything else as it is."""
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


def write_json(path: Path, value: Any) -> None:
    """Replace `path` whole, so that a reader never sees half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The complete lines of a metrics.jsonl and how many torn ones were left out."""
    rows, torn = [], 0
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append({key: revive(value) for key, value in json.loads(line).items()})
        except (json.JSONDecodeError, AttributeError):
            torn += 1
    return rows, torn


class Record:
    """metrics.jsonl and summary.json of one run folder, and their mirror.

    `resume_step` is the step of the checkpoint that the run goes on from, 0 for a new one: lines of later
    steps are taken back, because the resumed run writes them again.
    """

    def __init__(self, folder: Path, resume_step: int, mirror: Mirror) -> None:
        self.folder, self.mirror = folder, mirror
        path = folder / "metrics.jsonl"
        rows, torn = read_metrics(path)
        if torn:
            print(f"warning: {path} had {torn} torn lines; they are left out", flush=True)
        self.rows = [row for row in rows if row.get("train/step", 0) <= resume_step]
        partial = path.with_name(path.name + ".partial")
        partial.write_text("".join(map(_line, self.rows)), encoding="utf-8")
        partial.replace(path)
        self.file = path.open("a", encoding="utf-8")
        self.nonfinite_loss_steps = sum(int(row.get("train/nonfinite_loss_steps", 0)) for row in self.rows)
        mirror.open(self.rows, last_step=max((row.get("train/step", 0) for row in rows), default=0))

    def log(self, metrics: dict[str, Any]) -> None:
        """Append one line; `metrics` holds its `train/step`. A figure that is None was not measured and is left out."""
        metrics = {key: value for key, value in metrics.items() if value is not None}
        self.file.write(_line(metrics))
        self.file.flush()
        self.rows.append(metrics)
        self.nonfinite_loss_steps += int(metrics.get("train/nonfinite_loss_steps", 0))
        self.mirror.log(metrics)

    def last(self) -> dict[str, Any]:
        """The newest value of every metric."""
        newest: dict[str, Any] = {}
        for row in self.rows:
            newest |= row
        newest.pop("train/nonfinite_loss_steps", None)
        return newest

    def close(self, summary: dict[str, Any], exit_status: int) -> None:
        """Write summary.json and end the mirror."""
        self.file.close()
        write_json(self.folder / "summary.json", summary)
        self.mirror.close(summary, exit_status)


def _line(metrics: dict[str, Any]) -> str:
    return json.dumps(plain(metrics), allow_nan=False) + "\n"

"""The record of one run: its folder is the truth, Weights & Biases a mirror.

`metrics.jsonl` has one strict-JSON object a line, flushed: a killed process loses at most the line it was
writing. JSON has no NaN, so a value that is not finite is the text "NaN", "Infinity" or "-Infinity".
"""

import contextlib
from pathlib import Path
from typing import Any

from reports.records.files import naming, read_lines, to_line, write_json, write_whole
from train.tracking.wandb_run import Mirror


class Record:
    """metrics.jsonl and summary.json of one run folder, and their mirror.

    `history` are the lines up to the checkpoint that the run goes on from, none for a new one: later ones are
    taken back, because the resumed run writes them again.
    """

    def __init__(self, folder: Path, history: list[dict[str, Any]], mirror: Mirror) -> None:
        self.folder, self.mirror = folder, mirror
        path = folder / "metrics.jsonl"
        _, torn = read_lines(path)
        if torn:
            print(f"warning: {path} had {torn} torn lines; they are left out", flush=True)
        self.rows = list(history)
        write_whole(path, "".join(map(to_line, self.rows)))
        self.file = path.open("a", encoding="utf-8")
        self.nonfinite_loss_steps = sum(int(row.get("train/nonfinite_loss_steps", 0)) for row in self.rows)
        mirror.open(self.rows)

    def log(self, metrics: dict[str, Any]) -> None:
        """Append one line; `metrics` holds its `train/step`. A figure that is None was not measured and is left out."""
        metrics = {key: value for key, value in metrics.items() if value is not None}
        with naming(self.folder / "metrics.jsonl"):
            self.file.write(to_line(metrics))
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
        if "throughput/samples_per_sec" in newest:
            newest.pop("throughput/reason", None)  # of the warm-up
        return newest

    def close(self, summary: dict[str, Any], exit_status: int) -> None:
        """Write summary.json and end the mirror. Raises OSError naming the file that the disk does not take."""
        try:
            with contextlib.suppress(OSError):  # what `log` could not write and has named
                self.file.close()
            write_json(self.folder / "summary.json", summary)
        finally:
            self.mirror.close(summary, exit_status)

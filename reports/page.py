"""Write what a comparison shows to people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports import table


def write(folder: Path, comparison: Mapping[str, Any]) -> None:
    """results.md, results.csv and report.html in `folder`."""
    (folder / "results.md").write_text(table.markdown(comparison), encoding="utf-8")
    (folder / "results.csv").write_text(table.as_csv(comparison), encoding="utf-8")

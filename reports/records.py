"""Reading what runs leave behind: JSON files and JSON lines in which non-finite numbers have names."""

import json
import math
from pathlib import Path
from typing import Any

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def revive(value: Any) -> Any:
    """`value` with the names of non-finite numbers turned back into numbers, at every depth."""
    if isinstance(value, dict):
        return {key: revive(item) for key, item in value.items()}
    if isinstance(value, list):
        return [revive(item) for item in value]
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`; None when there is no readable one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return revive(value) if isinstance(value, dict) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a JSON-lines file, without lines that a killed process left torn."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            rows.append(revive(value))
    return rows

"""The published figures in reports/published.csv, and the configurations that aim at them."""

import csv
import difflib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "reports" / "published.csv"
CONFIGS = ROOT / "configs"


def rows(path: Path = PUBLISHED) -> dict[str, dict[str, str]]:
    """The published rows by id; raises ValueError naming file and row for an id that stands twice, or a torn row."""
    found: dict[str, dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            where = f"{path}: line {reader.line_num}"
            if None in row or None in row.values() or "id" not in row:
                raise ValueError(f"{where}: row {row.get('id')!r} has not the columns of the header")
            if row["id"] in found:
                raise ValueError(f"{where}: row {row['id']!r} stands twice")
            found[row["id"]] = row
    return found


def configurations(configs: Path = CONFIGS) -> dict[str, dict[str, Any]]:
    """All configurations by name; raises ValueError naming a file that is none."""
    return {path.stem: configuration(path) for path in sorted(configs.glob("*.yaml"))}


def experiments(configs: Path = CONFIGS) -> dict[str, dict[str, Any]]:
    """The configurations by name that aim at published rows; raises ValueError naming a file that is none."""
    return {name: config for name, config in configurations(configs).items() if config.get("published")}


def aimed_at() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
    """All `rows`, and the `experiments` that aim at some of them.

    Raises ValueError, naming file, row and value, for a row that a configuration names and that is not published, and
    for one that is aimed at whose figures are no numbers.
    """
    known, aims = rows(), experiments()
    for name, config in aims.items():
        named = config["published"]
        if not isinstance(named, list) or not all(isinstance(identity, str) for identity in named):
            raise ValueError(f"configs/{name}.yaml: published: {named!r} is not a list of row ids")
        for identity in named:
            if identity not in known:
                nearest = difflib.get_close_matches(identity.lower(), known, n=1, cutoff=0.5)
                hint = f": did you mean {nearest[0]!r}?" if nearest else ""
                raise ValueError(f"configs/{name}.yaml: published: unknown row {identity!r}{hint}")
            check_figures(known[identity])
    return known, aims


def check_figures(row: Mapping[str, str]) -> None:
    """Raises ValueError, naming file, row and value, for a row whose figures are no numbers."""
    try:
        known = math.isfinite(float(row["value"]))
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"{PUBLISHED}: row {row['id']!r}: value {row['value']!r} is not a finite number")
    samples = row.get("evaluated_samples")
    if samples and not (samples.isdecimal() and int(samples) > 0):
        raise ValueError(f"{PUBLISHED}: row {row['id']!r}: evaluated_samples {samples!r} is not a count")


def configuration(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises ValueError naming the file where there is none."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}: a configuration is a mapping, not {str(found)[:40]!r}")
    return found

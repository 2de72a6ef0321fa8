"""The YAML file of an experiment and the changes of the command line, as values that no schema has checked yet.

It loads no library but PyYAML, so that a command can say at once what it is about to do.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports.records import yaml_file

ROOT = Path(__file__).resolve().parents[2]


def find(path: Path) -> Path:
    """The file that `path` names: here or in the repository, in full or by its bare name in configs/.

    Raises ValueError with the nearest names when there is none, and for a path that the system does not take.
    """
    bare = Path("configs") / f"{path}.yaml"
    candidates = [folder / name for name in (path, bare) for folder in (Path(), ROOT)]
    try:
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a configuration file")
        near = _near(path)
    except OSError as error:
        raise ValueError(f"configuration file {str(path)[:100]!r}: {error.strerror}") from None
    hint = f"did you mean {' or '.join(repr(str(one)) for one in near)}?" if near else "no such file"
    raise ValueError(f"unknown configuration file {str(path)!r}: {hint}")


def read(path: Path, overrides: Sequence[str] = ()) -> dict[Any, Any]:
    """The values in the file `path`, changed by `key.sub=value` overrides; raises ValueError naming what is wrong."""
    values = yaml_file.read_mapping(path)
    values.setdefault("name", path.stem)
    keys = [override.partition("=")[0] for override in overrides]
    if repeated := next((key for key in keys if keys.count(key) > 1), None):
        raise ValueError(f"override {repeated!r} is given more than once; give each key one value")
    for override in overrides:
        _apply(values, override)
    return values


def _near(path: Path) -> list[Path]:
    """Up to three files, the nearest first by name: beside `path` and among the repository's experiments."""
    files: dict[str, Path] = {}
    for folder in (ROOT / "configs", Path("configs"), path.parent):
        files |= {file.stem: file for file in folder.glob("*.yaml")}
    return [files[stem] for stem in difflib.get_close_matches(path.stem, files, n=3, cutoff=0.6)]


def _apply(values: dict[Any, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        near = [] if equals else _near(Path(override))
        hint = f"; did you mean the file {str(near[0])!r}?" if near else ""
        raise ValueError(f"override {override!r}: expected key=value, such as epochs=2 or optimizer.lr=0.1{hint}")
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ValueError(f"override {override!r}: {section!r} is not a section")
        values = inner
    try:
        values[last] = yaml_file.parse(text)
    except ValueError:
        raise ValueError(f"override {override!r}: {text!r} is not a YAML value") from None

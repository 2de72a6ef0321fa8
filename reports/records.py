"""The files of a record: strict JSON, whole or as lines, in which numbers that are not finite have names."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

# What readers of environment.json rely on, in the form of an example: an object, a list of one kind, or a text. Any
# part may be absent or null, because records of other versions lack some.
ENVIRONMENT: dict[str, Any] = {
    "run_id": "",
    "attempts": [{"changed": {}, "git": {}}],
    "versions": {},
    "device": {"type": "", "name": ""},
    "cpu": {"instruction_sets": [""]},
    "git": {},
    "precision": {"effective": {}, "module_outputs": {}},
}
Model = TypeVar("Model", bound=BaseModel)
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
    """`value` with the names that `plain` gave turned back into numbers, at every depth."""
    if isinstance(value, dict):
        return {key: revive(item) for key, item in value.items()}
    if isinstance(value, list):
        return [revive(item) for item in value]
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


def write_whole(path: Path, text: str) -> None:
    """Replace `path` whole, so that a reader never sees half of it; its folder is made when missing.

    Raises OSError naming `path` when the folder or the disk does not take it; `path` is then what it was before.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system name `path`: a write to a full disk says of itself only that it failed."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, value: Any) -> None:
    """Replace `path` with `value` as JSON, as `write_whole` does."""
    write_whole(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`; None when there is no readable one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return revive(value) if isinstance(value, dict) else None


def explain(error: ValidationError) -> str:
    """The first fault that a model found in a record, in words."""
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    given = "" if isinstance(fault["input"], dict | list) else f", not {str(fault['input'])[:40]!r}"
    message = fault["msg"].removeprefix("Value error, ")
    return f"{where}: {message[0].lower()}{message[1:]}{given}".removeprefix(": ")


def read_as(model: type[Model], path: Path, what: str) -> Model:
    """The JSON in `path` as a `model`; raises ValueError, to stand after the file's name, where it is not `what`."""
    try:
        return model.model_validate(revive(json.loads(path.read_text(encoding="utf-8"))))
    except ValidationError as error:
        raise ValueError(f"is not {what}: {explain(error)}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"is not readable as JSON: {error}") from None


def read_environment(path: Path) -> tuple[dict[str, Any], str | None]:
    """The object in environment.json at `path` without null parts, and None; or nothing, and what is wrong with it.

    A file that is missing has nothing, and nothing is wrong with it.
    """
    if not path.exists():
        return {}, None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, f"{path} is not readable as JSON: {error}"
    if misfit := _misfit(value, ENVIRONMENT):
        return {}, f"{path} is not the environment of a run: {misfit}"
    return {key: revive(part) for key, part in value.items() if part is not None}, None


def _misfit(value: Any, example: Any, name: str = "") -> str | None:
    """The first part of `value` that is not of the kind of `example`, and what it is instead; None when all are."""
    kinds: dict[type, str] = {dict: "an object", list: "a list", str: "a text"}
    if not isinstance(value, type(example)):
        return f"{name or 'it'} is {json.dumps(value)[:40]}, not {kinds[type(example)]}"
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(value, dict):
        named = [(f"{name}.{key}".lstrip("."), key) for key in example if value.get(key) is not None]
        parts = [(where, value[key], example[key]) for where, key in named]
    elif isinstance(value, list):
        parts = [(f"{name}[{index}]", item, example[0]) for index, item in enumerate(value)]
    return next((found for part in parts if (found := _misfit(part[1], part[2], part[0]))), None)


def to_line(value: dict[str, Any]) -> str:
    """`value` as one line of a JSON-lines file."""
    return json.dumps(plain(value), allow_nan=False) + "\n"


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects in a JSON-lines file, and how many lines were left out because a killed process tore them."""
    rows, torn = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            rows.append(revive(value))
        else:
            torn += 1
    return rows, torn


def read_config(runs: Iterable[Path]) -> dict[str, Any]:
    """The configuration recorded in the first of the run folders `runs` that has a readable one; empty without."""
    for run in runs:
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
            found = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
            if isinstance(found, dict):
                return found
    return {}

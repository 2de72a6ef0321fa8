"""The files of a record: strict JSON, whole or as lines, in which numbers that are not finite have names."""

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

LARGEST = 2.0**128  # every larger number overflows in FP32
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Part(BaseModel):
    """Types are taken as they are written: a number as text is no number."""

    model_config = ConfigDict(strict=True, extra="ignore")


Model = TypeVar("Model", bound=Part)


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
    if isinstance(value, str):
        # Half of a surrogate pair is a character of JSON, and of no file or terminal.
        return NON_FINITE.get(value, value.encode(errors="backslashreplace").decode())
    return value


def write_whole(path: Path, text: str) -> None:
    """Replace `path` whole, so that a reader never sees half of it; its folder is made when missing.

    Raises OSError naming `path` when the folder or the disk does not take it; `path` is then what it was before.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", errors="backslashreplace")
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
    except (OSError, ValueError, RecursionError):
        return None
    return revive(value) if isinstance(value, dict) else None


def explain(error: ValidationError) -> str:
    """The first fault that a model found in a record, in words."""
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    given = "" if isinstance(fault["input"], dict | list) else f", not {json.dumps(plain(fault['input']))[:40]}"
    # The reader has a JSON file before them, not this project's classes.
    message = re.sub(r"dictionary( or instance of \w+)?", "object", fault["msg"].removeprefix("Value error, "))
    return f"{where}: {message[0].lower()}{message[1:]}{given}".removeprefix(": ")


def read_as(model: type[Model], path: Path, what: str) -> Model:
    """The JSON in `path` as a `model`; raises ValueError, to stand after the file's name, where it is not `what`."""
    return _validated(model, _parsed(path), what)


def read_object(model: type[Part], path: Path, what: str) -> dict[str, Any]:
    """The object in `path` as it stands, of which a `model` can be made; raises ValueError as `read_as` does."""
    value = _parsed(path)
    _validated(model, value, what)
    return dict(value)


def _parsed(path: Path) -> Any:
    try:
        return revive(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"is not readable as JSON: {error}") from None


def _validated(model: type[Model], value: Any, what: str) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"is not {what}: {explain(error)}") from None


def to_line(value: dict[str, Any]) -> str:
    """`value` as one line of a JSON-lines file."""
    return json.dumps(plain(value), allow_nan=False) + "\n"


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects in a JSON-lines file, and how many lines were left out because a killed process tore them."""
    rows, torn = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            rows.append(revive(value))
        else:
            torn += 1
    return rows, torn


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a number that was measured, finite or not: not a truth value, nor beyond what FP32 holds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= LARGEST or value in NON_FINITE.values() or value != value


def numbers(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl without what is no number: a curve is drawn of a damaged record too."""
    return [{key: value for key, value in row.items() if is_number(value)} for row in rows]

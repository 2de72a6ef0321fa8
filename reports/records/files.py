"""How records are written and read: strict JSON, whole or as lines, in which non-finite numbers have names."""

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Schema(BaseModel):
    """The base of every record. Types are strict: the text "3" is no number. Unknown keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


Model = TypeVar("Model", bound=BaseModel)


def write_record(path: Path, record: BaseModel) -> None:
    """Replace `path` with `record` as JSON, as `write_text` does."""
    write_text(path, json.dumps(to_json(record.model_dump()), indent=2, allow_nan=False) + "\n")


def read_record(model: type[Model], path: Path) -> Model:
    """The JSON in `path` as a `model`; raises ValueError naming the file and what is wrong in it."""
    try:
        return model.model_validate(from_json(json.loads(path.read_text(encoding="utf-8"))))
    except ValidationError as error:
        raise ValueError(f"{path}: {explain(error)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not readable as JSON: {getattr(error, 'strerror', None) or error}") from None


def write_text(path: Path, text: str) -> None:
    """Replace `path` whole or not at all, and make its folder; raises OSError naming `path`."""
    partial = path.with_name(path.name + ".partial")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # renamed before it is on disk, it could be empty after a power cut
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put `path` into errors of the system: a write to a full disk says only that it failed."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def to_json(value: Any) -> Any:
    """`value` as strict JSON holds it: numbers of torch and NumPy become Python's, non-finite ones their names."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_json(value: Any) -> Any:
    """`value` with the names that `to_json` gave turned back into numbers, at every depth."""
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, str):
        # Half of a surrogate pair is a character of JSON, and of no file or terminal.
        return NON_FINITE.get(value, value.encode(errors="backslashreplace").decode())
    return value


def explain(error: ValidationError) -> str:
    """The first fault that a schema found, in words."""
    fault = error.errors()[0]
    where = ".".join(map(str, fault["loc"]))
    given = "" if isinstance(fault["input"], dict | list) else f", not {json.dumps(to_json(fault['input']))[:40]}"
    # The reader has a file before them, not this project's classes.
    message = re.sub(r"dictionary( or instance of \w+)?", "object", fault["msg"].removeprefix("Value error, "))
    return f"{where}: {message[0].lower()}{message[1:]}{given}".removeprefix(": ")

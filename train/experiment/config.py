"""Reads an experiment: its YAML and the changes of the command line, checked whole before any work.

The keys themselves are declared in `reports.records.config`, which also reads the recorded ones.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from reports.records import yaml_file
from reports.records.config import AdamW, Experiment, Optimizer, Sgd
from train.engine.errors import Refused, unknown
from train.experiment.optimizers import OPTIMIZERS

TRAIN = Path(__file__).resolve().parent.parent
# Locations in pydantic's errors that name one form of a value, not a key.
FORMS: dict[str, type[BaseModel]] = {"sgd": Sgd, "adamw": AdamW, "other": Optimizer}
FORM_NAMES = {*FORMS, "bool", "str"}


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment's YAML and apply `key.sub=value` overrides.

    A relative path is looked up in the current folder and then in the repository.
    Raises `Refused` with the file, the key, what is allowed and the nearest valid name.
    """
    if not path.exists() and (TRAIN.parent / path).exists():
        path = TRAIN.parent / path
    if not path.is_file():
        known = [str(other) for other in sorted(path.parent.glob("*.yaml"))]
        raise unknown("configuration file", path, known) if known else Refused(f"{path}: no such file")
    try:
        values = yaml_file.read_mapping(path)
    except ValueError as error:
        raise Refused(str(error)) from None
    values.setdefault("name", path.stem)
    for override in overrides:
        _apply(values, override)
    scripts = model_scripts()
    if isinstance(values.get("model"), str) and values["model"] not in scripts:
        raise Refused(f"{path}: {unknown('model', values['model'], scripts)}")
    try:
        config = Experiment.model_validate(values)
    except ValidationError as error:
        raise Refused(f"{path}: " + "; ".join(map(_explain, error.errors()))) from None
    if config.optimizer.name not in OPTIMIZERS:
        raise Refused(f"{path}: optimizer.name: {unknown('value', config.optimizer.name, OPTIMIZERS)}")
    return config


def model_scripts() -> list[str]:
    """Names of the per-model training scripts: the modules of `train` that define `build`."""
    commands = {"__init__", "compare", "comparison_view", "check", "new", "sync"}
    return sorted(path.stem for path in TRAIN.glob("*.py") if path.stem not in commands)


def _apply(values: dict[Any, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise Refused(f"override {override!r}: expected key=value, such as epochs=2 or optimizer.lr=0.1")
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise Refused(f"override {override!r}: {section!r} is not a section")
        values = inner
    try:
        values[last] = yaml_file.parse(text)
    except ValueError:
        raise Refused(f"override {override!r}: {text!r} is not a YAML value") from None


def _explain(error: Mapping[str, Any]) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join(part for part in location if part not in FORM_NAMES)
    if error["type"] == "extra_forbidden":
        return f"{key}: {unknown('key', location[-1], _keys_at(location[:-1]))}"
    if error["type"] == "missing":
        allowed = f"; allowed: {', '.join(sorted(OPTIMIZERS))}" if key == "optimizer.name" else ""
        return f"{key}: this key is required{allowed}"
    if error["type"] == "literal_error":
        choices = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return f"{key}: {unknown('value', error['input'], choices)}"
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}, not {error['input']!r}"


def _keys_at(location: Iterable[str]) -> Iterable[str]:
    """The keys allowed in the section at `location`."""
    model: type[BaseModel] = Experiment
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else FORMS.get(part)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return model.model_fields

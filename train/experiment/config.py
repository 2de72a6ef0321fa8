"""Reads an experiment: its YAML and the changes of the command line, checked whole before any work.

The keys themselves are declared in `reports.records.config`, which also reads the recorded ones.
"""

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reports.records.config import AdamW, Experiment, Optimizer, Sgd
from train.engine.errors import Refused, unknown
from train.experiment import config_file
from train.experiment.optimizers import OPTIMIZERS

TRAIN = Path(__file__).resolve().parent.parent
# Locations in pydantic's errors that name one form of a value, not a key.
FORMS: dict[str, type[BaseModel]] = {"sgd": Sgd, "adamw": AdamW, "other": Optimizer}
FORM_NAMES = {*FORMS, "bool", "str"}
# An experiment holds none of these: they are chosen for each run.
COMMAND_OPTIONS = frozenset({"precision", "precisions", "seed", "seeds", "device", "out", "resume", "smoke"})
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = SHORT.maxlong = 80


def load(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment's YAML and apply `key.sub=value` overrides.

    Raises `Refused` with the file, the key, what is allowed and the nearest valid name.
    """
    try:
        path = config_file.find(path)
        values = config_file.read(path, overrides)
    except ValueError as error:
        raise Refused(str(error)) from None
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
    scripts = (path for path in TRAIN.glob("*.py") if re.search(r"^def build\(", path.read_text("utf-8"), re.MULTILINE))
    return sorted(path.stem for path in scripts)


def _explain(error: Mapping[str, Any]) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join(part for part in location if part not in FORM_NAMES)
    if error["type"] == "extra_forbidden":
        return f"{key}: {_unknown_key(location)}"
    if error["type"] == "missing":
        allowed = f"; allowed: {', '.join(sorted(OPTIMIZERS))}" if key == "optimizer.name" else ""
        return f"{key}: this key is required{allowed}"
    if error["type"] == "literal_error":
        choices = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        return f"{key}: {unknown('value', error['input'], choices)}"
    if error["type"] == "value_error":
        message = str(error["msg"]).removeprefix("Value error, ")
        return message if message.startswith(key) else f"{key}: {message}"
    # Shortened: a value that names itself by anchors is large when it is written out.
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]}, not {SHORT.repr(error['input'])}"


def _unknown_key(location: Sequence[str]) -> Refused:
    """For a key that the section has not: an option, a key of another section, or the nearest one."""
    *section, key = location
    if not section and key in COMMAND_OPTIONS:
        return Refused(f"unknown key {key!r}: it is an option of the command: --{key}")
    own = list(_keys_at(section))
    everywhere = _dotted_keys(Experiment)
    names = [dotted.rpartition(".")[2] for dotted in everywhere]
    near = [key] if key in names else difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.7)
    if near and near[0] not in own:
        return Refused(f"unknown key {key!r}: did you mean {everywhere[names.index(near[0])]!r}?")
    return unknown("key", key, own)


def _keys_at(location: Iterable[str]) -> Iterable[str]:
    """The keys allowed in the section at `location`."""
    model: type[BaseModel] = Experiment
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else FORMS.get(part)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return model.model_fields


def _dotted_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The keys of `model` and of its sections; of a section of several forms, those of each."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(prefix + name)
        for form in (field.annotation, *get_args(field.annotation)):
            form = get_args(form)[0] if get_origin(form) is Annotated else form
            if isinstance(form, type) and issubclass(form, BaseModel):
                keys += _dotted_keys(form, f"{prefix}{name}.")
    return list(dict.fromkeys(keys))

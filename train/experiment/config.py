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
# Names that other trainers (timm, Hugging Face, Lightning) and short habits give to keys and options of this one.
FOREIGN = {
    **dict.fromkeys(("gradient_clip", "gradient_clip_val", "max_grad_norm", "grad_clip", "clip_grad"), "clip_norm"),
    **dict.fromkeys(("bs", "train_batch_size", "per_device_train_batch_size"), "batch_size"),
    **dict.fromkeys(("eval_bs", "per_device_eval_batch_size"), "data.eval_batch_size"),
    **dict.fromkeys(("accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum_steps"), "accumulate"),
    **dict.fromkeys(("num_epochs", "num_train_epochs", "max_epochs"), "epochs"),
    **dict.fromkeys(("wd", "weight_decay"), "optimizer.weight_decay"),
    **dict.fromkeys(("learning_rate", "lr"), "optimizer.lr"),
    **dict.fromkeys(("opt", "optim"), "optimizer.name"),
    **dict.fromkeys(("warmup_steps", "warmup_epochs", "num_warmup_steps"), "schedule.warmup"),
    **dict.fromkeys(("sched", "scheduler", "lr_scheduler", "lr_scheduler_type"), "schedule.name"),
    **dict.fromkeys(("num_workers", "dataloader_num_workers"), "workers"),
    **dict.fromkeys(("logging_steps", "log_interval", "log_every_n_steps"), "log_every"),
    **dict.fromkeys(("eval_steps", "val_check_interval"), "eval_every"),
    "save_steps": "checkpoint_every",
    **dict.fromkeys(("dataset", "dataset_name"), "data.name"),
    **dict.fromkeys(("max_length", "max_seq_length"), "data.length"),
    **dict.fromkeys(("smoothing", "label_smoothing_factor"), "label_smoothing"),
    **dict.fromkeys(("drop", "drop_rate"), "dropout"),
    **dict.fromkeys(("amp", "use_amp", "fp16", "bf16", "tf32", "half", "mixed_precision"), "precision"),
    **dict.fromkeys(("random_seed", "seed_everything"), "seed"),
    **dict.fromkeys(("output", "output_dir"), "out"),
}
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
    _require_one_length(path, values, overrides)
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


def _require_one_length(path: Path, values: Mapping[Any, Any], overrides: Sequence[str]) -> None:
    """Raise `Refused` where the command line gives the length of a run in another unit than the file does."""
    given = {override.partition("=")[0] for override in overrides}
    both = [key for key in ("epochs", "max_steps") if values.get(key) is not None]
    if len(both) == 2 and len(given & {*both}) == 1:
        own, other = sorted(both, key=lambda key: key not in given)
        raise Refused(f"{own}={values[own]} and {other}={values[other]} of {path}: add {other}=null")


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
    elsewhere = FOREIGN.get(key.lower(), "" if section else key)
    if elsewhere in COMMAND_OPTIONS:
        return Refused(f"unknown key {key!r}: it is an option of the command: --{elsewhere}")
    if elsewhere not in ("", key):
        return Refused(f"unknown key {key!r}: did you mean {elsewhere!r}?")
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

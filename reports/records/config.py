"""The recipe of a run, config.yaml: what of it decides what is trained."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PositiveInt, ValidationError

from reports.records.files import Part, explain

# Keys of a configuration that are no part of the recipe.
NO_RECIPE = frozenset({"name", "published", "reduced", "margin", "log_every", "checkpoint_every", "workers"})


class Data(Part):
    name: str
    held_out: int | None = None


class Optimizer(Part):
    name: str
    lr: float


class Recipe(Part):
    """What is read of config.yaml."""

    model: str
    arch: str
    pretrained: bool | str = False
    data: Data
    optimizer: Optimizer
    batch_size: PositiveInt
    accumulate: PositiveInt = 1
    epochs: PositiveInt | None = None
    max_steps: PositiveInt | None = None
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.005
    log_every: PositiveInt | None = None
    published: list[str] = Field(default_factory=list)
    reduced: str | None = None


def read_recipe(run: Path) -> dict[str, Any]:
    """The configuration in the run folder `run`; raises ValueError, to stand after "its ", where there is none."""
    try:
        found = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        Recipe.model_validate(found)
        json.dumps(found)  # one that holds itself, by an anchor, cannot be walked through
    except ValidationError as error:
        raise ValueError(f"config.yaml is not one of a run: {explain(error)}") from None
    except FileNotFoundError:
        raise ValueError("config.yaml is missing") from None
    except (OSError, TypeError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"config.yaml is not readable: {' '.join(str(error).split())}") from None
    assert isinstance(found, dict)  # or it were no Recipe
    return found


def first_recipe(runs: Iterable[Path]) -> dict[str, Any]:
    """The configuration in the first of the run folders `runs` that has one; empty without."""
    for run in runs:
        try:
            return read_recipe(run)
        except ValueError:
            continue
    return {}


def trained_on(recipe: Mapping[str, Any]) -> str:
    """The model and the data in words; weights from a folder have its name, for their sizes replace the model's."""
    weights = recipe.get("pretrained", False)
    model = Path(weights).name if isinstance(weights, str) else recipe["arch"]
    return f"{'pretrained ' if weights else ''}{model} on {recipe['data']['name']}"


def departures(recipe: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Where a recipe differs from another one, in words, of the keys that both have: one may be of another version."""
    ours, theirs = _flat(recipe), _flat(other)
    changed = [key for key in theirs if key in ours and _number(ours[key]) != _number(theirs[key])]
    return [f"{key} is {ours[key]} in place of {theirs[key]}" for key in changed]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of the recipe by dotted key."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        elif prefix + str(key) not in NO_RECIPE:
            found[prefix + str(key)] = value
    return found


def _number(value: Any) -> Any:
    """A text that is a number as a number: YAML takes 1e-3 for a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value

"""All keys of an experiment's YAML as a Markdown table, from the schema that reads them."""

import json
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reports.pages import markdown

TYPES = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}
HUGE = 2**31 - 1  # a limit of the machine, which tells a reader nothing
BOUNDS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


@dataclass
class Key:
    """A dotted key. Where a section has several forms, it holds what is allowed in any of them."""

    allowed: list[str]
    default: str
    description: str


def table(model: type[BaseModel]) -> str:
    """The keys of `model` and of the sections in it."""
    keys: dict[str, Key] = {}
    for name, key in _keys(model, ""):
        known = keys.setdefault(name, key)
        known.allowed = list(dict.fromkeys([*known.allowed, *key.allowed]))
        known.description = known.description or key.description
    rows = [[f"`{name}`", ", ".join(key.allowed), key.default, key.description] for name, key in keys.items()]
    return markdown.table(["key", "allowed", "default", "what it is"], rows, "llll")


def _keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Key]]:
    for name, field in model.model_fields.items():
        sections = list(_sections(field.annotation))
        for section in sections:
            yield from _keys(section, f"{prefix}{name}.")
        if not sections:
            default = "required" if field.is_required() else json.dumps(field.get_default()).strip('"')
            yield prefix + name, Key(_allowed(field.annotation, field.metadata), default, field.description or "")


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Annotated, Union, types.UnionType):
        for part in get_args(annotation):
            yield from _sections(part)


def _allowed(annotation: Any, metadata: Sequence[Any] = ()) -> list[str]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(parts[0], [*metadata, *parts[1:]])
    if origin in (Union, types.UnionType):
        return [text for part in parts for text in _allowed(part, metadata if part is not type(None) else ())]
    if origin is Literal:
        return [f"`{value}`" for value in parts]
    if origin is not None:
        return [f"{origin.__name__} of {' or '.join(_allowed(parts[-1]))}"]
    constraints = [one for item in metadata for one in (item.metadata if isinstance(item, FieldInfo) else [item])]
    limits = [(sign, getattr(one, key)) for key, sign in BOUNDS for one in constraints if hasattr(one, key)]
    bounds = [f"{sign} {limit:g}" for sign, limit in limits if limit < HUGE]
    return [" ".join([TYPES.get(annotation, "any"), *([" and ".join(bounds)] if bounds else [])])]

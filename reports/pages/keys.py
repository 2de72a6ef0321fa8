"""All keys of an experiment's YAML as a Markdown table, from the schema that reads them."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from reports.pages.text_table import Table

TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
HUGE = 2**31 - 1  # a limit of the machine, which tells a reader nothing
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
Schema = dict[str, Any]  # a JSON schema


def table(model: type[BaseModel]) -> str:
    """The dotted keys of `model` and of the sections in it. Of a section with several forms, all that any allows."""
    schema = model.model_json_schema()
    rows: dict[str, list[str]] = {}
    allowed: dict[str, list[str]] = {}
    for name, key, required in _keys(schema, schema["$defs"], ""):
        default = "required" if required else json.dumps(key["default"]).strip('"')
        row = rows.setdefault(name, [f"`{name}`", "", default, ""])
        allowed[name] = list(dict.fromkeys([*allowed.get(name, []), *_allowed(key)]))
        row[1], row[3] = ", ".join(allowed[name]), row[3] or key.get("description", "")
    return Table(["key", "allowed", "default", "what it is"], list(rows.values()), "llll").markdown()


def _keys(section: Schema, sections: Schema, prefix: str) -> Iterator[tuple[str, Schema, bool]]:
    """Name and schema of each key, and whether it is required."""
    for name, key in section["properties"].items():
        references = [form["$ref"].rpartition("/")[2] for form in key.get("oneOf", [key]) if "$ref" in form]
        for reference in references:
            yield from _keys(sections[reference], sections, f"{prefix}{name}.")
        if not references:
            yield prefix + name, key, name in section.get("required", ())


def _allowed(key: Schema) -> list[str]:
    if "anyOf" in key:
        return [text for form in key["anyOf"] for text in _allowed(form)]
    if values := key.get("enum", [key["const"]] if "const" in key else []):
        return [f"`{value}`" for value in values]
    if key["type"] == "array":
        return [f"list of {' or '.join(_allowed(key['items']))}"]
    bounds = [f"{sign} {key[bound]:g}" for bound, sign in BOUNDS.items() if key.get(bound, HUGE) < HUGE]
    return [" ".join([TYPES[key["type"]], " and ".join(bounds)]).strip()]

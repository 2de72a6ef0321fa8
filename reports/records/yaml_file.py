"""YAML as this project reads it: a repeated key is an error, 1e-4 is a number, and every key is written out."""

import re
from pathlib import Path
from typing import Any

import yaml


class StrictLoader(yaml.SafeLoader):
    """SafeLoader without repeated keys and merge keys, in which 1e-4 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            why = "merge keys (<<) are not read: an experiment shows every key, so write the merged ones out"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark)
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = sorted({str(key) for key in keys if keys.count(key) > 1})
        if repeated:
            raise yaml.constructor.ConstructorError(None, None, f"repeated key {', '.join(repeated)}", node.start_mark)
        return super().construct_mapping(node, deep)


StrictLoader.yaml_implicit_resolvers = {  # without PyYAML's own floats: 1:30.5 and 1_0.5 are none here
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":float")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
NUMBER = re.compile(r"^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+0123456789."))


def parse(text: str) -> Any:
    """The value that `text` is; raises ValueError on one line."""
    try:
        return yaml.load(text, StrictLoader)
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # Python's own errors are those of tagged values: !!bool maybe is a KeyError, !!timestamp x an AttributeError.
        raise ValueError(" ".join(str(error).split())) from None


def read_mapping(path: Path) -> dict[Any, Any]:
    """The keys and values in `path`; raises ValueError naming the file when it holds none."""
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not readable as YAML: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected keys and values, not {type(values).__name__}")
    return values

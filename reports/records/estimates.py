"""estimates.json: what one run of each experiment costs."""

import json
from pathlib import Path

from pydantic import PositiveInt

from reports.records.files import Schema, write_text


class Estimate(Schema):
    """Floating-point operations of a forward pass of one sample, and the `samples` of the whole training."""

    forward_flops: PositiveInt
    samples: PositiveInt


def read_estimates(path: Path) -> dict[str, Estimate]:
    """The estimates by experiment."""
    estimates = json.loads(path.read_text(encoding="utf-8"))
    return {name: Estimate.model_validate(values) for name, values in estimates.items()}


def write_estimates(path: Path, estimates: dict[str, Estimate]) -> None:
    """Replace `path` with the estimates by experiment."""
    values = {name: estimate.model_dump() for name, estimate in estimates.items()}
    write_text(path, json.dumps(values, indent=2, sort_keys=True) + "\n")

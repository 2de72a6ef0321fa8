"""estimates.json: what one run of each experiment costs."""

import json
from pathlib import Path

from pydantic import PositiveInt

from reports.records.files import Schema


class Estimate(Schema):
    """Floating-point operations of a forward pass of one sample, and the `samples` of the whole training."""

    forward_flops: PositiveInt
    samples: PositiveInt


def read_estimates(path: Path) -> dict[str, Estimate]:
    """The estimates by experiment."""
    estimates = json.loads(path.read_text(encoding="utf-8"))
    return {name: Estimate.model_validate(values) for name, values in estimates.items()}

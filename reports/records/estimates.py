"""estimates.json: what one run of each experiment costs."""

from pydantic import PositiveInt, RootModel

from reports.records.files import Schema


class Estimate(Schema):
    """Floating-point operations of a forward pass of one sample, and the `samples` of the whole training."""

    forward_flops: PositiveInt
    samples: PositiveInt


Estimates = RootModel[dict[str, Estimate]]  # by experiment

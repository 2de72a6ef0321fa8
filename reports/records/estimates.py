"""estimates.json: what one run of each experiment costs."""

from pydantic import PositiveInt, RootModel

from reports.records.files import Schema


class Estimate(Schema):
    """Floating-point operations of a forward pass of one sample, `samples` of the training, `parameters` of the model."""

    forward_flops: PositiveInt
    samples: PositiveInt
    parameters: PositiveInt | None = None


Estimates = RootModel[dict[str, Estimate]]  # by experiment

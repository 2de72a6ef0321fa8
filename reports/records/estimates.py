"""estimates.json: what one run of each experiment costs."""

from pydantic import PositiveInt, RootModel

from reports.records.files import Schema


class Estimate(Schema):
    """Operations of a forward pass of one sample, `samples` of its training, `parameters` of the model."""

    forward_flops: PositiveInt
    samples: PositiveInt
    parameters: PositiveInt | None = None


QUICK = "resnet20_digits"  # the quick start, whose measured speed turns operations into time
Estimates = RootModel[dict[str, Estimate]]  # by experiment

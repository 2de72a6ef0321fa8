"""evaluation.json: the loss of a run's final weights, sample by sample."""

from reports.records.files import Schema


class Evaluation(Schema):
    """`sample_sd` is the standard deviation of a sample's mean loss, over `samples` of `labels_per_sample` labels."""

    weights_sha256: str
    loss: float
    samples: int
    labels_per_sample: int
    sample_sd: float

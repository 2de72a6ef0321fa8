"""A multilayer perceptron of 256, 128 and 100 units, and softmax regression, which has no hidden one.

    python -m train.mlp configs/mlp_256_128_100_digits.yaml --precision bf16 --seed 0

What to expect is in reports/README.md, which is generated from the committed records.
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("mlp", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

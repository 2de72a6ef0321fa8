"""A multilayer perceptron of 256, 128 and 100 units, and softmax regression, which has no hidden one.

    python -m train.mlp configs/mlp_256_128_100_digits.yaml --precision bf16 --seed 0

Expect accuracy 96.94% in fp32, 96.83% in bf16, 96.72% in fp16 (mean of 5 seeds, mlp_256_128_100_digits).
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

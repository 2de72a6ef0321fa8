"""FashionSimpleNet: two 3x3 convolutions and a hidden layer.

    python -m train.fashion_simple_net configs/fashion_simple_net_digits.yaml --precision bf16 --seed 0

Expect accuracy 97.72% in fp32, 97.89% in bf16, 97.67% in fp16 (mean of 5 seeds, fashion_simple_net_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("fashion_simple_net", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

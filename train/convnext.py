"""ConvNeXt (Liu et al. 2022, *A ConvNet for the 2020s*).

https://arxiv.org/abs/2201.03545

    python -m train.convnext configs/convnext_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 96.94% in fp32, 96.94% in bf16, 97.78% in fp16 (one seed, convnext_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("convnext", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

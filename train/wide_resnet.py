"""Wide ResNets (Zagoruyko and Komodakis 2016), in torchvision's form: bottlenecks of twice the width.

https://arxiv.org/abs/1605.07146

    python -m train.wide_resnet configs/wide_resnet_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 99.72% in fp32, 99.44% in bf16, 99.44% in fp16 (one seed, wide_resnet_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("wide_resnet", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

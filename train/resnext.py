"""ResNeXt (Xie et al. 2017, *Aggregated Residual Transformations for Deep Neural Networks*).

https://arxiv.org/abs/1611.05431

    python -m train.resnext configs/resnext_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 99.44% in fp32, 99.72% in bf16, 99.17% in fp16 (one seed, resnext_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("resnext", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

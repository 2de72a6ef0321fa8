"""Swin Transformer (Liu et al. 2021, *Hierarchical Vision Transformer using Shifted Windows*).

https://arxiv.org/abs/2103.14030

    python -m train.swin configs/swin_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 89.17% in fp32, 88.89% in bf16, 89.72% in fp16 (one seed, swin_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("swin", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

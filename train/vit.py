"""Vision transformers: ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021, arXiv:2012.12877).

https://arxiv.org/abs/2010.11929

    python -m train.vit configs/vit_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 88.89% in fp32, 93.06% in bf16, 91.11% in fp16 (one seed, vit_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("vit", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

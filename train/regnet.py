"""RegNetX and RegNetY (Radosavovic et al. 2020, *Designing Network Design Spaces*).

https://arxiv.org/abs/2003.13678

    python -m train.regnet configs/regnet_small_image_digits.yaml --precision bf16 --seed 0

Expect accuracy 100.00% in fp32, 98.89% in bf16, 98.33% in fp16 (one seed, regnet_small_image_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network with fresh weights; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("regnet", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

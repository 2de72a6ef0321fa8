"""LeNet-5 with sigmoids, as *Dive into Deep Learning* has it.

    python -m train.lenet configs/lenet5_digits.yaml --precision bf16 --seed 0

Expect accuracy 96.78% in fp32, 96.83% in bf16, 96.78% in fp16 (mean of 5 seeds, lenet5_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import image_classifier
from train.experiment.tasks import image_classification as task


def build(config: Experiment) -> nn.Module:
    """The network; raises ValueError for an unknown `arch` or a size that it cannot take."""
    return image_classifier("lenet", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

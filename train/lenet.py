"""LeNet-5 with sigmoids, as *Dive into Deep Learning* has it.

    python -m train.lenet configs/lenet5_digits.yaml --precision bf16 --seed 0

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
    return image_classifier("lenet", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

"""DistilBERT for classification: from random weights, or fine-tuned from a pretrained folder.

    python -m train.distilbert configs/distilbert_digits.yaml --precision bf16 --seed 0
    python -m train.distilbert configs/distilbert_sst2.yaml --precision bf16 pretrained=FOLDER

Expect accuracy 92.17% in fp32, 91.67% in bf16, 92.44% in fp16 (mean of 5 seeds, distilbert_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import sequence_classifier
from train.experiment.tasks import sequence_classification as task


def build(config: Experiment) -> nn.Module:
    """The encoder with a classification head; raises ValueError for weights or sizes that do not fit."""
    return sequence_classifier("distilbert", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

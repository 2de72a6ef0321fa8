"""RoBERTa for classification: from random weights, or fine-tuned from a pretrained folder.

    python -m train.roberta configs/roberta_digits.yaml --precision bf16 --seed 0
    python -m train.roberta configs/roberta_sst2.yaml --precision bf16 pretrained=FOLDER

Expect accuracy 89.72% in fp32, 91.11% in bf16, 89.17% in fp16 (one seed, roberta_digits).
"""

import sys

from torch import nn

from reports.records.config import Experiment
from train.cli.run import main
from train.experiment.builders import sequence_classifier
from train.experiment.tasks import sequence_classification as task


def build(config: Experiment) -> nn.Module:
    """The encoder with a classification head; raises ValueError for weights or sizes that do not fit."""
    return sequence_classifier("roberta", config)


if __name__ == "__main__":
    sys.exit(main(build, task))

"""BERT for classification: from random weights, or fine-tuned from a pretrained folder.

    python -m train.bert configs/bert_digits.yaml --precision bf16 --seed 0
    python -m train.bert configs/bert_sst2.yaml --precision bf16 pretrained=FOLDER

What to expect is in the table of README.md, which is generated from the committed records.
"""

import sys

from torch import nn

from models import text
from train.data.text import classified
from train.experiment.config import Experiment
from train.experiment.run import main
from train.experiment.tasks import sequence_classification as task


def build(config: Experiment) -> nn.Module:
    """The encoder with a classification head; raises ValueError for weights or sizes that do not fit."""
    facts = classified(config.data.name)
    return text.sequence_classifier(
        "bert",
        config.arch,
        num_labels=config.num_classes,
        vocab_size=config.vocab_size or facts.vocabulary,
        length=config.data.length,
        dropout=config.dropout,
        pretrained=config.pretrained,
    )


if __name__ == "__main__":
    sys.exit(main(build, task))

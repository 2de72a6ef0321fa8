"""GPT-2 for language modelling: nanoGPT's character models, GPT-2 124M, or a pretrained folder.

    python -m train.gpt2 configs/gpt2_pydoc.yaml --precision bf16 --seed 0
    DATA_ROOT=FOLDER python -m train.gpt2 configs/gpt2_shakespeare_cpu.yaml --precision bf16

Expect loss 2.1211 nats in fp32, 2.1210 nats in bf16, 2.1211 nats in fp16 (one seed, gpt2_pydoc).
"""

import sys

from torch import nn

from models import text
from reports.records.config import Experiment
from train.cli.run import main
from train.data.catalog import language_set
from train.experiment.tasks import language_modelling as task


def build(config: Experiment) -> nn.Module:
    """The decoder; raises ValueError for weights or sizes that do not fit."""
    return text.language_model(
        config.arch,
        vocab_size=config.vocab_size or language_set(config.data.name).vocabulary,
        length=config.data.length,
        dropout=config.dropout,
        pretrained=config.pretrained,
    )


if __name__ == "__main__":
    sys.exit(main(build, task))

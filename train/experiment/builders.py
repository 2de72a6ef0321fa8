"""What the per-model scripts of a kind have in common: an experiment's values, handed to the builders of `models`."""

from torch import nn

from models import text, vision
from reports.records.config import Experiment
from train.data.catalog import classification_set, image_set


def image_classifier(family: str, config: Experiment) -> nn.Module:
    """Images to logits, of `models.vision`'s `family`; raises ValueError for what does not fit, as it does."""
    images = image_set(config.data.name)
    return vision.build(
        family,
        config.arch,
        config.num_classes or images.classes,
        images.channels,
        images.size,
        dropout=config.dropout,
        pretrained=config.pretrained,
    )


def sequence_classifier(family: str, config: Experiment) -> nn.Module:
    """Tokens to logits, of `models.text`'s `family`; raises ValueError for what does not fit, as it does."""
    return text.sequence_classifier(
        family,
        config.arch,
        num_labels=config.num_classes,
        vocab_size=config.vocab_size or classification_set(config.data.name).vocabulary,
        length=config.data.length,
        dropout=config.dropout,
        pretrained=config.pretrained,
    )

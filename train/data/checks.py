"""What data and specification must fulfil; each check raises `Refused` naming data set, sample or key."""

from collections.abc import Sequence

import torch
from torch import Tensor

from train.data.order import Order
from train.data.specification import DataSpec
from train.engine.errors import Refused


def check_labels(labels: Tensor, spec: DataSpec, split: str) -> None:
    """Every label (N,) is a class of the head, else the first that is not is named; warns of a head too large."""
    assert spec.classes is not None
    where = f"{spec.name} {split} split"
    check_label_range(labels, spec.classes, where)
    if (highest := int(labels.max())) + 1 < spec.classes:
        print(f"warning: num_classes={spec.classes}, but {where} has labels 0 to {highest} only", flush=True)


def check_label_range(labels: Tensor, classes: int, where: str) -> None:
    """Every label (N,) is from 0 to `classes` - 1, else the first that is not is named."""
    bad = torch.nonzero((labels < 0) | (labels >= classes))
    if len(bad):
        index, label = int(bad[0]), int(labels[bad[0]])
        raise Refused(f"num_classes: {where} has label {label} at sample {index}, but num_classes={classes}")


def check_batch_size(spec: DataSpec, samples: int) -> None:
    """The training samples fill one batch; says so when the last batch is left out."""
    if spec.batch_size > samples:
        raise Refused(f"batch_size: {spec.batch_size} is larger than the {samples} training samples")
    if Order(samples, spec.batch_size, seed=0).drops_last:
        print("the last training batch would have one sample: it is left out, in every precision", flush=True)


def check_unset(spec: DataSpec, keys: Sequence[str], data: str) -> None:
    """`keys` of the configuration, such as "data.length", which have no meaning for `data`, are not given."""
    for key in keys:
        if (value := getattr(spec, key.removeprefix("data."))) is not None:
            raise Refused(f"{key}: has no meaning for {data}; leave it null, not {value}")


def check_image_augmentation(spec: DataSpec, streamed: bool) -> None:
    """The augmentation is one of those for a streamed set, or for one in memory."""
    allowed = ("random_resized_crop", "none") if streamed else ("none", "crop", "crop_flip")
    if spec.augment not in allowed:
        raise Refused(f"data.augment: {spec.augment!r} does not fit {spec.name}; allowed: {', '.join(allowed)}")


def check_text(spec: DataSpec) -> int:
    """The keys fit text; returns the length of its sequences, which is required."""
    check_unset(spec, ("data.held_out", "data.mean", "data.std"), "text")
    if spec.augment != "none":
        raise Refused(f"data.augment: has no meaning for text; leave it none, not {spec.augment}")
    if spec.length is None:
        raise Refused("data.length: this key is required for text: the most tokens of a sequence")
    return spec.length


def check_vocabulary(spec: DataSpec, tokens: int) -> None:
    """The model's embedding has a row for each of the `tokens` that the data have."""
    if spec.vocab_size is not None and tokens > spec.vocab_size:
        raise Refused(f"vocab_size: {spec.name} has {tokens} tokens, but the model's embedding {spec.vocab_size} rows")

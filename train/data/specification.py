"""What a caller says of the data that it wants, and what it gets."""

from dataclasses import dataclass
from typing import Literal

import torch

from train.data.catalog import DataSet, Embedded, Source
from train.data.order import Order
from train.engine.fit import Batches


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """A data set by name, and how it becomes batches on `device`.

    `eval_batch_size` is `batch_size` unless given, `classes` the size of the model's head, `length` the most tokens of
    a sequence. `train_samples` and `eval_samples` limit the splits; `held_out` training samples are set aside, the
    same for every `seed`. Pixels from 0 to 1 are normalised by `mean` and `std`, unless given those of the training
    split. `stand_in` asks for embedded data in the shape of the set, as a smoke run does. Of text, `vocab_size` is
    the number of rows of the model's embedding, and `tokenizer` the folder or the Hub's name of a pretrained one.
    """

    name: str
    batch_size: int
    seed: int
    device: torch.device
    eval_batch_size: int | None = None
    classes: int | None = None
    length: int | None = None
    augment: str = "none"
    train_samples: int | None = None
    eval_samples: int | None = None
    held_out: int | None = None
    mean: float | None = None
    std: float | None = None
    workers: int = 0
    channels_last: bool = False
    stand_in: bool = False
    vocab_size: int | None = None
    tokenizer: str | None = None

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def order(self, samples: int, training: bool) -> Order:
        """The order of a split of `samples`: shuffled by the seed in training, as stored in evaluation."""
        if training:
            return Order(samples, self.batch_size, self.seed)
        return Order(samples, self.eval_batch_size or self.batch_size, seed=None)

    def source_of(self, entry: DataSet, stand_in: Literal["digits", "pydoc", "number_words"]) -> Source:
        """Where to read `entry` from: its source, or the embedded `stand_in` where the specification asks for one."""
        return Embedded(stand_in) if self.stand_in and not isinstance(entry.source, Embedded) else entry.source


@dataclass(frozen=True)
class Splits:
    """The batches of a data set. `held_out` is the part of the training split that is evaluated, not trained on.

    `content_sha256` is the SHA-256 of what all splits hold, inputs and labels; None where it is not known. `classes`
    are the names of the classes in the order of their labels; None where the data do not name them.
    """

    train: Batches
    evaluation: Batches
    held_out: Batches | None = None
    content_sha256: str | None = None
    classes: tuple[str, ...] | None = None

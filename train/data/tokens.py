"""Batches of token sequences: of unequal length for classification and translation, of blocks for language modelling.

Nothing is padded to a multiple of eight: FP32 and mixed precision see the same tensors.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from train.data.order import Order, generator
from train.data.specification import DataSpec
from train.data.transfer import to_device
from train.engine.step import Batch

IGNORED = -100  # F.cross_entropy's default `ignore_index`
DEVICE_BYTES = 2**28  # tokens of more bytes stay in host memory


@dataclass(frozen=True)
class Encoded:
    """Texts as tokens. Some pretrained models tell the two texts of a pair apart by `token_type_ids`."""

    input_ids: Sequence[Sequence[int]]
    token_type_ids: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class EncodedSplit:
    """Texts as tokens, and a label each (N,) or target sequences."""

    inputs: Encoded
    targets: Tensor | Sequence[Sequence[int]]

    def __getitem__(self, part: slice) -> "EncodedSplit":
        types = self.inputs.token_type_ids
        inputs = Encoded(self.inputs.input_ids[part], None if types is None else types[part])
        return EncodedSplit(inputs, self.targets[part])


class TokenSequences:
    """Sequences of unequal length, end to end in one tensor.

    `tokens` (total,) int32 are on `device` when they are few, else in host memory; `lengths` (N,) always on
    the host, because a batch's width must be known without waiting for the device.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], device: torch.device) -> None:
        self.lengths = torch.tensor([len(sequence) for sequence in sequences])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.tokens = stored(torch.tensor([token for sequence in sequences for token in sequence]), device)

    def padded(self, index: Tensor, padding: int) -> tuple[Tensor, Tensor]:
        """The sequences `index` (B,) as (B, T) int64, padded to the longest, and the mask (B, T) of their tokens."""
        device = self.tokens.device
        position = torch.arange(int(self.lengths[index].max()))
        mask = to_device(position < self.lengths[index, None], device)
        places = to_device((self.starts[index, None] + position).clamp_(max=len(self.tokens) - 1), device)
        return torch.where(mask, self.tokens[places].long(), padding), mask


class SequenceBatches:
    """A split of sequences with one label each, or with target sequences.

    Batches are {"input_ids": (B, T), "labels": (B,) or (B, S)} int64, padded to the longest in the batch, with
    `padding` or, in labels, with -100. Where lengths differ at all, every batch has "attention_mask": (B, T), 0 on
    padding; with token types it has "token_type_ids": (B, T). Target sequences come with "decoder_input_ids":
    (B, S), the labels one place later behind `padding`.
    """

    def __init__(self, split: EncodedSplit, spec: DataSpec, padding: int, training: bool) -> None:
        self.order = spec.order(len(split.targets), training)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.padding, self.device = padding, spec.device
        device, types, targets = spec.device, split.inputs.token_type_ids, split.targets
        self.inputs = TokenSequences(split.inputs.input_ids, device)
        self.token_types = None if types is None else TokenSequences(types, device)
        self.targets = targets.to(device) if isinstance(targets, Tensor) else TokenSequences(targets, device)
        self.masked = len(self.inputs.lengths.unique()) > 1

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on."""
        for _, index in self.order.rows(epoch, start):
            yield self._batch(index)

    def content(self) -> list[Tensor]:
        """All tokens, lengths and labels: another tokenizer is another data set."""
        sequences = [part for part in (self.inputs, self.token_types, self.targets) if isinstance(part, TokenSequences)]
        labels = [self.targets] if isinstance(self.targets, Tensor) else []
        return [tensor for part in sequences for tensor in (part.tokens, part.lengths)] + labels

    def digest(self) -> str:
        """SHA-256 of the first epoch's order and of all tokens: another tokenizer is another data set."""
        targets = self.targets if isinstance(self.targets, Tensor) else self.targets.tokens
        return _digest(self.order, self.inputs.tokens, self.inputs.lengths, targets)

    def _batch(self, index: Tensor) -> Batch:
        tokens, mask = self.inputs.padded(index, self.padding)
        batch = {"input_ids": tokens}
        if self.masked:
            batch["attention_mask"] = mask.long()
        if self.token_types is not None:
            batch["token_type_ids"] = self.token_types.padded(index, 0)[0]
        if isinstance(self.targets, Tensor):
            batch["labels"] = self.targets[to_device(index, self.targets.device)]
        else:
            labels, counted = self.targets.padded(index, IGNORED)
            begin = torch.full_like(labels[:, :1], self.padding)
            batch["labels"] = labels
            batch["decoder_input_ids"] = torch.cat([begin, labels.where(counted, self.padding)[:, :-1]], dim=1)
        return {name: to_device(tensor, self.device) for name, tensor in batch.items()}


class BlockBatches:
    """A text in blocks of `length` tokens, each token's label being the one after it.

    Batches are {"input_ids": (B, length), "labels": (B, length)} int64. In training an epoch is a permutation of
    the text's blocks, which do not overlap and begin at an offset drawn for the epoch, so that over the epochs
    a block may start anywhere. (nanoGPT draws every block's start, and has no epochs.) In evaluation the
    blocks begin at the first token and cover the whole text; labels beyond its end are -100.
    """

    def __init__(self, tokens: Tensor, length: int, spec: DataSpec, training: bool) -> None:
        labels = len(tokens) - 1
        # In training one block less, so that there are as many at every offset.
        blocks = len(tokens) // length - 1 if training else -(-labels // length)
        self.order = spec.order(blocks, training)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.length, self.device = length, spec.device
        self.tokens = stored(tokens, spec.device)
        self.within = torch.arange(length + 1)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on."""
        offset = self.offset(epoch)
        for _, index in self.order.rows(epoch, start):
            places = offset + index[:, None] * self.length + self.within
            last = len(self.tokens) - 1
            block = self.tokens[to_device(places.clamp(max=last), self.tokens.device)].long()
            labels = block[:, 1:]
            if int(places.max()) > last:
                labels = labels.masked_fill(to_device(places[:, 1:] > last, labels.device), IGNORED)
            batch = {"input_ids": block[:, :-1].contiguous(), "labels": labels.contiguous()}
            yield {name: to_device(tensor, self.device) for name, tensor in batch.items()}

    def offset(self, epoch: int) -> int:
        """The first block's first token in `epoch`."""
        if self.order.seed is None:
            return 0
        draw = generator(self.order.seed, "offset", epoch)
        return int(torch.randint(0, self.length, (), generator=draw))

    def content(self) -> list[Tensor]:
        """All tokens."""
        return [self.tokens]

    def digest(self) -> str:
        """SHA-256 of the first epoch's order and offset, and of all tokens."""
        return _digest(self.order, torch.tensor(self.offset(0)), self.tokens)


def stored(tokens: Tensor, device: torch.device) -> Tensor:
    """`tokens` as int32, on `device` unless they are many."""
    tokens = tokens.to(torch.int32)
    return tokens.to(device) if tokens.nbytes <= DEVICE_BYTES else tokens


def _digest(order: Order, *tensors: Tensor) -> str:
    digest = hashlib.sha256(order.digest().encode())
    for tensor in tensors:
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()

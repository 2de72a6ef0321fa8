"""Batches of token sequences: of unequal length for classification and translation, of blocks for language modelling.

Nothing is padded to a multiple of eight: FP32 and mixed precision see the same tensors.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from train.data.order import Order, generator
from train.engine.step import Batch

IGNORED = -100  # F.cross_entropy's default `ignore_index`
RESIDENT_BYTES = 2**28


class Ragged:
    """Sequences of unequal length, end to end in one tensor.

    `tokens` (total,) int32 lies on `device` when it is small, else in host memory; `lengths` (N,) always on
    the host, because a batch's width must be known without waiting for the device.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], device: torch.device) -> None:
        self.lengths = torch.tensor([len(sequence) for sequence in sequences])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.tokens = at_home(torch.tensor([token for sequence in sequences for token in sequence]), device)

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, index: Tensor, filler: int) -> tuple[Tensor, Tensor]:
        """The sequences `index` (B,) as (B, T) int64, filled up to the longest, and the mask (B, T) of their tokens."""
        home = self.tokens.device
        width = torch.arange(int(self.lengths[index].max()))
        mask = moved(width < self.lengths[index, None], home)
        places = moved((self.starts[index, None] + width).clamp_(max=len(self.tokens) - 1), home)
        return torch.where(mask, self.tokens[places].long(), filler), mask


class SequenceBatches:
    """A split of sequences with one label each, or with target sequences.

    Batches are {"input_ids": (B, T), "labels": (B,) or (B, S)} int64, filled up to the longest in the batch, with
    `filler` or, in labels, with -100. Where lengths differ at all, every batch has "attention_mask": (B, T), 0 on
    filling. `extra` are further columns beside the input. Target sequences come with "decoder_input_ids": (B, S),
    the labels one place later behind `filler`. `seed` is that of `Order`.
    """

    def __init__(
        self,
        inputs: Ragged,
        targets: Tensor | Ragged,
        batch_size: int,
        *,
        filler: int,
        device: torch.device,
        seed: int | None = None,
        extra: Mapping[str, Ragged] | None = None,
    ) -> None:
        self.order = Order(len(inputs), batch_size, seed)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.inputs, self.filler, self.device, self.extra = inputs, filler, device, dict(extra or {})
        self.targets = targets.to(device) if isinstance(targets, Tensor) else targets
        self.masked = len(inputs.lengths.unique()) > 1

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on."""
        for _, index in self.order.rows(epoch, start):
            yield self._batch(index)

    def digest(self) -> str:
        """SHA-256 of the first epoch's order and of all tokens: another tokenizer is another data set."""
        targets = self.targets if isinstance(self.targets, Tensor) else self.targets.tokens
        return _digest(self.order, self.inputs.tokens, self.inputs.lengths, targets)

    def _batch(self, index: Tensor) -> Batch:
        tokens, mask = self.inputs.padded(index, self.filler)
        batch = {"input_ids": tokens}
        if self.masked:
            batch["attention_mask"] = mask.long()
        for name, column in self.extra.items():
            batch[name] = column.padded(index, 0)[0]
        if isinstance(self.targets, Tensor):
            batch["labels"] = self.targets[moved(index, self.targets.device)]
        else:
            labels, counted = self.targets.padded(index, IGNORED)
            begin = torch.full_like(labels[:, :1], self.filler)
            batch["labels"] = labels
            batch["decoder_input_ids"] = torch.cat([begin, labels.where(counted, self.filler)[:, :-1]], dim=1)
        return {name: moved(tensor, self.device) for name, tensor in batch.items()}


class BlockBatches:
    """A text in blocks of `length` tokens, each token's label being the one after it.

    Batches are {"input_ids": (B, length), "labels": (B, length)} int64. In training an epoch is a permutation of
    the text's blocks, which do not overlap and begin at an offset drawn for the epoch, so that over the epochs
    a block may start anywhere. (nanoGPT draws every block's start, and has no epochs.) Without a `seed` the
    blocks begin at the first token and cover the text whole: what is left over is filled with -100 in the labels.
    """

    def __init__(
        self, tokens: Tensor, length: int, batch_size: int, *, device: torch.device, seed: int | None = None
    ) -> None:
        labels = len(tokens) - 1
        # In training one block less, so that there are as many at every offset.
        blocks = len(tokens) // length - 1 if seed is not None else -(-labels // length)
        self.order = Order(blocks, batch_size, seed)
        self.samples, self.batches = self.order.samples, self.order.batches
        self.length, self.device = length, device
        self.tokens = at_home(tokens, device)
        self.within = torch.arange(length + 1)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on."""
        offset = self.offset(epoch)
        for _, index in self.order.rows(epoch, start):
            places = offset + index[:, None] * self.length + self.within
            last = len(self.tokens) - 1
            taken = self.tokens[moved(places.clamp(max=last), self.tokens.device)].long()
            labels = taken[:, 1:]
            if int(places.max()) > last:
                labels = labels.masked_fill(moved(places[:, 1:] > last, labels.device), IGNORED)
            batch = {"input_ids": taken[:, :-1].contiguous(), "labels": labels.contiguous()}
            yield {name: moved(tensor, self.device) for name, tensor in batch.items()}

    def offset(self, epoch: int) -> int:
        """The first block's first token in `epoch`."""
        if self.order.seed is None:
            return 0
        draw = generator(self.order.seed, "offset", epoch)
        return int(torch.randint(0, self.length, (), generator=draw))

    def digest(self) -> str:
        """SHA-256 of the first epoch's order and offset, and of all tokens."""
        return _digest(self.order, torch.tensor(self.offset(0)), self.tokens)


def at_home(tokens: Tensor, device: torch.device) -> Tensor:
    """`tokens` as int32, on `device` unless they are many."""
    tokens = tokens.to(torch.int32)
    return tokens.to(device) if tokens.nbytes <= RESIDENT_BYTES else tokens


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`; from the host to a GPU through pinned memory, without waiting."""
    if tensor.device == device or tensor.device.type == device.type == "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _digest(order: Order, *tensors: Tensor) -> str:
    digest = hashlib.sha256(order.digest().encode())
    for tensor in tensors:
        digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()

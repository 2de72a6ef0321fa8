"""Batches of token sequences and blocks against plain implementations, and their order."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from tests.data.small_sets import specification
from train.data.tokens import IGNORED, BlockBatches, Encoded, EncodedSplit, SequenceBatches
from train.engine.fit import Batches
from train.engine.step import Batch

SEQUENCES = [list(range(10 * n + 1, 10 * n + 1 + length)) for n, length in enumerate([3, 1, 6, 2, 4, 5, 2])]
TARGETS = [[n, n + 1, 9][: n % 3 + 1] for n in range(1, 8)]


def labelled(seed: int = 0) -> SequenceBatches:
    split = EncodedSplit(Encoded(SEQUENCES), torch.arange(7))
    return SequenceBatches(split, specification(batch_size=3, seed=seed), padding=0, training=True)


def translated(seed: int = 0) -> SequenceBatches:
    split = EncodedSplit(Encoded(SEQUENCES), TARGETS)
    return SequenceBatches(split, specification(batch_size=3, seed=seed), padding=0, training=True)


def blocks(seed: int | None = 0, tokens: int = 103, batch_size: int = 3) -> BlockBatches:
    spec = specification(batch_size=batch_size, seed=seed or 0)
    return BlockBatches(torch.arange(tokens), 10, spec, training=seed is not None)


KINDS: dict[str, Callable[..., Batches]] = {"labelled": labelled, "translated": translated, "blocks": blocks}


def assert_equal(first: Sequence[Batch], second: Sequence[Batch]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def padded(rows: list[list[int]], padding: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [padding] * (width - len(row)) for row in rows])


def test_sequences_are_padded_to_the_longest_of_their_batch() -> None:
    batches = labelled()
    for (_, index), batch in zip(batches.order.rows(0), batches.epoch(0), strict=True):
        rows = [SEQUENCES[i] for i in index]
        assert torch.equal(batch["input_ids"], padded(rows, 0))
        assert torch.equal(batch["attention_mask"], padded([[1] * len(row) for row in rows], 0))
        assert torch.equal(batch["labels"], index)
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_targets_are_padded_with_the_ignored_label_and_shifted_for_the_decoder() -> None:
    batches = translated()
    for (_, index), batch in zip(batches.order.rows(0), batches.epoch(0), strict=True):
        rows = [TARGETS[i] for i in index]
        assert torch.equal(batch["labels"], padded(rows, IGNORED))
        assert torch.equal(batch["decoder_input_ids"], padded([[0, *row] for row in rows], 0)[:, :-1])


def test_sequences_of_one_length_have_no_mask() -> None:
    split = EncodedSplit(Encoded([[1, 2], [3, 4]]), torch.arange(2))
    batches = SequenceBatches(split, specification(batch_size=1), padding=0, training=False)
    assert [set(batch) for batch in batches.epoch(0)] == [{"input_ids", "labels"}] * 2


def test_training_blocks_do_not_overlap_and_each_label_is_the_next_token() -> None:
    for epoch in range(4):
        all_batches = list(blocks().epoch(epoch))
        inputs, labels = (torch.cat([batch[name] for batch in all_batches]) for name in ("input_ids", "labels"))
        assert torch.equal(labels, inputs + 1)
        ordered = inputs.flatten().sort().values
        assert torch.equal(ordered, torch.arange(90) + blocks().offset(epoch))


def test_blocks_of_later_epochs_begin_elsewhere_and_stay_within_the_text() -> None:
    offsets = {blocks().offset(epoch) for epoch in range(200)}
    assert offsets == set(range(10))
    for tokens in (20, 29, 103):
        batches = blocks(tokens=tokens, batch_size=1)
        labels = torch.cat([batch["labels"] for epoch in range(30) for batch in batches.epoch(epoch)])
        assert labels.min() > 0
        assert labels.max() <= tokens - 1


@pytest.mark.parametrize("tokens", [11, 12, 20, 21, 22, 103])
def test_evaluation_has_every_token_but_the_first_as_a_label_once(tokens: int) -> None:
    batches = blocks(seed=None, tokens=tokens)
    all_batches = list(batches.epoch(0))
    labels = torch.cat([batch["labels"].flatten() for batch in all_batches])
    assert labels[labels != IGNORED].tolist() == list(range(1, tokens))
    assert sum(len(batch["labels"]) for batch in all_batches) == batches.samples


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [1, 2])
def test_a_resumed_epoch_goes_on_with_the_same_batches(kind: str, start: int) -> None:
    assert_equal(list(KINDS[kind]().epoch(1, start)), list(KINDS[kind]().epoch(1))[start:])


@pytest.mark.parametrize("kind", KINDS)
def test_batches_depend_on_the_seed_alone_and_move_no_global_generator(kind: str) -> None:
    expected = list(KINDS[kind]().epoch(2))
    torch.manual_seed(77)
    state = torch.get_rng_state()
    assert_equal(list(KINDS[kind]().epoch(2)), expected)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(next(KINDS[kind]().epoch(0))["labels"], next(KINDS[kind]().epoch(1))["labels"])
    digests = [KINDS[kind](seed).digest() for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_the_digest_knows_the_tokens() -> None:
    other = BlockBatches(torch.arange(103) + 1, 10, specification(batch_size=3), training=True)
    assert other.digest() != blocks().digest()


def test_token_types_are_padded_like_their_tokens() -> None:
    split = EncodedSplit(Encoded([[5, 6, 7], [8]], token_type_ids=[[0, 1, 1], [1]]), torch.arange(2))
    (batch,) = SequenceBatches(split, specification(), padding=3, training=False).epoch(0)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 3, 3]]
    assert batch["token_type_ids"].tolist() == [[0, 1, 1], [1, 0, 0]]

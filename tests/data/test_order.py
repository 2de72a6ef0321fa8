import random

import numpy as np
import pytest
import torch

from train.data.order import Order, generator


def rows(order: Order, epoch: int, start: int = 0) -> list[tuple[int, list[int]]]:
    return [(number, index.tolist()) for number, index in order.rows(epoch, start)]


def test_a_generator_is_a_function_of_seed_and_purpose() -> None:
    def draw(seed: int, *purpose: object) -> tuple[float, ...]:
        return tuple(torch.rand(4, generator=generator(seed, *purpose)).tolist())

    assert draw(0, "order", 1) == draw(0, "order", 1)
    purposes = [(0, ["order", 1]), (1, ["order", 1]), (0, ["order", 2]), (0, ["augment", 1]), (0, ["augment", 1, 0])]
    draws = [*(draw(seed, *purpose) for seed, purpose in purposes), draw(10, "order")]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63])
def test_any_seed_gives_every_sample_once(seed: int) -> None:
    order = Order(50, 8, seed)
    for epoch in range(3):
        assert sorted(order.epoch(epoch).tolist()) == list(range(50))


def test_epochs_differ_and_seeds_differ_and_the_same_seed_is_the_same() -> None:
    first, same, other = Order(50, 8, 0), Order(50, 8, 0), Order(50, 8, 1)
    assert rows(first, 0) == rows(same, 0)
    assert rows(first, 0) != rows(first, 1)
    assert rows(first, 0) != rows(other, 0)
    assert first.digest() == same.digest() != other.digest()


def test_without_a_seed_the_order_is_the_stored_one() -> None:
    order = Order(5, 2, None)
    assert rows(order, 0) == rows(order, 1) == [(0, [0, 1]), (1, [2, 3]), (2, [4])]


def test_order_does_not_depend_on_the_global_generators_and_leaves_them_alone() -> None:
    expected = rows(Order(50, 8, 3), 2)
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.nn.Linear(100, 100)
        state = torch.get_rng_state()
        assert rows(Order(50, 8, 3), 2) == expected
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("start", range(8))
def test_an_epoch_from_any_batch_on_is_its_end(start: int) -> None:
    order = Order(50, 8, 0)
    assert rows(order, 1, start) == rows(order, 1)[start:]


@pytest.mark.parametrize(
    ("samples", "batch_size", "sizes"),
    [
        (16, 8, [8, 8]),
        (17, 8, [8, 8]),  # one sample has no variance for BatchNorm
        (18, 8, [8, 8, 2]),
        (5, 8, [5]),
        (1, 8, [1]),
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
        (3, 2, [2]),
    ],
)
def test_a_last_training_batch_of_one_sample_is_left_out(samples: int, batch_size: int, sizes: list[int]) -> None:
    order = Order(samples, batch_size, 0)
    assert [len(index) for _, index in order.rows(0)] == sizes
    assert order.batches == len(sizes)


def test_each_epoch_leaves_out_another_sample() -> None:
    order = Order(17, 8, 0)
    left_out = {(set(range(17)) - {i for _, index in rows(order, epoch) for i in index}).pop() for epoch in range(10)}
    assert len(left_out) > 1


@pytest.mark.parametrize("samples", [1, 16, 17, 18])
def test_evaluation_keeps_every_sample(samples: int) -> None:
    order = Order(samples, 8, None)
    assert [i for _, index in rows(order, 0) for i in index] == list(range(samples))
    assert order.batches == len(rows(order, 0))

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.tiny import assert_same
from train.engine import checkpoint
from train.experiment.seeding import random_state, restore_random_state


def draws() -> list[float]:
    return [
        random.random(),
        float(np.random.rand()),
        float(np.random.randn()),
        random.gauss(0, 1),
        torch.rand(1).item(),
    ]


def test_random_states_load_with_the_safe_default(tmp_path: Path) -> None:
    random.gauss(0, 1)
    np.random.randn()  # leaves a cached second draw in both
    state = random_state()
    checkpoint.save(tmp_path / "last.pt", {"random": state})
    assert_same(torch.load(tmp_path / "last.pt", weights_only=True)["random"], state)


def test_all_global_generators_go_on_where_they_were(tmp_path: Path) -> None:
    draws()
    np.random.randn()
    checkpoint.save(tmp_path / "last.pt", {"random": random_state()})
    expected = [draws() for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        restore_random_state(checkpoint.load(tmp_path / "last.pt")["random"])
    assert [draws() for _ in range(3)] == expected


def test_a_missing_random_state_warns_and_changes_nothing() -> None:
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match="holds no random state"):
        restore_random_state(None)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_random_states_of_a_gpu_are_named_and_passed_over_on_a_cpu(tmp_path: Path) -> None:
    state = random_state() | {"cuda": [torch.zeros(16, dtype=torch.uint8)] * 2}
    checkpoint.save(tmp_path / "last.pt", {"random": state})
    expected = draws()
    with pytest.warns(UserWarning, match="2 CUDA random states in the checkpoint, 0 devices here"):
        restore_random_state(checkpoint.load(tmp_path / "last.pt")["random"])
    assert draws() == expected

"""The global random generators: seeded for a run, saved with a checkpoint and restored from it."""

import random
import warnings
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """The global random states (Python, NumPy, torch, every CUDA device) as plain values and byte tensors."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [name, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_random_state(state: dict[str, Any] | None) -> None:
    """Set the global random states. Warns, and continues, where a part is absent or has no device here."""
    if state is None:
        warnings.warn("the checkpoint holds no random state: dropout will draw other numbers", stacklevel=2)
        return
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(state["cuda"]) != devices:
        warnings.warn(
            f"{len(state['cuda'])} CUDA random states in the checkpoint, {devices} devices here", stacklevel=2
        )
    if devices:
        torch.cuda.set_rng_state_all(state["cuda"][:devices])

"""The training script behind an experiment."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from train.experiment.config import load
from train.experiment.setup import Script


def script_of(path: Path, overrides: Sequence[str] = ()) -> Script:
    """The training script that the experiment in `path` names."""
    module = importlib.import_module(f"train.{load(path, overrides).model}")
    return Script(module.build, module.task)

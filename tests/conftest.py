"""What every test may use. The libraries read these variables when they are imported."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# OpenMP threads that spin while they wait make a tiny step fifty times slower when another process wants the core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# No test reaches a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
import torch

from tests.experiment.harness import Outcome, run
from train.experiment import run as run_module

if TYPE_CHECKING:
    from tests.comparisons import Compared

# Under nohup a hangup is ignored, and by every process started from here: then there is nothing to test of it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")


@pytest.fixture(scope="session", autouse=True)
def _short_and_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No account, no user's folder, no W&B unless a test asks for it, and no second of compute-only steps."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "disabled")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(run_module, "COMPUTE_SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True)
def _signals_restored() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def fp32(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The finished tiny run in FP32. Read it, do not change its folder."""
    return run(tmp_path_factory.mktemp("fp32"))


@pytest.fixture(scope="session")
def bf16(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("bf16"), precision="bf16")


@pytest.fixture(scope="session")
def fp16(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("fp16"), precision="fp16")


@pytest.fixture(params=["fp32", "bf16", "fp16"])
def finished(request: pytest.FixtureRequest) -> Outcome:
    """The finished tiny run in each precision."""
    outcome: Outcome = request.getfixturevalue(request.param)
    return outcome


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where a process of its own prints."""
    return tmp_path / "printed"


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> "Compared":
    """The tiny network on the digits in fp32, bf16 and fp16 with two seeds, and with macro F1 as a further metric.

    Made once for all workers. Read it, do not change its folder.
    """
    from tests.comparisons import run_comparison, shared  # few tests need the charts' library, slow to load

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        return shared(tmp_path_factory, lambda out: run_comparison(out, "--seeds", "2"))

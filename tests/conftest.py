"""What every test may use. The libraries read these variables when they are imported."""

import os
import signal

# OpenMP threads that spin while they wait make a tiny step fifty times slower when another process wants the core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# No test reaches a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
import torch

# Under nohup a hangup is ignored, and by every process started from here: then there is nothing to test of it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def cpu() -> torch.device:
    return torch.device("cpu")

"""The level above which a run's peak memory is counted."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROWTH = """
import torch
from train.engine.allocator import keep_freed_memory
from train.engine.meter import PeakMemory
keep_freed_memory()
torch.ones(256 * 2**20, dtype=torch.uint8)  # the loading of the data, over when training starts
memory = PeakMemory(torch.device("cpu"))
memory.start()
buffer = torch.ones(64 * 2**20, dtype=torch.uint8)
print(memory.read()["memory/peak_rss_mib"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_that_loading_left_free_does_not_hide_the_growth() -> None:
    done = subprocess.run([sys.executable, "-c", GROWTH], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 60 < float(done.stdout) < 80

"""Freed memory stays in the process."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = """
import resource, sys, torch
from train.engine.allocator import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    print("not glibc")
    sys.exit()
for _ in range(20):
    torch.ones(32 * 2**20, dtype=torch.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(32 * 2**20, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], cwd=ROOT, capture_output=True, text=True, check=True)
    if "not glibc" in done.stdout:
        pytest.skip("the C library has no such setting")
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_a_buffer_that_comes_back_is_not_faulted_in_again() -> None:
    assert faults("keep") < 100
    assert faults("default") > 1000

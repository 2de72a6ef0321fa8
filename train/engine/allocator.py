"""How a CPU process keeps the memory that a training step frees."""

import contextlib
import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep freed memory in the process, on huge pages; False where the C library has no such setting.

    To be called before the first large tensor. By default glibc's malloc hands large blocks back to the kernel
    as soon as they are free (mallopt(3)), and the next step faults the same activations in again, page by
    page. What that costs depends on the order of allocations, so it also blurs every comparison. PyTorch asks
    for huge pages when THP_MEM_ALLOC_ENABLE is 1 (c10/core/impl/alloc_cpu.cpp).
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))


def return_freed_memory() -> None:
    """Hand what is free now back to the kernel, so that the resident set is what is in use."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

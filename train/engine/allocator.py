"""How a CPU process keeps the memory that a training step frees."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc's malloc to keep freed memory in the process; False where the C library has no such setting.

    By default it hands large blocks back to the kernel as soon as they are free (mallopt(3)), and the next
    step faults the same activations in again, page by page: ResNet-20 at batch 128 took some 25,000 page
    faults a step. What that costs depends on the order of allocations, so it also blurs every comparison.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))

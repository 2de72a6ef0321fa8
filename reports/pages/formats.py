"""A speed-up over FP32 in words."""

from collections.abc import Mapping
from typing import Any


def shown(row: Mapping[str, Any]) -> tuple[str, str]:
    """The speed-up of a comparison's `row`, as 0.98x, and its 95% interval, as [0.96, 0.999]: see `excluding_one`.

    Raises TypeError for a row whose speed was not compared.
    """
    value, low, high = row["speedup"], row["speedup_low"], row["speedup_high"]
    if low <= 1 <= high:
        return f"{value:.2f}x", f"[{low:.2f}, {high:.2f}]"
    return f"{excluding_one(value)}x", f"[{excluding_one(low)}, {excluding_one(high)}]"


def excluding_one(value: float) -> str:
    """`value` with two digits after the point, or with as many as it takes to be told from 1.

    The end of an interval that lies on one side of 1 must not read as if it held it.
    """
    digits = 2
    while value != 1 and float(f"{value:.{digits}f}") == 1:
        digits += 1
    return f"{value:.{digits}f}"

"""Architectures, by name. Nothing here knows how they are trained."""

import difflib
from collections.abc import Iterable


def unknown_architecture(name: str, allowed: Iterable[str]) -> ValueError:
    """The error for a name that no builder has: the nearest valid one, and all of them."""
    allowed = list(allowed)
    nearest = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return ValueError(f"arch: unknown architecture {name!r}: {hint}allowed: {', '.join(allowed)}")

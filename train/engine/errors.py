"""The four ways in which a run ends other than by finishing; the command turns each into an exit status."""

import difflib
from collections.abc import Iterable

LISTED = 20  # names that a message lists; of more, the nearest


class Refused(ValueError):
    """Asked for something that cannot be done as asked; raised before any work (exit status 2)."""


class Diverged(RuntimeError):
    """The numbers left the range in which training means anything (exit status 3)."""


class Interrupted(Exception):
    """A signal asked the run to stop and a checkpoint was written (exit status 75)."""


class EngineFault(RuntimeError):
    """The model or its loss breaks a rule of the engine, found while it runs."""


def unknown(kind: str, name: object, allowed: Iterable[str]) -> Refused:
    """`Refused` for a name that is not in `allowed`: the nearest valid one, and all of a few."""
    allowed = sorted(allowed)
    nearest = difflib.get_close_matches(str(name).lower(), allowed, n=5, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    listed = ", ".join(allowed if len(allowed) <= LISTED else nearest or allowed[:5])
    others = f", ... ({len(allowed)} in all)" if len(allowed) > LISTED else ""
    return Refused(f"unknown {kind} {str(name)[:100]!r}: {hint}allowed: {listed}{others}")

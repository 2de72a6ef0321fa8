"""How each precision is named and drawn, in the order of tables and charts. A further precision is one more line."""

from collections.abc import Iterable
from dataclasses import dataclass

from reports.records.layout import BASELINE

GREY = "#77818c"  # texts and axes; like all colours here it has a contrast of 3 at least with a white and a dark page


@dataclass(frozen=True)
class Appearance:
    """Marker and dashes (points drawn and left out) tell precisions apart where colour does not."""

    label: str
    colour: str
    marker: str
    dashes: tuple[float, ...] = ()


PRECISIONS = {
    BASELINE: Appearance("FP32", GREY, "o"),
    "tf32": Appearance("TF32", "#009e73", "D", (6, 2, 1, 2)),
    "bf16": Appearance("bf16", "#0072b2", "s", (5, 1.5)),
    "fp16": Appearance("fp16", "#d55e00", "^", (1.5, 1)),
}


def appearance(precision: str) -> Appearance:
    """That of `precision`; a violet one under its own name where the table above does not have it."""
    return PRECISIONS.get(precision) or Appearance(precision, "#a763b5", "v", (1, 2))


def in_order(precisions: Iterable[str]) -> list[str]:
    """Each of `precisions` once: those of the table in its order, then the others as they come."""
    given = dict.fromkeys(precisions)
    return [*(name for name in PRECISIONS if name in given), *(name for name in given if name not in PRECISIONS)]

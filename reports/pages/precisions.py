"""How each precision is named and drawn, in the order of tables and charts. A further precision is one more line."""

from collections.abc import Iterable
from dataclasses import dataclass

from reports.records.layout import BASELINE

Dash = str | tuple[int, tuple[float, ...]]


@dataclass(frozen=True)
class Appearance:
    """Colours on a light and on a dark page; marker and dash tell precisions apart where colour does not."""

    label: str
    light: str
    dark: str
    marker: str
    dash: Dash


PRECISIONS = {
    BASELINE: Appearance("FP32", "#1c2126", "#e4e7ea", "o", "-"),
    "tf32": Appearance("TF32", "#009e73", "#1fb98c", "D", "-."),
    "bf16": Appearance("bf16", "#0072b2", "#56b4e9", "s", (0, (5, 1.5))),
    "fp16": Appearance("fp16", "#d55e00", "#e69f00", "^", (0, (1.5, 1))),
}


def appearance(precision: str) -> Appearance:
    """That of `precision`; a grey one under its own name where the table above does not have it."""
    return PRECISIONS.get(precision) or Appearance(precision, "#5b6570", "#9ba5af", "v", ":")


def in_order(precisions: Iterable[str]) -> list[str]:
    """Each of `precisions` once: those of the table in its order, then the others as they come."""
    given = dict.fromkeys(precisions)
    return [*(name for name in PRECISIONS if name in given), *(name for name in given if name not in PRECISIONS)]

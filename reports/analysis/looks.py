"""How often a verdict was asked for: the looks that the tests allow for, and those that a comparison continues from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.analysis.statistics import LOOKS
from reports.records import layout
from reports.records.comparison import Comparison, Look, Plan
from reports.records.files import read_record


def allowed_for(plan: Plan, pairs: Mapping[str, int]) -> int:
    """How many looks the tests must allow for: those planned, or those taken up to and with this one if more.

    `pairs` counts, by precision, the pairs that are judged now. The same number of pairs judged by the same margin
    is no new look; another margin is one, because runs are reused when it changes.
    """
    now = [Look(precision=precision, pairs=count, margin=plan.margin) for precision, count in pairs.items()]
    return max(plan.looks, taken([*plan.looks_taken, *now]))


def taken(looks: Sequence[Look]) -> int:
    """The number of looks at the precision that had the most."""
    different = {(look.precision, look.pairs, look.margin) for look in looks}
    return max(Counter(precision for precision, _, _ in different).values(), default=0)


def recorded(earlier: Sequence[Look], now: Sequence[Look]) -> list[Look]:
    """The `earlier` looks and those of `now`, which replace the ones at the same pairs and margin."""
    looks = {(look.precision, look.pairs, look.margin): look for look in (*earlier, *now)}
    return list(looks.values())


def earlier(folder: Path, plan: Plan) -> list[Look]:
    """The looks of the comparison that `folder` has already; none of a smoke run or of another configuration.

    Raises ValueError naming a comparison.json that is damaged.
    """
    path = folder / layout.COMPARISON
    if not path.exists():
        return []
    before = read_record(Comparison, path)
    other = (before.config_sha256 or plan.config_sha256) != (plan.config_sha256 or before.config_sha256)
    return [] if before.smoke or other else before.looks_taken


def planned(plan: Plan, most: int) -> int:
    """How many looks a comparison that adds up to `most` seeds plans in all, with the ones it continues from.

    One that took all of its looks before `most` was raised has a single further one, with `most` seeds.
    """
    before = taken(plan.looks_taken)
    return max(LOOKS, before + 1 if most > len(plan.seeds) else before)

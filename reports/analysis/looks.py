"""How often a verdict was asked for: the looks that the tests allow for, and what a comparison continues from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.analysis.statistics import LOOKS
from reports.records import layout
from reports.records.comparison import Comparison, Look, Plan
from reports.records.files import read_record
from reports.records.summary import INTERRUPTED, MISSING


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


def continued(folder: Path, plan: Plan) -> Plan:
    """`plan` with the looks and the seeds of the comparison that `folder` has already, so that neither is lost.

    Seeds with runs that were interrupted or never began are not added. Smoke runs, and runs of another configuration,
    do not continue. Raises ValueError naming a comparison.json that is damaged.
    """
    path = folder / layout.COMPARISON
    if not path.exists():
        return plan
    earlier = read_record(Comparison, path)
    if earlier.smoke or (earlier.config_sha256 or plan.config_sha256) != (plan.config_sha256 or earlier.config_sha256):
        return plan
    open_seeds = {run.seed for run in earlier.runs if run.status in (INTERRUPTED, MISSING)}
    count = len(plan.seeds)
    while count in set(earlier.seeds) - open_seeds:
        count += 1
    return plan.model_copy(update={"seeds": list(range(count)), "looks_taken": earlier.looks_taken})


def planned(plan: Plan, most: int) -> int:
    """How many looks a comparison that adds up to `most` seeds plans in all, with the ones it continues from.

    One that took all of its looks before `most` was raised has a single further one, with `most` seeds.
    """
    before = taken(plan.looks_taken)
    return max(LOOKS, before + 1 if most > len(plan.seeds) else before)

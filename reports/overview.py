"""One table over several comparisons: python -m reports.overview RUNS...

RUNS are folders of experiments, or folders with several of them, such as runs: each with the comparison.json that
`train.compare` wrote. Smoke runs, which lie in a folder of their own, are only among them when given one by one.
"""

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reports.command import parser, run
from reports.pages import overview_page, table
from reports.records.comparison import Comparison
from reports.records.files import read_record
from reports.records.layout import COMPARISON, SMOKE

FORMATS = ("markdown", "latex", "csv")
REMEDY = "give the same `python -m train.compare` command again: it reuses finished runs and writes this file anew"


def overview(comparisons: Mapping[str, Comparison], form: str) -> str:
    """The comparisons by name in one of `FORMATS`; csv has the columns and digits of results.csv."""
    if form == "csv":
        return table.as_csv(*comparisons.values()).rstrip("\n")
    summary = overview_page.summary(comparisons)
    return summary.latex() if form == "latex" else summary.markdown()


def read(folders: Sequence[Path]) -> tuple[dict[str, Comparison], list[str]]:
    """The comparisons of the experiments in `folders` by name, and why others are left out.

    Of two experiments of one name, the second has its path for a name. Raises ValueError for what is no folder, and
    for the folder of smoke runs alone.
    """
    comparisons: dict[str, Comparison] = {}
    left_out = []
    for folder in dict.fromkeys(path for given in folders for path in _experiments(given)):
        name = str(folder) if folder.resolve().name in comparisons else folder.resolve().name
        try:
            comparison = read_record(Comparison, folder / COMPARISON)
        except ValueError as error:
            left_out.append(f"{error}; {REMEDY}")
            continue
        name += " (smoke run)" if comparison.smoke else ""
        for row in comparison.rows:
            row.experiment = name
        comparisons[name] = comparison
    if not comparisons and not left_out:
        raise ValueError(f"no comparison in {', '.join(map(str, folders))}: give smoke runs one by one")
    return comparisons, left_out


def _experiments(folder: Path) -> list[Path]:
    """`folder`, or the experiments in it; none of that of smoke runs, which `runs/*` has among the experiments."""
    if not folder.is_dir():
        beside = [str(path) for path in folder.parent.glob("*/")]
        nearest = difflib.get_close_matches(str(folder), beside, n=1)
        raise ValueError(f"{folder} is not a folder{f': did you mean {nearest[0]}?' if nearest else ''}")
    if folder.name == SMOKE:
        return []
    if (folder / COMPARISON).exists():
        return [folder]
    return [file.parent for file in sorted(folder.glob(f"*/{COMPARISON}"))] or [folder]


def main() -> int:
    """The command; returns its exit status, 1 where an experiment is left out."""
    options = parser("reports.overview", __doc__)
    options.add_argument("folders", nargs="+", type=Path, metavar="RUNS", help="folders of experiments, or of several")
    options.add_argument("--format", choices=FORMATS, default="markdown", help="markdown unless given")
    given = options.parse_args()
    try:
        comparisons, left_out = read(given.folders)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(overview(comparisons, given.format))
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    run(main)

"""One table over several comparisons: python -m reports.overview FOLDER...

Each FOLDER is that of an experiment, with the comparison.json that `train.compare` wrote.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from reports.pages import overview_page, table
from reports.records.comparison import Comparison
from reports.records.files import read_record
from reports.records.layout import COMPARISON

FORMATS = ("markdown", "latex", "csv")


def overview(comparisons: Mapping[str, Comparison], form: str) -> str:
    """The comparisons by name in one of `FORMATS`; csv has the columns and digits of results.csv."""
    if form == "csv":
        return table.as_csv(*comparisons.values()).rstrip("\n")
    summary = overview_page.summary(comparisons)
    return summary.latex() if form == "latex" else summary.markdown()


def main() -> int:
    """The command; returns its exit status, 1 where a folder is left out."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    options.add_argument("--format", choices=FORMATS, default="markdown", help="markdown unless given")
    given = options.parse_args()
    comparisons: dict[str, Comparison] = {}
    left_out = []
    for folder in given.folders:
        if not folder.is_dir():
            options.error(f"{folder} is not a folder")
        try:
            name = str(folder) if folder.name in comparisons else folder.resolve().name
            comparisons[name] = read_record(Comparison, folder / COMPARISON)
        except ValueError as error:
            left_out.append(str(error))
    print(overview(comparisons, given.format))
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())

"""One table over several comparisons: python -m reports.overview FOLDER...

Each FOLDER is that of an experiment, with the comparison.json that `train.compare` wrote. An experiment
without one is a row that says so.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from reports import table
from reports.records import read_json


def overview(folders: Sequence[Path]) -> str:
    """The Markdown table: one row for each experiment and precision, the metric of each named in its cell."""
    rows: list[list[str]] = []
    titles: list[str] = []
    for folder in folders:
        comparison = read_json(folder / "comparison.json")
        if comparison is None:
            rows.append([folder.name, "n/a", "no comparison.json: it did not finish"])
            continue
        name, metric, *others = table.header(comparison)
        titles = ["experiment", name, "metric", *others]
        for row in comparison["rows"]:
            precision, value, *figures = table.cells(row)
            rows.append([comparison["experiment"], precision, f"{metric} {value}" if row["seeds"] else value, *figures])
    titles = titles or ["experiment", "precision", "metric"]
    filled = [row + [table.MISSING] * (len(titles) - len(row)) for row in rows]
    lines = [titles, [":--", ":--", *["--:"] * (len(titles) - 2)], *filled]
    return "\n".join(table.line(texts) for texts in lines)


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    print(overview(options.parse_args().folders))


if __name__ == "__main__":
    main()

"""One table over several comparisons: python -m reports.overview FOLDER...

Each FOLDER is that of an experiment, with the comparison.json that `train.compare` wrote. An experiment
without one is a row that says so.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reports.pages import table
from reports.pages.table import Cell, Column, Table
from reports.records.comparison import Comparison
from reports.records.files import read_record
from reports.records.layout import COMPARISON

FORMATS = ("markdown", "latex", "csv")


def overview(
    comparisons: Sequence[Comparison], form: str = "markdown", left_out: Sequence[tuple[str, str]] = ()
) -> str:
    """A row for each experiment and precision, in one of `FORMATS`; one for each that is `left_out`, with its reason.

    As csv it is data: the columns and the digits of each experiment's results.csv.
    """
    if form == "csv":
        return table.as_csv(*comparisons).rstrip("\n")
    rows = []
    columns = [Column("experiment", "text"), Column("precision", "precision"), Column("metric")]
    for comparison in comparisons:
        results = table.results(comparison, further=False)
        columns = [columns[0], results.columns[0], columns[2], *results.columns[2:], Column("device", "text")]
        for row, cells in zip(comparison.rows, results.rows, strict=True):
            metric = replace(cells[1], note=f"{row.metric.label} {cells[1].note}") if row.metric else cells[1]
            rows.append([Cell(row.experiment), cells[0], metric, *cells[2:], Cell(table.device(comparison))])
    for name, reason in left_out:
        rows.append([Cell(name), Cell(), Cell(reason), *[Cell()] * (len(columns) - 3)])
    made = Table(columns, rows)
    return made.latex() if form == "latex" else made.markdown()


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    options.add_argument("--format", choices=FORMATS, default="markdown", help="markdown unless given")
    given = options.parse_args()
    comparisons, left_out = [], []
    for folder in given.folders:
        if not folder.is_dir():
            options.error(f"{folder} is not a folder")
        try:
            comparisons.append(read_record(Comparison, folder / COMPARISON))
        except ValueError as error:
            missing = not (folder / COMPARISON).exists()
            left_out.append((folder.name, f"no {COMPARISON}: it did not finish" if missing else str(error)))
    print(overview(comparisons, given.format, left_out))


if __name__ == "__main__":
    main()

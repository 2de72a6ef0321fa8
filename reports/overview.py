"""One table over several comparisons: python -m reports.overview FOLDER...

Each FOLDER is that of an experiment, with the comparison.json that `train.compare` wrote. An experiment
without one is a row that says so.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.pages import table
from reports.records.files import read_json

FORMATS = ("markdown", "latex", "csv")
TEXTS = 2  # columns before the figures: experiment, precision
Entry = tuple[str, Mapping[str, Any] | None]


def overview(entries: Sequence[Entry], form: str = "markdown") -> str:
    """The table of experiments by name, in one of `FORMATS`; a row for each precision, its metric named in its cell.

    As csv it is data: the columns and the digits of each experiment's results.csv.
    """
    if form == "csv":
        return table.as_csv(*(comparison for _, comparison in entries if comparison)).rstrip("\n")
    titles, rows = cells(entries)
    if form == "latex":
        return _latex(titles, rows)
    lines = [titles, [*[":--"] * TEXTS, *["--:"] * (len(titles) - TEXTS)], *rows]
    return "\n".join(table.line(texts) for texts in lines)


def cells(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows as texts."""
    rows: list[list[str]] = []
    titles: list[str] = []
    for name, comparison in entries:
        if comparison is None:
            rows.append([name, table.MISSING, "no comparison.json: it did not finish"])
            continue
        precision, metric, *others = table.header(comparison)
        titles = ["experiment", precision, "metric", *others, "device"]
        device = table.name_of_device(comparison)
        for row in comparison["rows"]:
            precision, value, *figures = table.cells(row)
            value = f"{metric} {value}" if row["seeds"] else value
            rows.append([comparison["experiment"], precision, value, *figures, device])
    titles = titles or ["experiment", "precision", "metric"]
    return titles, [row + [table.MISSING] * (len(titles) - len(row)) for row in rows]


def _latex(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A `tabular` for the package booktabs."""
    special = {character: f"\\{character}" for character in "&%$#_{}"} | {"±": r"$\pm$"}
    special |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    lines = [" & ".join("".join(special.get(c, c) for c in text) for text in row) + r" \\" for row in (titles, *rows)]
    head = [rf"\begin{{tabular}}{{{'l' * TEXTS}{'r' * (len(titles) - TEXTS)}}}", r"\toprule", lines[0], r"\midrule"]
    return "\n".join([*head, *lines[1:], r"\bottomrule", r"\end{tabular}"])


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = options.parse_args().folders
    for folder in folders:
        if not folder.is_dir():
            options.error(f"{folder} is not a folder")
    print(overview([(folder.name, read_json(folder / "comparison.json")) for folder in folders]))


if __name__ == "__main__":
    main()

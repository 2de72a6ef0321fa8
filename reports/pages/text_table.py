"""Figures as texts, and tables of them as Markdown and as LaTeX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MISSING = "n/a"  # a figure that was not measured
LATEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}


@dataclass
class Table:
    """Rows of as many texts as there are titles.

    `alignment` has l or r for each column; without it, all but the first are to the right. `links` holds, for each
    row, where its first text leads; empty is nowhere. `orders` are those a reader may choose from in HTML: by name, the
    place of each row.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    alignment: str = ""
    links: Sequence[str] = ()
    orders: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alignment = self.alignment or "l" + "r" * (len(self.titles) - 1)
        self.links = self.links or [""] * len(self.rows)

    def markdown(self) -> str:
        """With its links."""
        pairs = zip(self.rows, self.links, strict=True)
        rows = [[f"[{first}]({link})" if link else first, *others] for (first, *others), link in pairs]
        rules = [":--" if letter == "l" else "--:" for letter in self.alignment]
        # Line breaks and bars of a text would end the row or the cell.
        lines = [[" ".join(text.split()).replace("|", "\\|") for text in row] for row in (self.titles, rules, *rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def latex(self) -> str:
        r"""A `tabular` for the package booktabs."""
        escaped = [["".join(LATEX.get(c, c) for c in text) for text in row] for row in (self.titles, *self.rows)]
        head, *lines = [" & ".join(row) + r" \\" for row in escaped]
        begin = [rf"\begin{{tabular}}{{{self.alignment}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}"])


def number(value: float | None, decimals: int = 0, unit: str = "", signed: bool = False) -> str:
    """`value` with thousands apart and its unit; % and x stand close to the number."""
    if value is None:
        return MISSING
    return f"{value:{'+' if signed else ''},.{decimals}f}{unit if unit in ('', '%', 'x') else f' {unit}'}"

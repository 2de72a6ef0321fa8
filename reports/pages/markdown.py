"""Texts as Markdown tables."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], alignment: str = "") -> str:
    """`alignment` has l or r for each column; without it, all but the first are to the right."""
    alignment = alignment or "l" + "r" * (len(titles) - 1)
    rules = [":--" if letter == "l" else "--:" for letter in alignment]
    return "\n".join(map(line, [titles, rules, *rows]))


def line(texts: Sequence[str]) -> str:
    """One row. Line breaks and bars of a text would end the row or the cell."""
    return "| " + " | ".join(" ".join(text.split()).replace("|", "\\|") for text in texts) + " |"

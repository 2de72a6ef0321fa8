"""Texts of records and tables as HTML: their addresses as links, their code spans as code."""

import re

from markupsafe import Markup, escape

ADDRESS = re.compile(r"(https?://[^\s<>\"]+)")
CODE = re.compile(r"`([^`]+)`")


def linked(text: str) -> Markup:
    """`text`, each address in it a link, and the rest as it is."""
    found = Markup("")
    for place, part in enumerate(ADDRESS.split(text)):
        if place % 2:
            address = _without_punctuation(part)
            found += Markup('<a href="{0}">{0}</a>').format(address) + part[len(address) :]
        else:
            found += escape(part)
    return found


def coded(text: str) -> Markup:
    """`text` with what stands between backticks as <code>."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def _without_punctuation(address: str) -> str:
    """An address without what ends the sentence or closes the bracket that it stands in."""
    while address[-1] in ".,;:" or (address[-1] == ")" and address.count(")") > address.count("(")):
        address = address[:-1]
    return address

"""HTML and SVG as a tree of elements: text goes in as it is, and no text can break out of its place."""

from __future__ import annotations

import re
from typing import Final
from xml.etree.ElementTree import Element, tostring

__all__ = ["Child", "Element", "element", "legible", "markup"]

Child = Element | str | None

# Control characters, halves of surrogate pairs and code points that are no characters may not stand in HTML. Marks that
# turn the direction of writing are kept out too: with them a name could rearrange the text around it.
_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


def legible(text: str) -> str:
    """`text` with � for every character that a page may not hold."""
    return _UNFIT.sub("\ufffd", text)


def element(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """An element with `children` (None: left out) and `attributes` (None: left out).

    In an attribute's name `_` stands for `-`, and one at the end, as in `class_`, for nothing.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), legible(str(value)))
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                made.text = (made.text or "") + legible(child)
            else:
                last.tail = (last.tail or "") + legible(child)
        elif child is not None:
            made.append(child)
            last = child
    return made


def markup(root: Element) -> str:
    """`root` as HTML text."""
    return tostring(root, encoding="unicode", method="html")

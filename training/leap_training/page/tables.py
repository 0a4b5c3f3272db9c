"""Tables: of figures, and a matrix of cells shaded by their weight. What is wider than the window scrolls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from leap_training.page.charts import shortened
from leap_training.page.elements import Element, element

# Characters of a name at the edge of a matrix; what is longer loses its middle.
HEAD_LENGTH: Final = 28
HEAT_STEPS: Final = 5


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    number: bool = True
    """Numbers stand at the right."""


@dataclass(frozen=True)
class HeatCell:
    """A cell of a matrix."""

    text: str
    weight: float = 0.0
    """How strongly it is shaded, 0 to 1."""
    title: str | None = None
    """More about it, shown when the pointer rests on it."""


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Element:
    """A table whose first column names the row."""
    kinds = ["number" if column.number else None for column in columns]
    return _scrolled(
        caption,
        [element("th", column.name, scope="col", class_=kind) for column, kind in zip(columns, kinds, strict=True)],
        [_row(row, kinds) for row in rows],
    )


def heat_table(
    name: str,
    caption: str,
    corner: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[HeatCell | None]],
) -> Element:
    """A matrix of printed values, shaded by their weight; None: an empty cell."""
    return _scrolled(
        caption,
        [element("th", corner, scope="col"), *(_head(column, "col", class_="upright") for column in columns)],
        [
            element("tr", _head(row, "row"), *(_cell(cell) for cell in line))
            for row, line in zip(rows, cells, strict=True)
        ],
        name,
        "heat",
    )


def _scrolled(
    caption: str, heads: Iterable[Element], rows: Iterable[Element], name: str | None = None, class_: str | None = None
) -> Element:
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *heads)),
            element("tbody", *rows),
            class_=class_,
        ),
        class_="scroll",
        id=name,
        # A box that scrolls must be within reach of the keyboard.
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def _row(cells: Sequence[str], kinds: Sequence[str | None]) -> Element:
    head, *rest = cells
    return element(
        "tr",
        element("th", element("bdi", head), scope="row", class_=kinds[0]),
        *(element("td", element("bdi", cell), class_=kind) for cell, kind in zip(rest, kinds[1:], strict=True)),
    )


def _head(name: str, scope: str, class_: str | None = None) -> Element:
    short = shortened(name, HEAD_LENGTH)
    return element("th", element("bdi", short), scope=scope, class_=class_, title=None if short == name else name)


def _cell(cell: HeatCell | None) -> Element:
    if cell is None:
        return element("td")
    step = math.ceil(HEAT_STEPS * min(max(cell.weight, 0.0), 1.0))
    return element("td", cell.text, class_=f"heat-{step}", title=cell.title)

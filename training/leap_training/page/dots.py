"""Charts of points with intervals: one row for each thing compared, and in it one mark for each series.

Unlike bars, points need no zero: the scale reaches over what is shown, so that 97 and 99 % can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from leap_training.page.charts import AXIS, BAR_HEIGHT, ROW, chart_of_rows, finite, keys
from leap_training.page.elements import Element, element
from leap_training.page.scales import Scale

Shape = Literal["disc", "ring", "diamond", "stroke"]

# Around (0, 0), in pixels.
_SHAPES: Final[Mapping[Shape, str]] = {
    "disc": "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "ring": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "diamond": "M-5 0L0-5L5 0L0 5z",
    "stroke": "M0-7V7",
}


@dataclass(frozen=True)
class Mark:
    """How the points of one series are drawn. Shapes differ as well as colours."""

    name: str
    paint: str
    """Class of the style sheet: `hue-1` to `hue-7`, `other`, `placed`."""
    shape: Shape = "disc"


@dataclass(frozen=True)
class Dot:
    """A point, with the interval around it where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DotRow:
    """A row of points, one for each mark, in their order; None: there is no such figure."""

    label: str
    text: str
    """Printed at the right, above the points."""
    dots: tuple[Dot | None, ...]


@dataclass(frozen=True)
class Reference:
    """A value that the points are held against, or the stretch of values from `value` to `until`."""

    value: float
    until: float | None = None


def dots(
    name: str,
    title: str,
    description: str,
    marks: Sequence[Mark],
    rows: Sequence[DotRow],
    unit: Callable[[float], str],
    references: Sequence[Reference] = (),
) -> Element:
    """Points with intervals on one scale. `name` is unique in the page; `unit` writes a value of the scale.

    Raises:
        ValueError: a value is not finite, or a row has not one point, or None, for each mark.
    """
    held = [
        value
        for row in rows
        for dot in row.dots
        if dot is not None
        for value in (dot.value, dot.low, dot.high)
        if value is not None and finite(value, row.label)
    ]
    scale = Scale(_with_room([*held, *(end for each in references for end in _ends(each))]), zero=False)
    drawn = chart_of_rows(
        name, title, description, scale, unit, [(row.label, row.text, _row(row, marks, scale, unit)) for row in rows]
    )
    # Behind the rows, and in front of the title and its description.
    for place, each in enumerate(references, start=2):
        drawn.insert(place, _reference(each, scale, AXIS + ROW * len(rows)))
    return drawn


def legend_of_marks(marks: Iterable[Mark]) -> Element:
    """What the marks of a chart mean."""
    return keys((_key(mark), element("bdi", mark.name)) for mark in marks)


def _key(mark: Mark) -> Element:
    shape = element("svg", _shape(mark), x=8, y=8, class_="dot")
    return element("svg", shape, width=16, height=16, aria_hidden="true", class_="key")


def _with_room(values: Sequence[float]) -> list[float]:
    """`values`, and a little beyond them: a point at the very edge would be cut."""
    if not values:
        return [0.0, 1.0]
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    around = 0.05 * size if size > 1e-9 else 0.5  # where all are alike
    room = 0.025 * (high - low) if high - low > 1e-9 * max(size, 1.0) else around
    return [*values, low - room, high + room]


def _ends(reference: Reference) -> list[float]:
    return [reference.value] if reference.until is None else [reference.value, reference.until]


def _reference(reference: Reference, scale: Scale, height: int) -> Element:
    x = scale.at(reference.value)
    if reference.until is None:
        return element("line", x1=x, x2=x, y1=AXIS - 8, y2=height, class_="reference")
    width = scale.wide(reference.until - reference.value)
    return element("rect", x=x, width=width, y=AXIS - 8, height=height - AXIS + 8, class_="stretch")


def _row(row: DotRow, marks: Sequence[Mark], scale: Scale, unit: Callable[[float], str]) -> list[Element]:
    middle = BAR_HEIGHT / 2
    drawn = [element("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="track")]
    points = [(mark, dot) for mark, dot in zip(marks, row.dots, strict=True) if dot is not None]
    for mark, dot in reversed(points):  # the first series lies on top
        if dot.low is not None and dot.high is not None:
            low, high = scale.at(dot.low), scale.at(dot.high)
            drawn.append(
                element("g", element("line", x1=low, x2=high, y1=middle, y2=middle, class_="span"), class_=mark.paint)
            )
    for mark, dot in reversed(points):
        drawn.append(
            element(
                "svg",
                element("title", f"{row.label}, {mark.name}: {unit(dot.value)}"),
                _shape(mark),
                x=scale.at(dot.value),
                y=middle,
                class_="dot",
            )
        )
    return drawn


def _shape(mark: Mark) -> Element:
    return element("path", d=_SHAPES[mark.shape], class_=f"{mark.shape} {mark.paint}")

"""Charts: horizontal bars with intervals, and stacked bars.

They are SVG as wide as the window lets them be: positions along the scale are in per cent, heights and letters in
pixels, so that text stays readable at any width. What a bar is and what it amounts to stand above it. Colours are
classes of the page's style sheet; whatever a colour says, a key letter, the order or a printed number says as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from leap_training.page.elements import Child, Element, element
from leap_training.page.scales import Scale

# Pixels. A row is a line of text and a bar below it.
AXIS: Final = 24
ROW: Final = 42
TEXT_BASELINE: Final = 13
BAR_TOP: Final = 18
BAR_HEIGHT: Final = 14
# Share of the width that a label may take; the rest is for the text at the right.
LABEL_WIDTH: Final = 0.6
# Characters of a label; what is longer loses its middle.
LABEL_LENGTH: Final = 40
# Shares of the width that a part must have for its key, and for its key and size, in a window of 400 pixels.
ROOM_FOR_KEY: Final = 0.04
ROOM_FOR_SIZE: Final = 0.13


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to `value` with a whisker from `low` to `high`; None: there is no such figure."""

    label: str
    text: str
    """Printed at the right, above the bar."""
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """What the parts of one colour have in common."""

    name: str
    paint: str
    """Class of the style sheet: `hue-1` to `hue-7`, `lead`, `other`, `wasted`, `placed`, `apart`."""
    key: str = ""
    """Letter that is printed in the parts that have room for it."""


@dataclass(frozen=True)
class Stack:
    """A bar of parts, one for each series, in their order."""

    label: str
    text: str
    """Printed at the right, above the bar."""
    parts: tuple[float, ...]


def bars(
    name: str,
    title: str,
    description: str,
    rows: Sequence[Bar],
    unit: Callable[[float], str],
    paint: str = "wasted",
) -> Element:
    """Bars with intervals on one scale, painted as `paint` (a class of the style sheet, as of a series).

    `name` is unique in the page; `unit` writes a value of the scale.

    Raises:
        ValueError: a value is not finite.
    """
    scale = Scale(
        value
        for row in rows
        for value in (row.value, row.low, row.high)
        if value is not None and finite(value, row.label)
    )
    return chart_of_rows(
        name, title, description, scale, unit, [(row.label, row.text, _bar(row, scale, paint)) for row in rows]
    )


def stacks(
    name: str,
    title: str,
    description: str,
    series: Sequence[Series],
    rows: Sequence[Stack],
    unit: Callable[[float], str],
) -> Element:
    """Stacked bars on one scale. `name` is unique in the page; `unit` writes a value of the scale.

    Raises:
        ValueError: a part is negative or not finite, or a row has not one part for each series.
    """
    for row in rows:
        if any(part < 0 for part in row.parts if finite(part, row.label)):
            raise ValueError(f"the parts of a stacked bar must be ≥ 0, got {row.parts} for {row.label!r}")
    scale = Scale(sum(row.parts) for row in rows)
    return chart_of_rows(
        name, title, description, scale, unit, [(row.label, row.text, _stack(row, series, scale, unit)) for row in rows]
    )


def legend(series: Iterable[Series]) -> Element:
    """What the colours and keys of a stacked chart mean."""
    return keys((_swatch(each), f"{each.key} " if each.key else None, element("bdi", each.name)) for each in series)


def keys(entries: Iterable[tuple[Child, ...]]) -> Element:
    """A legend of entries, each what is shown and what it means."""
    return element("ul", *(element("li", *entry) for entry in entries), class_="legend")


def shortened(label: str, length: int = LABEL_LENGTH) -> str:
    """`label` with its middle left out where it has more than `length` characters."""
    if len(label) <= length:
        return label
    end = (length - 1) // 3
    return f"{label[: length - 1 - end]}…{label[-end:]}"


def framed(name: str, title: str, description: str, height: int, *drawn: Child) -> Element:
    """A chart of `height` pixels as wide as there is room. `name` is unique in the page."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *drawn,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=height,
        class_="chart",
    )


def chart_of_rows(
    name: str,
    title: str,
    description: str,
    scale: Scale,
    unit: Callable[[float], str],
    rows: Sequence[tuple[str, str, list[Element]]],
) -> Element:
    """A chart of rows on one scale: (label, text at the right, what is drawn below them)."""
    height = AXIS + ROW * len(rows)
    return framed(
        name,
        title,
        description,
        height,
        *_axis(scale, unit, height),
        *(_row(AXIS + ROW * number, *row) for number, row in enumerate(rows)),
    )


def _axis(scale: Scale, unit: Callable[[float], str], height: int) -> list[Element]:
    drawn = []
    for tick in scale.ticks():
        x = scale.at(tick)
        along = scale.along(tick)
        anchor = "start" if along < 0.03 else "end" if along > 0.95 else "middle"
        drawn.append(element("line", x1=x, x2=x, y1=AXIS - 8, y2=height, class_="base" if tick == 0 else "grid"))
        drawn.append(element("text", unit(tick), x=x, y=AXIS - 12, text_anchor=anchor, class_="tick"))
    return drawn


def _row(top: int, label: str, text: str, drawn: list[Element]) -> Element:
    return element(
        "g",
        element("title", f"{label}: {text}"),
        # An svg of its own cuts off what is too wide for it.
        element(
            "svg",
            element("text", shortened(label), y=TEXT_BASELINE, class_="label"),
            y=top,
            width=f"{LABEL_WIDTH:.0%}",
            height=BAR_TOP,
        ),
        element("text", text, x="100%", y=top + TEXT_BASELINE, text_anchor="end", class_="value"),
        element("svg", *drawn, y=top + BAR_TOP, width="100%", height=BAR_HEIGHT, class_="bar"),
        class_="row",
    )


def _bar(bar: Bar, scale: Scale, paint: str) -> list[Element]:
    if bar.value is None:
        return []
    drawn = [
        element(
            "rect",
            x=scale.at(min(bar.value, 0)),
            y=1,
            width=scale.wide(abs(bar.value)),
            height=BAR_HEIGHT - 2,
            class_=paint,
        )
    ]
    if bar.low is not None and bar.high is not None:
        low, high, middle = scale.at(bar.low), scale.at(bar.high), BAR_HEIGHT / 2
        drawn.extend(
            element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="whisker")
            for x1, x2, y1, y2 in (
                (low, high, middle, middle),
                (low, low, 2, BAR_HEIGHT - 2),
                (high, high, 2, BAR_HEIGHT - 2),
            )
        )
    return drawn


def _stack(row: Stack, series: Sequence[Series], scale: Scale, unit: Callable[[float], str]) -> list[Element]:
    drawn = []
    begin = 0.0
    for each, part in zip(series, row.parts, strict=True):
        if part > 0:
            room = part / scale.high
            said: Child = None
            if each.key and room >= ROOM_FOR_KEY:
                said = element(
                    "text",
                    f"{each.key} {unit(part)}" if room >= ROOM_FOR_SIZE else each.key,
                    x=scale.at(begin + part / 2),
                    y=BAR_HEIGHT - 3.5,
                    text_anchor="middle",
                )
            drawn.append(
                element(
                    "g",
                    element("title", f"{row.label}, {each.name}: {unit(part)}"),
                    element("rect", x=scale.at(begin), width=scale.wide(part), y=0.5, height=BAR_HEIGHT - 1),
                    said,
                    class_=each.paint,
                )
            )
            begin += part
    return drawn


def _swatch(series: Series) -> Element:
    return element(
        "svg",
        element("g", element("rect", x=0.5, y=0.5, width=13, height=11), class_=series.paint),
        width=14,
        height=12,
        aria_hidden="true",
    )


def finite(value: float, label: str) -> bool:
    """Whether the chart can show `value`: true, or a ValueError."""
    if not math.isfinite(value):
        raise ValueError(f"what a chart shows must be a finite number, got {value} for {label!r}")
    return True

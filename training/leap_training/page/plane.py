"""Planes: what lies over two axes, as lines with bands around them or as density where there are too many points.

The middle of a plane is stretched to the room there is; letters are not. A density is drawn as one path for each step
of its shades, so that a million points take no more of a page than a thousand.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from leap_training.page.charts import finite, framed, keys, shortened
from leap_training.page.elements import Child, Element, element
from leap_training.page.numbers import count
from leap_training.page.scales import Axis

# Pixels.
HEIGHT: Final = 300
ABOVE: Final = 24
BELOW: Final = 40
# Share of the width that the marks of the upright axis take.
LEFT: Final = 0.11
MARK_LENGTH: Final = 11
# A curve of more points than this shows no dots.
DOTS: Final = 45
# Points in a cell from which on it has the next shade.
SHADES: Final = (1, 3, 10, 100, 1000)


@dataclass(frozen=True)
class Line:
    """Points joined by a line; None parts it. A band reaches from `low` to `high` where these are given."""

    name: str
    paint: str
    """Class of the style sheet: `hue-1` to `hue-7`, `other`."""
    points: tuple[tuple[float, float | None], ...]
    low: tuple[float | None, ...] = ()
    """One for each point."""
    high: tuple[float | None, ...] = ()
    dash: str = ""
    """Class of the style sheet: `dashed`, `dotted`, or none for a whole line."""
    said: tuple[str, ...] = ()
    """What is shown on pointing at each point."""


@dataclass(frozen=True)
class Density:
    """How many points lie in each cell of a grid that fills the plane. Cells without any are left out."""

    columns: int
    rows: int
    counts: Mapping[tuple[int, int], int]
    """By (column, row), from the lower left."""


@dataclass(frozen=True)
class Rule:
    """A straight line that the eye is led by, in the values of the axes."""

    begin: tuple[float, float]
    end: tuple[float, float]
    strong: bool = False


def plane(
    name: str,
    title: str,
    description: str,
    across: Axis,
    up: Axis,
    layers: Sequence[Line | Density | Rule],
    height: int = HEIGHT,
) -> Element:
    """`layers` over two axes, the first lowest. `name` is unique in the page; `height` is that of the plane, in pixels.

    Raises:
        ValueError: a value is not finite.
    """
    return framed(
        name,
        title,
        description,
        ABOVE + height + BELOW,
        element("text", up.title, y=12, class_="tick"),
        *_marks_up(up, height),
        *_marks_across(across, height),
        element(
            "svg",
            *(part for layer in layers for part in _layer(layer, across, up, height)),
            x=_share(LEFT),
            y=ABOVE,
            width=_share(1 - LEFT),
            height=height,
            class_="plane",
        ),
    )


def legend_of_lines(lines: Iterable[Line]) -> Element:
    """What the lines mean."""
    return keys(
        (
            _sample(element("line", x1=0, x2=26, y1=6, y2=6, class_=_classes("curve", line)), 26),
            element("bdi", line.name),
        )
        for line in lines
    )


def legend_of_shades(what: str) -> Element:
    """How many there are of `what` in a cell of each shade; in the singular."""
    uppers = [*(following - 1 for following in SHADES[1:]), None]
    texts = [
        f"{count(low)} or more"
        if high is None
        else count(low, what)
        if low == high
        else f"{count(low)} to {count(high)}"
        for low, high in zip(SHADES, uppers, strict=True)
    ]
    return keys(
        (_sample(element("rect", width=14, height=12, class_=f"shade-{step}"), 14), text)
        for step, text in enumerate(texts, start=1)
    )


def _sample(drawn: Element, width: int) -> Element:
    return element("svg", drawn, width=width, height=12, aria_hidden="true")


def _marks_up(axis: Axis, height: int) -> Iterator[Element]:
    for value, text in axis.marks:
        y = ABOVE + height * (1 - axis.along(value))
        yield element("line", x1=_share(LEFT), x2="100%", y1=_px(y), y2=_px(y), class_="grid")
        yield element("text", text, x=_share(LEFT - 0.015), y=_px(y + 4), text_anchor="end", class_="tick")


def _marks_across(axis: Axis, height: int) -> Iterator[Element]:
    bottom = ABOVE + height
    for value, text in axis.marks:
        along = axis.along(value)
        x = _share(LEFT + (1 - LEFT) * along)
        anchor = "end" if along > 0.96 else "middle"
        yield element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="grid")
        yield element("text", shortened(text, MARK_LENGTH), x=x, y=bottom + 16, text_anchor=anchor, class_="tick")
    yield element("text", axis.title, x="100%", y=bottom + 34, text_anchor="end", class_="tick")


def _layer(layer: Line | Density | Rule, across: Axis, up: Axis, height: int) -> Iterator[Element]:
    match layer:
        case Line():
            yield from _line(layer, across, up, height)
        case Density():
            yield _density(layer)
        case Rule():
            (x1, y1), (x2, y2) = layer.begin, layer.end
            yield element(
                "line",
                x1=_share(across.along(x1)),
                x2=_share(across.along(x2)),
                y1=_px(height * (1 - up.along(y1))),
                y2=_px(height * (1 - up.along(y2))),
                class_="rule strong" if layer.strong else "rule",
            )


def _line(line: Line, across: Axis, up: Axis, height: int) -> Iterator[Element]:
    # In thousandths of the plane, which is stretched over the room there is.
    def place(x: float, y: float) -> tuple[float, float]:
        return 1000 * across.along(x), 1000 * (1 - up.along(y))

    if line.low or line.high:
        band = [
            None if low is None or high is None else (place(x, low), place(x, high))
            for (x, _), low, high in zip(line.points, line.low, line.high, strict=True)
        ]
        areas = [
            _path([*(low for low, _ in run), *(high for _, high in reversed(run))]) + "z"
            for run in _runs(band)
            if len(run) > 1
        ]
        yield _stretched(element("path", d="".join(areas), class_=f"band {line.paint}"))
    places = [None if y is None or not finite(y, line.name) else place(x, y) for x, y in line.points]
    curve = "".join(_path(run) for run in _runs(places) if len(run) > 1)
    yield _stretched(element("path", d=curve, class_=_classes("curve", line)))
    if len(places) > DOTS:
        return
    for at, said in zip(places, line.said or [""] * len(places), strict=True):
        if at is not None:
            yield element(
                "circle",
                element("title", said) if said else None,
                cx=_share(at[0] / 1000),
                cy=_px(height * at[1] / 1000),
                r=3,
                class_=line.paint,
            )


def _density(density: Density) -> Element:
    paths: defaultdict[int, list[str]] = defaultdict(list)
    for row in range(density.rows):
        shades = [_shade(density.counts.get((column, row), 0)) for column in range(density.columns)]
        edges = [
            0,
            *(place for place, (before, after) in enumerate(pairwise(shades), 1) if before != after),
            len(shades),
        ]
        for begin, end in pairwise(edges):  # neighbours of one shade are drawn as one
            if shades[begin]:
                paths[shades[begin]].append(f"M{begin} {density.rows - 1 - row}h{end - begin}v1h{begin - end}z")
    return _stretched(
        *(element("path", d="".join(parts), class_=f"shade-{shade}") for shade, parts in sorted(paths.items())),
        columns=density.columns,
        rows=density.rows,
        class_="density",
    )


def _shade(number: int) -> int:
    return sum(number >= least for least in SHADES)


def _stretched(*drawn: Child, columns: int = 1000, rows: int = 1000, class_: str | None = None) -> Element:
    return element(
        "svg",
        *drawn,
        viewBox=f"0 0 {columns} {rows}",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
        class_=class_,
    )


def _runs(places: Iterable[object]) -> Iterator[list]:  # type: ignore[type-arg]
    run: list[object] = []
    for place in [*places, None]:
        if place is not None:
            run.append(place)
        elif run:
            yield run
            run = []


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _classes(kind: str, line: Line) -> str:
    return " ".join(filter(None, (kind, line.paint, line.dash)))


def _share(share: float) -> str:
    return f"{100 * share:.2f}%"


def _px(pixels: float) -> str:
    if not math.isfinite(pixels):
        raise ValueError(f"what a chart shows must be a finite number, got {pixels}")
    return f"{pixels:.1f}"

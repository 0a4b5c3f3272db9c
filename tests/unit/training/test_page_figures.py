"""Figures of points, lines and densities: what is drawn lies where its numbers say, and nothing is lost."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_tree import Node, parsed
from leap_training.page import (
    Axis,
    Density,
    Dot,
    DotRow,
    Line,
    Mark,
    Reference,
    Rule,
    dots,
    legend_of_lines,
    legend_of_marks,
    legend_of_shades,
    plane,
    short,
)
from leap_training.page.elements import Element, markup
from leap_training.page.plane import SHADES

MARKS = (Mark("first", "lead", "disc"), Mark("second", "other", "ring"))
finite = st.floats(min_value=-1e9, max_value=1e9)


def tree(drawn: Element) -> Node:
    return parsed(markup(drawn))


def share(length: str) -> float:
    return float(length.removesuffix("%")) / 100


def points(row: Node) -> list[float]:
    return [share(dot.attributes["x"]) for dot in row.find("svg", "dot")]


def unit_axis(*, high: float = 1.0) -> Axis:
    return Axis(0.0, high, ())


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=6))
def test_points_lie_in_the_order_of_their_values_and_within_the_chart(values: list[tuple[float, float]]) -> None:
    rows = [DotRow("row", "", (Dot(first), Dot(second))) for first, second in values]
    chart = tree(dots("chart", "Title", "", MARKS, rows, str))
    places = {
        value: place
        for pair, row in zip(values, chart.find("g", "row"), strict=True)
        # The first series is drawn last, so that it lies on top.
        for value, place in zip(reversed(pair), points(row), strict=True)
    }
    assert all(0 < place < 1 for place in places.values())
    in_order = [places[value] for value in sorted(places)]
    assert in_order == sorted(in_order)


def test_an_interval_reaches_from_its_low_to_its_high_end() -> None:
    rows = [DotRow("row", "", (Dot(50, 0, 100), None))]
    (row,) = tree(dots("chart", "Title", "", MARKS, rows, str)).find("g", "row")
    (span,) = row.find("line", "span")
    low, high = share(span.attributes["x1"]), share(span.attributes["x2"])
    assert points(row) == [pytest.approx((low + high) / 2, abs=1e-4)]
    assert high - low == pytest.approx(1 / 1.05, abs=1e-4)


def test_a_row_without_points_is_named_and_shows_none() -> None:
    rows = [DotRow("tabpfn", "not run", (None, None)), DotRow("leap", "80", (Dot(80), None))]
    absent, judged = tree(dots("chart", "Title", "", MARKS, rows, str)).find("g", "row")
    assert (points(absent), len(points(judged))) == ([], 1)
    assert [text.text for text in absent.find("text")] == ["tabpfn", "not run"]


def test_a_point_says_its_row_series_and_value_on_pointing_at_it() -> None:
    chart = tree(dots("chart", "Title", "", MARKS, [DotRow("leap", "", (Dot(80), Dot(70)))], str))
    assert [dot.find("title")[0].text for dot in chart.find("svg", "dot")] == ["leap, second: 70", "leap, first: 80"]


def test_references_are_drawn_behind_the_rows() -> None:
    rows = [DotRow("row", "", (Dot(50), None))]
    chart = tree(dots("chart", "Title", "", MARKS, rows, str, [Reference(70, 90), Reference(80)]))
    (picture,) = chart.find("svg", "chart")
    classes = [node.attributes.get("class") for node in picture.children if isinstance(node, Node)]
    assert classes.index("stretch") < classes.index("row")
    assert classes.index("reference") < classes.index("row")
    (stretch,), (line,) = chart.find("rect", "stretch"), chart.find("line", "reference")
    begin, width = share(stretch.attributes["x"]), share(stretch.attributes["width"])
    assert share(line.attributes["x1"]) == pytest.approx(begin + width / 2, abs=1e-4)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_point_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"must be a finite number, got (nan|inf) for 'leap'"):
        dots("chart", "Title", "", MARKS, [DotRow("leap", "", (Dot(1.0, value), None))], str)
    with pytest.raises(ValueError, match=r"must be a finite number, got (nan|inf) for 'leap'"):
        plane("chart", "", "", unit_axis(), unit_axis(), [Line("leap", "lead", ((0.0, value),))])
    with pytest.raises(ValueError, match=r"must be a finite number, got (nan|-?inf)"):
        plane("chart", "", "", unit_axis(), unit_axis(), [Rule((0, value), (1, 1))])


def test_a_row_needs_a_point_or_none_for_every_mark() -> None:
    with pytest.raises(ValueError, match="zip"):
        dots("chart", "Title", "", MARKS, [DotRow("row", "", (Dot(1.0),))], str)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)])
def test_an_axis_that_goes_nowhere_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="must go from a finite number to a greater one"):
        Axis(low, high, ())


def test_axes_have_round_marks() -> None:
    assert [text for _, text in Axis.linear(80, 100, str).marks] == ["80.0", "85.0", "90.0", "95.0", "100.0"]
    assert [text for _, text in Axis.decades(-1, 3, short).marks] == ["0.1", "1", "10", "100", "1k"]
    assert [text for _, text in Axis.decades(-2, 8, short).marks] == ["0.01", "1", "100", "10k", "1M", "100M"]
    assert [text for _, text in Axis.names(["a", "b", "c", "d", "e"], 3).marks] == ["a", "c", "e"]
    one = Axis.names(["only"], 3)
    assert one.low < 0 < one.high


def test_a_line_breaks_where_it_has_no_value() -> None:
    line = Line("leap", "lead", ((0.0, 0.0), (0.25, 0.5), (0.5, None), (0.75, 0.5), (1.0, 1.0)), said=tuple("abcde"))
    chart = tree(plane("chart", "Title", "", unit_axis(), unit_axis(), [line]))
    (curve,) = chart.find("path", "curve")
    assert curve.attributes["d"] == "M0.0 1000.0L250.0 500.0M750.0 500.0L1000.0 0.0"
    assert [circle.find("title")[0].text for circle in chart.find("circle")] == ["a", "b", "d", "e"]
    assert [circle.attributes["cx"] for circle in chart.find("circle")] == ["0.00%", "25.00%", "75.00%", "100.00%"]


def test_a_band_goes_along_its_low_ends_and_back_along_its_high_ones() -> None:
    line = Line("leap", "lead", ((0.0, 0.5), (1.0, 0.5)), low=(0.25, 0.0), high=(0.75, 1.0))
    chart = tree(plane("chart", "Title", "", unit_axis(), unit_axis(), [line]))
    (band,) = chart.find("path", "band")
    assert band.attributes["d"] == "M0.0 750.0L1000.0 1000.0L1000.0 0.0L0.0 250.0z"


cells = st.dictionaries(st.tuples(st.integers(0, 11), st.integers(0, 7)), st.integers(1, 5000), max_size=60)


@given(cells)
def test_a_density_shades_every_cell_by_its_count_and_no_other(counts: dict[tuple[int, int], int]) -> None:
    drawn = tree(plane("chart", "", "", unit_axis(), unit_axis(), [Density(12, 8, counts)]))
    (density,) = drawn.find("svg", "density")
    assert density.attributes["viewbox"] == "0 0 12 8"
    shades: Counter[tuple[int, int]] = Counter()
    for path in density.find("path"):
        shade = int(path.attributes["class"].removeprefix("shade-"))
        for left, top, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.attributes["d"]):
            for column in range(int(left), int(left) + int(width)):
                shades[column, 7 - int(top)] += shade
    assert shades == {cell: sum(number >= least for least in SHADES) for cell, number in counts.items()}


def test_a_rule_goes_through_the_values_of_its_ends() -> None:
    chart = tree(plane("chart", "", "", unit_axis(high=4.0), unit_axis(), [Rule((1.0, 0.0), (3.0, 1.0))], height=200))
    (rule,) = chart.find("line", "rule")
    assert [rule.attributes[name] for name in ("x1", "x2", "y1", "y2")] == ["25.00%", "75.00%", "200.0", "0.0"]


def test_a_picture_says_what_it_shows() -> None:
    for chart in (
        dots("one", "A title", "A description", MARKS, [], str),
        plane("two", "A title", "A description", unit_axis(), unit_axis(), []),
    ):
        (picture,) = tree(chart).find("svg", "chart")
        name = picture.attributes["aria-labelledby"].split()[0].removesuffix("-title")
        assert picture.attributes["role"] == "img"
        assert picture.one(f"{name}-title").text == "A title"
        assert picture.one(f"{name}-desc").text == "A description"


def test_legends_name_every_mark_line_and_shade() -> None:
    assert [item.text for item in tree(legend_of_marks(MARKS)).find("li")] == ["first", "second"]
    line = Line("<b>leap</b>", "lead", (), dash="dashed")
    (item,) = tree(legend_of_lines([line])).find("li")
    assert item.text == "<b>leap</b>"
    assert item.find("line")[0].attributes["class"] == "curve lead dashed"
    texts = [item.text for item in tree(legend_of_shades("row")).find("li")]
    assert texts == ["1 to 2", "3 to 9", "10 to 99", "100 to 999", "1,000 or more"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (0.05, "0.05"),
        (0.1, "0.1"),
        (1.0, "1"),
        (1.5, "1.5"),
        (12_345.0, "12.3k"),
        (1e6, "1M"),
        (-20.0, "−20"),
    ],
)
def test_numbers_are_written_short(number: float, text: str) -> None:
    assert short(number) == text


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_a_short_number_is_right_to_three_digits(number: float) -> None:
    text = short(number)
    written = float(text.strip("kMB")) * {"k": 1e3, "M": 1e6, "B": 1e9}.get(text[-1], 1.0)
    assert written == pytest.approx(number, rel=0.0051)

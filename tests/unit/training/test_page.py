"""Pages and charts: foreign text stays text, drawn lengths are the numbers, nothing is fetched or run."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_tree import Node, parsed
from leap_training.page import (
    Bar,
    Column,
    HeatCell,
    Series,
    Stack,
    bars,
    count,
    document,
    element,
    figure,
    heat_table,
    interval,
    legend,
    legible,
    money,
    percent,
    round_money,
    short_money,
    stacks,
    table,
)
from leap_training.page.charts import AXIS, ROW, shortened
from leap_training.page.elements import Element, markup

FOREIGN = [
    "<script>alert(1)</script>",
    "</title></style></svg><img src=x onerror=alert(1)>",
    "\"' onload='x' &amp; &#60; <!-- -->",
    "😀 模型 نموذج 👩‍👩‍👧",
    "a\x00b\x1b[31m\x85c\u202egnp.exe\ud800",
    "]]>" + "x" * 125,
]
SERIES = (Series("first", "hue-1", "A"), Series("second", "hue-2", "B"), Series("third", "other"))
finite = st.floats(min_value=-1e12, max_value=1e12)
amounts = st.floats(min_value=0, max_value=1e12)
SMALLEST = 1e-300  # a scale has no less


def tree(drawn: Element) -> Node:
    return parsed(markup(drawn))


def number(text: str) -> float:
    return float(text.removesuffix("%"))


@pytest.mark.parametrize("text", FOREIGN)
def test_foreign_text_is_text_wherever_it_stands(text: str) -> None:
    html = document(
        text, element("p", text, element("b", text), text, title=text), table(text, [Column(text)], [[text]])
    )
    html.encode()
    root = parsed(html)
    (paragraph,) = root.find("p")
    assert paragraph.text == legible(text) * 3
    assert paragraph.attributes == {"title": legible(text)}
    assert root.find("title")[0].text == legible(text)
    assert root.find("table")[0].rows() == [[legible(text)], [legible(text)]]
    assert {node.tag for node in root.walk()} <= {
        *("document", "html", "head", "meta", "title", "link", "style", "body", "main", "p", "b"),
        *("div", "table", "caption", "thead", "tbody", "tr", "th", "bdi"),
    }


@given(st.text(st.characters(), max_size=200))
def test_any_text_comes_back_as_it_was_but_for_what_a_page_may_not_hold(text: str) -> None:
    root = tree(element("p", text, element("b", text), text, title=text))
    assert root.text == legible(text) * 3
    assert root.find("p")[0].attributes.get("title") == legible(text)


@given(st.characters())
def test_what_is_replaced_is_no_letter_mark_number_or_sign(character: str) -> None:
    kind = unicodedata.category(character)
    if legible(character) != character:
        assert kind in ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")
        assert legible(character) == "\ufffd"
    else:
        assert kind not in ("Cs", "Cc") or character in "\t\n"


def test_a_page_can_fetch_nothing_run_nothing_and_has_its_own_style_alone() -> None:
    root = parsed(document("A page", element("p", "text")))
    (style,) = root.find("style")
    (policy,) = (
        node.attributes["content"] for node in root.find("meta") if "content-security" in str(node.attributes).lower()
    )
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"@import|url\(|http", style.text)
    assert not root.find("script")
    assert [node.attributes["href"] for node in root.walk() if "href" in node.attributes] == ["data:,"]
    assert not [node for node in root.walk() if "style" in node.attributes or "src" in node.attributes]


def test_the_style_has_all_that_charts_may_be_painted_with() -> None:
    style = parsed(document("A page")).find("style")[0].text
    for paint in [*(f"hue-{hue}" for hue in range(1, 8)), "other", "wasted", "placed", "apart"]:
        assert f"svg .{paint} rect" in style
    for step in range(6):
        assert f".heat-{step} " in style


def test_a_chart_says_what_it_is() -> None:
    (svg, *_) = tree(bars("chart", "Title", "Description", [Bar("a", "1", 1.0)], str)).find("svg")
    named = svg.attributes["aria-labelledby"].split()
    assert svg.attributes["role"] == "img"
    assert [svg.one(name).text for name in named] == ["Title", "Description"]
    assert [svg.one(name).tag for name in named] == ["title", "desc"]


def drawn_rows(chart: Node) -> list[Node]:
    return chart.find("g", "row")


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=8))
def test_bars_and_whiskers_are_as_long_as_their_numbers(values: list[tuple[float, float, float]]) -> None:
    rows = [Bar(f"row {place}", "text", *numbers) for place, numbers in enumerate(values)]
    chart = tree(bars("chart", "Title", "", rows, str))
    least, greatest = (pick(0.0, *(pick(numbers) for numbers in values)) for pick in (min, max))
    width = greatest - least if greatest - least >= SMALLEST else 1.0
    for (value, low, high), row in zip(values, drawn_rows(chart), strict=True):
        (rect,) = row.find("rect")
        assert number(rect.attributes["x"]) == pytest.approx(100 * (min(value, 0) - least) / width, abs=1e-3)
        assert number(rect.attributes["width"]) == pytest.approx(100 * abs(value) / width, abs=1e-3)
        line = row.find("line", "whisker")[0]
        assert number(line.attributes["x1"]) == pytest.approx(100 * (low - least) / width, abs=1e-3)
        assert number(line.attributes["x2"]) == pytest.approx(100 * (high - least) / width, abs=1e-3)


def test_a_bar_without_a_number_is_not_drawn_but_named() -> None:
    chart = tree(bars("chart", "Title", "", [Bar("known", "1", 1.0), Bar("unknown", "not enough overlap", None)], str))
    known, unknown = drawn_rows(chart)
    assert (len(known.find("rect")), len(unknown.find("rect"))) == (1, 0)
    assert [text.text for text in unknown.find("text")] == ["unknown", "not enough overlap"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"must be a finite number, got (nan|inf) for 'a model'"):
        bars("chart", "Title", "", [Bar("a model", "", value)], str)
    with pytest.raises(ValueError, match=r"must be a finite number, got (nan|inf) for 'a model'"):
        stacks("chart", "Title", "", SERIES[:1], [Stack("a model", "", (value,))], str)


def test_a_part_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be ≥ 0, got \(1.0, -2.0\) for 'a model'"):
        stacks("chart", "Title", "", SERIES[:2], [Stack("a model", "", (1.0, -2.0))], str)


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=1, max_size=8))
def test_the_parts_of_a_stack_lie_end_to_end_and_are_as_long_as_their_numbers(
    values: list[tuple[float, float, float]],
) -> None:
    rows = [Stack(f"row {place}", "text", parts) for place, parts in enumerate(values)]
    chart = tree(stacks("chart", "Title", "", SERIES, rows, str))
    most = max(map(sum, values))
    most = most if most >= SMALLEST else 1.0
    for parts, row in zip(values, drawn_rows(chart), strict=True):
        begin = 0.0
        rects = row.find("rect")
        for part, rect in zip([part for part in parts if part], rects, strict=True):
            assert number(rect.attributes["x"]) == pytest.approx(100 * begin / most, abs=1e-3)
            assert number(rect.attributes["width"]) == pytest.approx(100 * part / most, abs=1e-3)
            begin += part


def test_a_part_is_told_by_its_key_where_there_is_room() -> None:
    rows = [Stack("row", "text", (0.9, 0.08, 0.02)), Stack("short", "text", (0.0, 0.03, 0.0))]
    chart = tree(stacks("chart", "Title", "", SERIES, rows, lambda share: percent(share, 0)))
    assert [text.text for row in drawn_rows(chart) for text in row.find("text")] == [
        *("row", "text", "A 90\u00a0%", "B"),
        *("short", "text"),
    ]
    assert [item.text for item in tree(legend(SERIES)).find("li")] == ["A first", "B second", "third"]


def tick_values(values: Sequence[float]) -> list[float]:
    chart = tree(bars("chart", "Title", "", [Bar("row", "", value) for value in values], repr))
    return [float(text.text) for text in chart.find("text", "tick")]


def test_marks_of_a_scale_are_round() -> None:
    assert tick_values([0.0]) == [0.0, 0.2, 0.4, pytest.approx(0.6), 0.8, 1.0]
    assert tick_values([7300.0]) == [0, 2000, 4000, 6000]
    assert tick_values([-3.0, 4.0]) == [-2, 0, 2, 4]


@given(st.lists(finite.filter(lambda value: value == 0 or abs(value) > 1e-9), min_size=1, max_size=5))
def test_a_scale_has_a_few_even_marks_within_it_and_one_at_zero(values: list[float]) -> None:
    ticks = tick_values(values)
    low, high = min(0.0, *values), max(0.0, *values)
    high = high if high > low else 1.0
    slack = 1e-6 * (high - low)
    assert 2 <= len(ticks) <= 7
    assert any(abs(tick) <= slack for tick in ticks)
    assert low - slack <= min(ticks)
    assert max(ticks) <= high + slack
    steps = [after - before for before, after in itertools.pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)


def test_rows_lie_below_one_another() -> None:
    chart = tree(bars("chart", "Title", "", [Bar("a", "", 1.0), Bar("b", "", 2.0)], str))
    assert number(chart.find("svg")[0].attributes["height"]) == AXIS + 2 * ROW
    assert [number(label.attributes["y"]) for label in chart.find("svg", "bar")] == [AXIS + 18, AXIS + ROW + 18]


@given(st.text(max_size=200), st.integers(4, 60))
def test_a_long_label_keeps_its_ends(label: str, length: int) -> None:
    short = shortened(label, length)
    assert len(short) <= length
    begin, _, end = short.partition("…")
    assert short == label or (label.startswith(begin) and label.endswith(end or short[-1]))


def test_the_whole_of_a_long_label_is_shown_on_pointing_at_it() -> None:
    name = "a" * 64 + "b" * 64
    (row,) = drawn_rows(tree(bars("chart", "Title", "", [Bar(name, "text", 1.0)], str)))
    assert row.find("title")[0].text == f"{name}: text"
    assert len(row.find("text", "label")[0].text) == 40


def test_a_matrix_prints_every_value_and_shades_by_weight() -> None:
    cells = [[HeatCell("0", 0.0), HeatCell("1", 0.01)], [None, HeatCell("9", 1.0, title="more")]]
    root = tree(heat_table("heat", "Caption", "corner", ["a", "b"], ["x", "y"], cells))
    assert root.find("table")[0].rows() == [["corner", "x", "y"], ["a", "0", "1"], ["b", "", "9"]]
    assert [cell.attributes for cell in root.find("td")] == [
        {"class": "heat-0"},
        {"class": "heat-1"},
        {},
        {"class": "heat-5", "title": "more"},
    ]


def test_long_names_at_the_edge_of_a_matrix_are_shortened_and_told_in_full() -> None:
    root = tree(heat_table("heat", "Caption", "corner", ["r" * 99], ["c" * 99], [[None]]))
    assert [len(head.text) for head in root.find("th")] == [6, 28, 28]
    assert [head.attributes.get("title") for head in root.find("th")] == [None, "c" * 99, "r" * 99]


def test_a_figure_has_its_numbers_beneath_it() -> None:
    root = tree(
        figure("one", "Heading", "Text", element("hr-free", "drawn"), numbers=table("T", [Column("c")], [["1"]]))
    )
    names = [node.tag for node in root.one("one").children if isinstance(node, Node)]
    assert names == ["figcaption", "hr-free", "details"]


@pytest.mark.parametrize(
    ("usd", "full", "short", "round_"),
    [
        (0.0, "$0", "$0", "$0"),
        (0.004, "$0.00", "$0.00", "$0"),
        (1.5, "$1.50", "$1.50", "$1.5"),
        (99.99, "$99.99", "$100", "$100"),
        (99.999, "$100", "$100", "$100"),
        (999.4, "$999", "$999", "$999"),
        (999.6, "$1,000", "$1.00k", "$1k"),
        (12_345.0, "$12,345", "$12.3k", "$12.3k"),
        (999_600.0, "$999,600", "$1.00M", "$1M"),
        (1_200_000.0, "$1,200,000", "$1.20M", "$1.2M"),
        (5e9, "$5,000,000,000", "$5.00B", "$5B"),
        (-20_000.0, "−$20,000", "−$20.0k", "−$20k"),
    ],
)
def test_money_is_written_in_full_in_short_and_for_scales(usd: float, full: str, short: str, round_: str) -> None:
    assert (money(usd), short_money(usd), round_money(usd)) == (full, short, round_)


@given(st.floats(min_value=0.01, max_value=1e14))
def test_short_money_is_right_to_three_digits(usd: float) -> None:
    written = short_money(usd)
    amount = float(written.strip("$kMB")) * {"k": 1e3, "M": 1e6, "B": 1e9}.get(written[-1], 1.0)
    assert amount == pytest.approx(usd, rel=0.0051, abs=0.0051)


def test_shares_and_counts_are_written_with_their_units() -> None:
    assert percent(0.12345) == "12.3\u00a0%"
    assert percent(-0.0001) == "0.0\u00a0%"
    assert percent(0.9, 0) == "90\u00a0%"
    assert interval(0.101, 0.1449) == "10.1–14.5\u00a0%"
    assert (count(1234567), count(1, "job"), count(0, "job")) == ("1,234,567", "1 job", "0 jobs")

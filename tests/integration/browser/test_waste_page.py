"""The page of `leap waste` in a real browser: it opens without a complaint, asks for nothing, and shows its figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chromium import Chromium, Shown
from leap_training.page import percent, short_money
from leap_training.waste.page import page
from leap_training.waste.report import WasteReport
from waste_reports import HARDWARE, MODELS, empty_report, fleet_report

pytestmark = pytest.mark.browser

HARD_NAMES = ["<script>alert(1)</script>", "😀 نموذج تجريبي", "a" * 128, "漢字" * 64, "x'\"&\x00\u202e", *MODELS]
LONG_TYPES = ["W" * 128, *HARDWARE, *(f"custom-accelerator-type-{number}" for number in range(9))]

# The text and the box of every bar, label, printed value and part of the charts, in window coordinates.
FIGURES = """
[...document.querySelectorAll('figure')].map(figure => {
  const box = element => {
    const {left, right, top, bottom, width, height} = element.getBoundingClientRect();
    // A label is cut off at the width of the svg that holds it.
    const clip = element.matches('.row > svg:not(.bar)')
      ? figure.querySelector('.chart').getBoundingClientRect().left + element.width.baseVal.value : Infinity;
    const seen = Math.min(right, clip);
    return {left, seen, top: top + scrollY, bottom: bottom + scrollY, width, height, text: element.textContent};
  };
  const all = selector => [...figure.querySelectorAll(selector)].map(box);
  return {
    name: figure.id,
    charts: all('svg[role=img]'),
    labels: all('.row svg:not(.bar)'),
    values: all('text.value'),
    shapes: all('.bar rect'),
    keys: all('.bar text'),
    cells: all('table.heat td'),
    ...box(figure),
  };
})
"""


Open = Callable[..., Shown]


@pytest.fixture
def opened(browser: Chromium, tmp_path: Path) -> Open:
    """Shows HTML from a file, in a window of a given width and scheme."""

    def show(html: str, **window: Any) -> Shown:
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        return browser.show(file.as_uri(), **{"width": 1280} | window)

    return show


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 800, 1280, 1600])
@pytest.mark.parametrize(
    "report",
    [fleet_report(), fleet_report(HARD_NAMES, LONG_TYPES)],
    ids=["fleet", "hard-names"],
)
def test_figures_are_drawn_within_the_window(
    browser: Chromium, opened: Open, report: WasteReport, width: int, scheme: str
) -> None:
    shown = opened(page(report), width=width, scheme=scheme)
    assert (shown.troubles, shown.requests) == ([], [])
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= width
    figures = browser.evaluate(shown, FIGURES)
    assert [figure["name"] for figure in figures] == ["cost-by-hardware", "best-value", "where", "matrix"]
    assert [len(figure["charts"]) for figure in figures] == [1, 1, 1, 0]
    rows = [min(len(report.by_hardware), 24), 15, 20]
    assert [len(figure["values"]) for figure in figures[:3]] == rows
    for figure in figures[:3]:
        (chart,) = figure["charts"]
        assert 300 < chart["width"] <= width
        for drawn in (chart, *figure["labels"], *figure["values"], *figure["shapes"], *figure["keys"]):
            assert drawn["height"] > 0
            assert drawn["left"] >= -0.5
            assert drawn["seen"] <= width + 0.5
            assert chart["top"] <= drawn["top"]
            assert drawn["bottom"] <= chart["bottom"] + 0.5
        assert sum(shape["width"] > 1 for shape in figure["shapes"]) >= len(figure["values"]) / 2
        for label, value in zip(figure["labels"], figure["values"], strict=True):
            assert label["seen"] <= value["left"] + 0.5, "what a row amounts to is printed over its name"
    assert len(figures[3]["cells"]) >= 20 * 12
    assert all(cell["height"] > 0 for cell in figures[3]["cells"])


def test_the_text_of_the_figures_is_the_reports(browser: Chromium, opened: Open) -> None:
    report = fleet_report()
    shown = opened(page(report))
    assert report.total.waste is not None
    headline = browser.evaluate(shown, "document.querySelector('#headline').innerText")
    assert headline.startswith(percent(report.total.waste.value))
    figures = browser.evaluate(shown, FIGURES)
    costs = sorted((line.cost_usd for line in report.by_hardware), reverse=True)
    assert [value["text"].split(" · ")[0] for value in figures[0]["values"]] == [short_money(cost) for cost in costs]
    wastes = sorted(
        (line.waste.value * line.compared_cost_usd for line in report.by_model if line.waste), reverse=True
    )[:20]
    assert [value["text"].split(" · ")[0] for value in figures[2]["values"]] == [short_money(waste) for waste in wastes]
    lengths = [shape["width"] for shape in figures[2]["shapes"]]
    assert lengths == pytest.approx([lengths[0] * waste / wastes[0] for waste in wastes], abs=0.1)


def test_colours_are_applied_and_follow_the_readers_scheme(browser: Chromium, opened: Open) -> None:
    def colours(scheme: str) -> list[str]:
        shown = opened(page(fleet_report()), scheme=scheme)
        return browser.evaluate(
            shown,
            "[[document.body, 'backgroundColor'], [document.body, 'color'],"
            " ...['.wasted', '.placed', '.hue-1', '.hue-7'].map("
            "paint => [document.querySelector(`.bar ${paint} rect`), 'fill'])"
            "].map(([element, what]) => getComputedStyle(element)[what])",
        )

    light, dark = colours("light"), colours("dark")
    assert light[0] == "rgb(255, 255, 255)"
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    assert len(set(light)) == len(light)
    assert len(set(dark)) == len(dark)


def test_tables_beneath_the_figures_open(browser: Chromium, opened: Open) -> None:
    shown = opened(page(fleet_report()), width=400)
    browser.evaluate(shown, "document.querySelectorAll('details').forEach(details => details.open = true)")
    heights = browser.evaluate(
        shown, "[...document.querySelectorAll('details table')].map(table => table.offsetHeight)"
    )
    assert len(heights) == 4
    assert min(heights) > 200
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize(
    "report",
    [
        empty_report(),
        empty_report(jobs=20, cost_usd=500.0, hardware=["T4"]),
        empty_report(jobs=20, hardware=["T4", "L4"]),
    ],
    ids=["no-jobs", "one-hardware-type", "no-cost"],
)
def test_a_page_with_nothing_compared_opens_too(browser: Chromium, opened: Open, report: WasteReport) -> None:
    shown = opened(page(report), width=400)
    assert (shown.troubles, shown.requests) == ([], [])
    assert browser.evaluate(shown, "document.querySelector('#headline').innerText").startswith("No figure")
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= 400


def test_it_prints_the_matrix_across_and_the_rest_upright(browser: Chromium, opened: Open) -> None:
    document = browser.printed(opened(page(fleet_report())))
    sheets = [tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox \[([^\]]+)\]", document)]
    upright = [height > width for _, _, width, height in sheets]
    assert upright == sorted(upright, reverse=True)
    assert set(upright) == {True, False}
    assert len(upright) <= 9


@pytest.mark.parametrize(
    ("slip", "trouble"),
    [
        ("<script>console.log('a')</script>", "console.log: ['a']"),
        ("<script>throw new Error('broken')</script>", "exception: Error: broken"),
        ("<svg><rect width='nan%'/></svg>", 'error: Error: <rect> attribute width: Expected length, "nan%".'),
    ],
    ids=["console", "exception", "number"],
)
def test_this_test_sees_what_goes_wrong_in_a_page(opened: Open, slip: str, trouble: str) -> None:
    shown = opened(f"<!DOCTYPE html><title>t</title>{slip}")
    assert [said.partition("\n")[0] for said in shown.troubles] == [trouble]


def test_this_test_sees_what_a_page_asks_for(opened: Open) -> None:
    shown = opened("<!DOCTYPE html><title>t</title><img src='http://127.0.0.1:9/pixel.png'>")
    assert shown.requests == ["http://127.0.0.1:9/pixel.png"]


def test_the_pages_policy_stops_what_would_be_smuggled_in(opened: Open) -> None:
    smuggled = "<script>console.log('ran')</script><img src='http://127.0.0.1:9/pixel.png'></main>"
    shown = opened(page(fleet_report()).replace("</main>", smuggled))
    assert "console.log: ['ran']" not in shown.troubles
    assert len([said for said in shown.troubles if "Content Security Policy" in said]) == 2

"""The page of `leap report` in a real browser: it opens without a complaint, asks for nothing, shows its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chromium import Chromium, Shown
from judged_directory import DEFAULT, Fleet, fleet
from leap_training.judge_page.page import page
from leap_training.judge_page.reading import read

pytestmark = pytest.mark.browser

HARD_NAMES = [
    "<script>alert(1)</script>",
    "😀 نموذج تجريبي",
    "a" * 128,
    "漢字" * 64,
    "x'\"&\x00\u202e",
    "bert",
    "resnet",
]

# The boxes of what is drawn, in window coordinates. A label is cut off at the width of the svg that holds it.
FIGURES = """
[...document.querySelectorAll('figure')].map(figure => {
  const box = element => {
    const {left, right, top, bottom, width, height} = element.getBoundingClientRect();
    return {left, right, top: top + scrollY, bottom: bottom + scrollY, width, height, text: element.textContent};
  };
  const all = selector => [...figure.querySelectorAll(selector)].map(box);
  return {
    name: figure.id,
    charts: all('svg.chart'),
    texts: all('svg.chart text:not(.label)'),
    labels: [...figure.querySelectorAll('.row > svg:not(.bar)')].map(holder => {
      const held = box(holder.firstChild);
      const room = holder.width.baseVal.value;
      return {...held, cut: held.width > room, right: Math.min(held.right, held.left + room)};
    }),
    values: all('.row > text.value'),
    shapes: all('.bar rect, .dot path, .span, .curve, .band, .density path, .plane circle'),
    ...box(figure),
  };
})
"""


Open = Callable[..., Shown]


@pytest.fixture
def opened(browser: Chromium, tmp_path: Path) -> Open:
    """Shows the page of a judge's directory, in a window of a given width and scheme."""

    def show(made: Fleet, **window: Any) -> Shown:
        file = tmp_path / "page.html"
        file.write_text(page(read(made.write(tmp_path / "judged"))), encoding="utf-8")
        return browser.show(file.as_uri(), **{"width": 1280} | window)

    return show


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 800, 1280])
def test_figures_are_drawn_within_the_window_and_no_text_is_cut(
    browser: Chromium, opened: Open, width: int, scheme: str
) -> None:
    shown = opened(fleet(3000), width=width, scheme=scheme)
    assert (shown.troubles, shown.requests) == ([], [])
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= width
    figures = browser.evaluate(shown, FIGURES)
    assert len(figures) == 23
    for figure in figures:
        assert figure["charts"]
        assert any(shape["width"] > 1 for shape in figure["shapes"])
        left, right = figure["charts"][0]["left"], figure["charts"][0]["right"]
        assert right - left > 300
        for drawn in (*figure["texts"], *figure["labels"], *figure["shapes"]):
            assert drawn["left"] >= left - 8, (figure["name"], drawn)
            assert drawn["right"] <= right + 8, (figure["name"], drawn)
        assert [label["text"] for label in figure["labels"] if label["cut"]] == []
        for label, value in zip(figure["labels"], figure["values"], strict=True):
            assert label["right"] <= value["left"] + 0.5, (label, value)


@pytest.mark.parametrize("width", [420, 1280])
def test_hard_names_open_without_trouble_too(browser: Chromium, opened: Open, width: int) -> None:
    made = fleet(1500, model_types=HARD_NAMES, windows=[f"{name} {number}" for number, name in enumerate(HARD_NAMES)])
    made.judged["models"][HARD_NAMES[0]] = {"not_run": "a reason of a <b>kind</b>" + "y" * 200}
    made.judged["by"] = HARD_NAMES[3]
    shown = opened(made, width=width)
    assert (shown.troubles, shown.requests) == ([], [])
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= width
    for figure in browser.evaluate(shown, FIGURES):
        for label, value in zip(figure["labels"], figure["values"], strict=True):
            assert label["right"] <= value["left"] + 0.5, (label, value)


def test_marks_beside_an_axis_do_not_run_into_each_other(browser: Chromium, opened: Open) -> None:
    shown = opened(fleet(3000), width=420)
    charts = browser.evaluate(
        shown,
        "[...document.querySelectorAll('svg.chart')].map(chart => [...chart.querySelectorAll('text.tick')]"
        ".filter(tick => tick.textContent).map(tick => {"
        " const {left, right, top, bottom} = tick.getBoundingClientRect();"
        " return {left, right, top, bottom, text: tick.textContent}; }))",
    )
    assert sum(map(len, charts)) > 100
    for ticks in charts:
        for place, one in enumerate(ticks):
            for other in ticks[place + 1 :]:
                apart = one["right"] <= other["left"] or other["right"] <= one["left"]
                assert apart or one["bottom"] <= other["top"] + 3 or other["bottom"] <= one["top"] + 3, (one, other)


def test_colours_are_applied_and_follow_the_readers_scheme(browser: Chromium, opened: Open) -> None:
    made = fleet(3000)

    def colours(scheme: str) -> list[str]:
        return browser.evaluate(
            opened(made, scheme=scheme),
            "[['.curve.lead', 'stroke'], ['.band.lead', 'fill'], ['.disc.lead', 'fill'], ['.density .shade-1', 'fill'],"
            " ['.density .shade-3', 'fill'], ['.bar rect.placed', 'fill'], ['.curve.hue-5', 'stroke'],"
            " ['.ring.other', 'stroke'], ['body', 'backgroundColor']]"
            ".map(([selector, what]) => getComputedStyle(document.querySelector(selector))[what])",
        )

    light, dark = colours("light"), colours("dark")
    assert light[0] == light[1] == light[2]
    for found in (light, dark):
        assert len(set(found[2:])) == len(found[2:])
    same = [place for place, (one, other) in enumerate(zip(light, dark, strict=True)) if one == other]
    assert same == [6], "one hue is the same in both"


def test_the_density_lies_along_the_rising_line(browser: Chromium, opened: Open) -> None:
    shown = opened(fleet(3000))
    plane, cells = browser.evaluate(
        shown,
        "(() => { const box = element => { const {left, right, top, bottom} = element.getBoundingClientRect();"
        " return {left, right, top, bottom}; };"
        " const density = document.querySelector('#scatter .density');"
        " return [box(density), [...density.querySelectorAll('path')].map(box)]; })()",
    )
    assert plane["right"] - plane["left"] > 300
    left, right = min(cell["left"] for cell in cells), max(cell["right"] for cell in cells)
    top, bottom = min(cell["top"] for cell in cells), max(cell["bottom"] for cell in cells)
    # As far along the one axis as along the other.
    across = [(edge - plane["left"]) / (plane["right"] - plane["left"]) for edge in (left, right)]
    up = [(plane["bottom"] - edge) / (plane["bottom"] - plane["top"]) for edge in (bottom, top)]
    assert across == pytest.approx(up, abs=0.06)


def test_tables_beneath_the_figures_open(browser: Chromium, opened: Open) -> None:
    shown = opened(fleet(3000), width=420)
    browser.evaluate(shown, "document.querySelectorAll('details').forEach(details => details.open = true)")
    heights = browser.evaluate(
        shown, "[...document.querySelectorAll('details table')].map(table => table.offsetHeight)"
    )
    assert len(heights) == 24
    assert min(heights) > 40
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= 420


def test_a_page_with_little_measured_opens_too(browser: Chromium, opened: Open) -> None:
    made = fleet(40, models=[DEFAULT], windows=["v4.0"])
    made.judged = {"default": DEFAULT, "models": {DEFAULT: {"live": made.judged["models"][DEFAULT]["live"]}}}
    shown = opened(made, width=420)
    assert (shown.troubles, shown.requests) == ([], [])
    assert browser.evaluate(shown, "document.documentElement.scrollWidth") <= 420
    assert "Not measured here" in browser.evaluate(shown, "document.querySelector('#not-measured').innerText")


def test_it_prints(browser: Chromium, opened: Open) -> None:
    assert browser.printed(opened(fleet(3000))).startswith(b"%PDF")

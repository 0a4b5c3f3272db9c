"""Sections that pages have alike: single figures, words explained, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leap_training.page.elements import Element, element


def tiles(figures: Iterable[tuple[str, str, str]], *, many: bool = False) -> Element:
    """Single figures side by side: the name, the figure and a detail of each."""
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", name),
                element("dd", figure, class_="figure"),
                element("dd", detail, class_="detail"),
            )
            for name, figure, detail in figures
        ),
        class_="tiles many" if many else "tiles",
    )


def reading(words: Iterable[tuple[str, str]]) -> Element:
    """How to read the page: its words, and what each means."""
    return element(
        "section",
        element("h2", "How to read this"),
        element(
            "dl",
            *(element("div", element("dt", word), element("dd", meaning)) for word, meaning in words),
            class_="words",
        ),
        id="reading",
    )


def notes(lines: Sequence[str]) -> Element | None:
    """What was assumed and left out; None: nothing."""
    if not lines:
        return None
    return element(
        "section",
        element("h2", "Assumptions, and what was left out"),
        element("ul", *(element("li", line) for line in lines)),
        id="notes",
    )

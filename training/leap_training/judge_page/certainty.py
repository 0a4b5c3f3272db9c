"""How sure predictions are and what they rest on: intervals, levels of history, and what the lookup table covers."""

from __future__ import annotations

import math
from typing import Final

from leap_training.judge_page.comparison import figure_cells, figure_columns
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.verdict import Covered
from leap_training.judge_page.wording import ALL_LEVELS, HISTORY_WORDS, dot, level_name, per_cent, scale_mark, within
from leap_training.page import (
    Axis,
    Bar,
    Column,
    Dot,
    DotRow,
    Element,
    Line,
    Mark,
    Reference,
    Rule,
    bars,
    count,
    dots,
    figure,
    legend_of_marks,
    percent,
    plane,
    table,
)

NOMINAL: Final = 80.0
# What a level with enough rows should lie in.
TOLERATED: Final = (70.0, 90.0)
ENOUGH: Final = 100
LOOKUP: Final = "lookup"
NAMES_SHOWN: Final = 4
TABLE_ROWS: Final = 300


def calibration(judged: Judged) -> list[Element]:
    """Whether 80 % intervals hold 80 % of the measured values: by level, and over the windows."""
    found = (judged.verdict.intervals or {}).get(judged.verdict.default) or []
    made = []
    if found:
        made.append(_by_level(judged, found))
    if any(window.covered is not None for window in judged.measured.windows):
        made.append(_over_windows(judged))
    return made


def levels(judged: Judged) -> Element | None:
    """Which level of history answered how many rows, and how well."""
    found = judged.measured.levels
    history = judged.verdict.history
    if history is None or not any(each.level is not None for each in found):
        return None
    rows = sum(each.rows for each in found)
    return figure(
        "levels",
        "Which history answers",
        f"Share of the rows that each level of history answered for {judged.verdict.default}, the most specific "
        f"with a run first, with {HISTORY_WORDS[history]}. At the right: rows, and how many of them lie within "
        "±20\u00a0%.",
        bars(
            "chart-levels",
            "Rows by the level of history that answered",
            "Bars, one for each level of history: its share of the rows.",
            [
                Bar(level_name(each.level), f"{count(each.rows)} · {per_cent(each.within20)}", each.rows / rows)
                for each in found
            ],
            lambda share: scale_mark(100 * share),
            "placed",
        ),
        level=3,
        numbers=table(
            "Rows and accuracy by level of history",
            [
                Column("Level", number=False),
                Column("Rows"),
                Column("Share of rows"),
                Column("Within ±20\u00a0%"),
                Column("Median error"),
            ],
            [
                [
                    level_name(each.level),
                    count(each.rows),
                    percent(each.rows / rows),
                    per_cent(each.within20),
                    per_cent(each.median_error),
                ]
                for each in found
            ],
        ),
    )


def against_table(judged: Judged) -> Element | None:
    """All models on the rows that the lookup table covers."""
    verdict = judged.verdict
    found = {name: each for name, each in (verdict.against_table or {}).items() if each.within20 is not None}
    if not found:
        return None
    ranked = sorted(found.items(), key=lambda item: -(item[1].within20 or 0.0))
    return figure(
        "against-table",
        "Where the lookup table answers",
        f"Share within ±20\u00a0% on the {count(ranked[0][1].rows, 'row')} that the lookup table (model type, "
        f"trainers, batch size, hardware) covers{_coverage(judged)}. Elsewhere it says nothing.",
        dots(
            "chart-against-table",
            "Share within ±20\u00a0% on the rows that the lookup table covers",
            "Points with intervals, one row for each model.",
            [Mark("within ±20\u00a0%", "lead", "disc")],
            [DotRow(name, within(each), (dot(each),)) for name, each in ranked],
            scale_mark,
        ),
        level=3,
        numbers=table(
            "Figures on the rows that the lookup table covers",
            figure_columns(["Model"]),
            [[name, *figure_cells(each)] for name, each in ranked],
        ),
    )


def _coverage(judged: Judged) -> str:
    verdict = judged.verdict
    history = verdict.history
    lookup = verdict.models.get(LOOKUP)
    if history is None or lookup is None or (own := lookup.under(history).get("all")) is None or not own.rows:
        return ""
    return f", {percent(1 - own.unanswered / own.rows)} of all"


def _by_level(judged: Judged, found: list[Covered]) -> Element:
    lines = []
    for each in found:
        point = None if each.covered is None else Dot(each.covered)
        text = f"{per_cent(each.covered)}{_width(each)} · {count(each.rows)}"
        place = 2 if each.level == ALL_LEVELS else 0 if each.rows >= ENOUGH else 1
        lines.append(DotRow(level_name(each.level), text, tuple(point if at == place else None for at in range(3))))
    drawn = [
        Mark(f"a level with {ENOUGH} rows or more", "lead", "disc"),
        Mark("with fewer", "other", "ring"),
        Mark("all levels", "bound", "diamond"),
    ]
    return figure(
        "calibration",
        "Do the 80\u00a0% intervals hold",
        f"Share of measured values within the interval of {judged.verdict.default}, by the level of history that "
        f"answered. The dashed line is the nominal 80\u00a0%, the shaded stretch {TOLERATED[0]:.0f} to "
        f"{TOLERATED[1]:.0f}\u00a0%. At the right: share, median half-width, rows.",
        legend_of_marks(drawn),
        dots(
            "chart-calibration",
            "Share of measured values within their 80\u00a0% interval, by level of history",
            "Points, one row for each level of history, beside the nominal 80\u00a0%.",
            drawn,
            lines,
            scale_mark,
            [Reference(*TOLERATED), Reference(NOMINAL)],
        ),
        level=3,
        numbers=table(
            "Intervals by level of history: nominal 80\u00a0%",
            [Column("Level", number=False), Column("Rows"), Column("Covered"), Column("Median half-width")],
            [
                [level_name(each.level), count(each.rows), per_cent(each.covered), per_cent(each.median_half_width)]
                for each in found
            ],
        ),
    )


def _width(each: Covered) -> str:
    return "" if each.median_half_width is None else f" · ±{per_cent(each.median_half_width)}"


def _over_windows(judged: Judged) -> Element:
    windows = judged.measured.windows
    held = [window.covered for window in windows if window.covered is not None]
    line = Line(
        judged.verdict.default,
        "lead",
        tuple((float(place), window.covered) for place, window in enumerate(windows)),
        said=tuple(f"{window.window}: {per_cent(window.covered)}" for window in windows),
    )
    across = Axis.names([window.window for window in windows], NAMES_SHOWN, judged.verdict.by)
    low = min(60.0, 10.0 * math.floor(min(held) / 10))
    return figure(
        "calibration-over-time",
        "The intervals over time",
        f"Share of measured values within their 80\u00a0% interval in each window: from {per_cent(min(held))} to "
        f"{per_cent(max(held))}.",
        plane(
            "chart-calibration-over-time",
            "Share of measured values within their 80\u00a0% interval, by window",
            "A line over the windows, beside the nominal 80\u00a0%.",
            across,
            Axis.linear(low, 100.0, scale_mark),
            [Rule((across.low, NOMINAL), (across.high, NOMINAL)), line],
            height=240,
        ),
        level=3,
        numbers=table(
            "Share of measured values within their 80\u00a0% interval",
            [Column("Window", number=False), Column("Covered")],
            [[window.window, per_cent(window.covered)] for window in windows[:TABLE_ROWS]],
        ),
    )

"""Predicted against measured throughput, over as many powers of ten as there are, as density."""

from __future__ import annotations

import math

from leap_training.judge_page.counted import MOST_OFF, Scatter
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.wording import per_cent
from leap_training.page import (
    Axis,
    Column,
    Element,
    Rule,
    count,
    figure,
    legend_of_shades,
    percent,
    plane,
    short,
    table,
)

_UNIT = "samples per second"


def predicted_against_measured(judged: Judged) -> list[Element]:
    """All scored rows and first runs of the default model: predicted against measured, and how far they are off."""
    measured = judged.measured
    return [
        _figure(identity, what, found, judged.verdict.default)
        for identity, what, found in (
            ("scatter", "all rows", measured.scatter),
            ("scatter-first", "first runs", measured.first_scatter),
        )
        if found is not None
    ]


def _figure(identity: str, what: str, found: Scatter, default: str) -> Element:
    heading = f"Predicted against measured, {what}"
    across = Axis.decades(found.low, found.high, short, f"measured, {_UNIT}")
    low, high = float(found.low), float(found.high)
    edges = (math.log10(0.8), math.log10(1.2))
    off = math.log10(MOST_OFF)
    beyond = (
        f" {count(found.beyond, 'row')} ({percent(found.beyond / found.rows)}) off by more than a factor of "
        f"{MOST_OFF:.0f} are drawn at the edge of the lower plane."
        if found.beyond
        else ""
    )
    return figure(
        identity,
        heading,
        f"{count(found.rows, 'prediction')} of {default}; measured were {short(found.least)} to {short(found.most)} "
        f"{_UNIT}. The stronger the colour, the more rows. Below, the same as predicted ÷ measured: dashed lines "
        f"are ±20\u00a0%.{beyond}",
        legend_of_shades("row"),
        plane(
            f"chart-{identity}",
            heading,
            "Density of predicted against measured throughput, both on logarithmic scales. The nearer to the rising "
            "line, the better.",
            across,
            Axis.decades(found.low, found.high, short, f"predicted, {_UNIT}"),
            [Rule((low, low), (high, high), strong=True), found.predicted],
        ),
        plane(
            f"chart-{identity}-ratio",
            f"Predicted ÷ measured, {what}",
            "Density of the ratio of predicted to measured throughput, by measured throughput, on logarithmic scales. "
            "The nearer to the level line at 1, the better; dashed lines are ±20\u00a0%.",
            across,
            Axis(-off, off, _ratio_marks(), "predicted ÷ measured"),
            [
                Rule((low, 0.0), (high, 0.0), strong=True),
                found.ratio,
                *(Rule((low, edge), (high, edge)) for edge in edges),
            ],
            height=220,
        ),
        level=3,
        numbers=table(
            f"By measured throughput, {what}",
            [Column(f"Measured, {_UNIT}", number=False), Column("Rows"), Column("Within ±20\u00a0%")],
            [
                [f"{short(10.0**power)} to {short(10.0 ** (power + 1))}", count(share.rows), per_cent(share.within20)]
                for power, share in found.decades.items()
            ],
        ),
    )


def _ratio_marks() -> tuple[tuple[float, str], ...]:
    return tuple(
        (math.log10(ratio), text)
        for ratio, text in (
            (1 / 3, "÷3"),
            (1 / 2, "÷2"),
            (0.8, "−20\u00a0%"),
            (1.2, "+20\u00a0%"),
            (2.0, "×2"),
            (3.0, "×3"),
        )
    )

"""What the paper measured on its fleet (arXiv 2611.04057), and how near a generated fleet has to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

Unit = Literal["count", "share", "number"]
Setting = Literal["days", "attempts_per_day", "hardware", "model_types"]

FULL_SIZE: Final[Mapping[Setting, tuple[float, float]]] = {
    "days": (31, float("inf")),
    "attempts_per_day": (24_000, 26_000),
    "hardware": (21, float("inf")),
    "model_types": (640, 680),
}
"""Settings with which a fleet is of the paper's size: 30 days of history and one to score, and the paper's numbers."""

_EVERYTHING: Final[tuple[Setting, ...]] = ("days", "attempts_per_day", "hardware", "model_types")


class PaperFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the paper and the range that is accepted, both ends included."""

    name: str
    title: str
    """As a table shows it."""
    said: str
    """What the paper says."""
    low: float = float("-inf")
    high: float = float("inf")
    unit: Unit
    section: str
    """Where the paper says it."""
    needs: tuple[Setting, ...] = _EVERYTHING
    """The settings that must be the paper's for the figure to mean anything."""


PAPER: Final[tuple[PaperFigure, ...]] = (
    PaperFigure(
        name="attempts_per_day",
        title="attempts a day",
        said="~25,000",
        low=24_000,
        high=26_000,
        unit="count",
        section="motivation: size of the fleet",
        needs=("attempts_per_day",),
    ),
    PaperFigure(
        name="model_types",
        title="model types",
        said="~660",
        low=640,
        high=680,
        unit="count",
        section="motivation: the long tail",
    ),
    PaperFigure(
        name="least_common_share",
        title="attempts of the least common 85 % of model types",
        said="560 of 660: 22 %",
        low=0.19,
        high=0.25,
        unit="share",
        section="motivation: the long tail",
        needs=(),
    ),
    PaperFigure(
        name="hardware_types",
        title="hardware types",
        said="more than 20",
        low=21,
        unit="count",
        section="motivation: size of the fleet",
        needs=("hardware",),
    ),
    PaperFigure(
        name="decades_in_a_day",
        title="decades of throughput in a day, median day",
        said="7",
        low=6,
        high=8,
        unit="number",
        section="motivation: one day's 22,495 rows",
    ),
    PaperFigure(
        name="least_spread_on_hardware",
        title="p95/p5 on one hardware type in a day, smallest",
        said="42",
        low=14,
        high=126,
        unit="number",
        section="motivation: spread on one hardware type",
    ),
    PaperFigure(
        name="greatest_spread_on_hardware",
        title="p95/p5 on one hardware type in a day, greatest",
        said="701",
        low=234,
        high=2_103,
        unit="number",
        section="motivation: spread on one hardware type",
    ),
    PaperFigure(
        name="wide_key_share",
        title="attempts whose key has p90/p10 above 1.5",
        said="56 %",
        low=0.5,
        high=0.62,
        unit="share",
        section="what it replaced: spread within one key",
    ),
    PaperFigure(
        name="top_model_launches_a_week",
        title="launches a week of the most common model type",
        said="5,527",
        low=5_000,
        high=6_000,
        unit="count",
        section="in production: one model type",
    ),
    PaperFigure(
        name="least_best_share",
        title="… best on each of four hardware types, fewest",
        said="16 %",
        low=0.16,
        high=0.31,
        unit="share",
        section="in production: one model type",
    ),
    PaperFigure(
        name="greatest_best_share",
        title="… best on each of four hardware types, most",
        said="31 %",
        low=0.16,
        high=0.31,
        unit="share",
        section="in production: one model type",
    ),
    PaperFigure(
        name="lookup_coverage",
        title="last day: attempts that the lookup table covers",
        said="13 %",
        low=0.09,
        high=0.17,
        unit="share",
        section="what it replaced: the table",
    ),
    PaperFigure(
        name="lookup_within_20",
        title="… of those, within ±20 %",
        said="53.2 %",
        low=0.43,
        high=0.63,
        unit="share",
        section="results: against the table",
    ),
    PaperFigure(
        name="lookup_within_10",
        title="… of those, within ±10 %",
        said="33.4 %",
        low=0.24,
        high=0.43,
        unit="share",
        section="results: against the table",
    ),
    PaperFigure(
        name="hardware_r2",
        title="R² of ln throughput by hardware type alone",
        said="little",
        high=0.3,
        unit="number",
        section="results: importance of hardware specifications, 5.8 %",
        needs=(),
    ),
    PaperFigure(
        name="family_r2",
        title="R² of ln throughput by the family's earlier mean",
        said="much",
        low=0.7,
        unit="number",
        section="results: importance of the mean prior log throughput, 36.7 points",
        needs=(),
    ),
)
"""The figures that a generated fleet is judged by."""

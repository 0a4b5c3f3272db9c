"""What single rows say, counted in DuckDB: by window, by model type, by level and by cell of a grid.

Rows and predictions may be millions, and may spill to disk; what leaves the database is as large as the page.
"""

# ruff: noqa: S608 - columns and conditions are this product's own.

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from leap_features.archive_reader import quoted
from leap_training.judge_page.verdict import Verdict
from leap_training.page import Density

if TYPE_CHECKING:
    import duckdb

# Cells across and up of the density of predictions, at most.
GRID: Final = 84
# Powers of ten that are shown; what lies beyond is counted at the edge.
LEAST_POWER: Final = -9
MOST_POWER: Final = 15
# How far a prediction may be off before it is shown at the edge: a factor of 3.
MOST_OFF: Final = 3.0
# Resampled sets of job families behind a band, and its ends.
RESAMPLED: Final = 400
BAND: Final = (2.5, 97.5)

# A logarithm is clipped before it becomes a ratio: e^±50 is as wrong as anything.
_HIT: Final = (
    "coalesce(isfinite(log_predicted)"
    " AND abs(exp(greatest(least(log_predicted - log_measured, 50.0), -50.0)) - 1) <= 0.2, false)"
)


@dataclass(frozen=True)
class Share:
    """How many of `rows` were predicted within ±20 %, with a 95 % bootstrap interval where one was made. Percent."""

    rows: int
    within20: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class WindowShares:
    """What each model reached in one window: on all its rows, and on first runs where it has any."""

    window: str
    everything: Mapping[str, Share]
    first: Mapping[str, Share]
    covered: float | None
    """Per cent of the default model's intervals that hold the measured value."""


@dataclass(frozen=True)
class ModelTypeShares:
    """What models reached on the attempts of one model type."""

    model_type: str
    rows: int
    first_rows: int
    within20: Mapping[str, float]
    """By model, in percent."""
    first_within20: float | None
    """The default's share on first runs."""


@dataclass(frozen=True)
class LevelShare:
    """How well the default model did where one level of the back-off answered."""

    level: str | None
    """None: no level had history."""
    rows: int
    within20: float
    median_error: float | None
    """Percent."""


@dataclass(frozen=True)
class Scatter:
    """Predicted against measured throughput as counts, of all scored rows or of first runs."""

    rows: int
    low: int
    high: int
    """Powers of ten that the measured throughputs lie between, samples per second."""
    least: float
    """The least measured throughput, samples per second."""
    most: float
    predicted: Density
    """By (measured, predicted), both from 10^low to 10^high."""
    ratio: Density
    """By (measured, predicted ÷ measured), the latter from 1/3 to 3, all on logarithmic scales."""
    beyond: int
    """Rows that are off by more than a factor of 3; they are counted at the edge."""
    decades: Mapping[int, Share]
    """What was reached on measured throughputs from 10^power on, up to the next power."""


@dataclass(frozen=True)
class Measured:
    """What single rows say, counted."""

    rows: int
    first_rows: int
    """Rows in a cell (family, hardware, trainers) without a completed run."""
    windows: tuple[WindowShares, ...]
    model_types: tuple[ModelTypeShares, ...]
    levels: tuple[LevelShare, ...]
    scatter: Scatter | None
    first_scatter: Scatter | None


def count_rows(connection: duckdb.DuckDBPyConnection, verdict: Verdict, references: Collection[str]) -> Measured:
    """Count the views `rows` and `predictions` of `connection`, which gets views and tables more.

    Args:
        connection: its `predictions` hold one row for each of `rows`, model and history.
        verdict: says which model and which history are shown.
        references: the models that are counted by model type beside the default.
    """
    rows, first = one_row(connection, "SELECT count(*), count(*) FILTER (first_in_cell) FROM rows")
    history = verdict.history
    if history is None:
        return Measured(rows, first, (), (), (), None, None)
    # A measured value that is no number cannot be compared with anything.
    connection.execute(f"""
        CREATE VIEW scored AS
        SELECT rows.*, model, log_predicted, log_low, log_high, level, {_HIT} AS hit
        FROM predictions JOIN rows USING ("window", attempt_id)
        WHERE history = {quoted(history)} AND isfinite(log_measured)
    """)
    connection.execute(f"CREATE TABLE own AS SELECT * FROM scored WHERE model = {quoted(verdict.default)}")
    return Measured(
        rows,
        first,
        _windows(connection, verdict),
        _model_types(connection, verdict.default, references),
        _levels(connection),
        _scatter(connection, "true"),
        _scatter(connection, "first_in_cell"),
    )


def _windows(connection: duckdb.DuckDBPyConnection, verdict: Verdict) -> tuple[WindowShares, ...]:
    bands = {
        (window, first): band
        for first, chosen in ((False, "true"), (True, "first_in_cell"))
        for window, band in _bands(connection, chosen).items()
    }
    everything: dict[str, dict[str, Share]] = {}
    firsts: dict[str, dict[str, Share]] = {}
    for window, model, rows, hits, first_rows, first_hits in connection.execute("""
        SELECT "window", model, count(*), count(*) FILTER (hit),
            count(*) FILTER (first_in_cell), count(*) FILTER (hit AND first_in_cell)
        FROM scored GROUP BY ALL ORDER BY ALL
    """).fetchall():
        for into, number, right, first in ((everything, rows, hits, False), (firsts, first_rows, first_hits, True)):
            if number:
                low, high = bands.get((window, first), (None, None)) if model == verdict.default else (None, None)
                into.setdefault(window, {})[model] = Share(number, 100 * right / number, low, high)
    covered = dict(
        connection.execute("""
            SELECT "window", 100.0 * avg((log_measured BETWEEN log_low AND log_high)::INTEGER)
            FROM own WHERE isfinite(log_low) AND isfinite(log_high) GROUP BY ALL
        """).fetchall()
    )
    order = {window.name: place for place, window in enumerate(verdict.windows)}
    return tuple(
        WindowShares(window, everything[window], firsts.get(window, {}), covered.get(window))
        for window in sorted(everything, key=lambda window: (order.get(window, len(order)), window))
    )


def _bands(connection: duckdb.DuckDBPyConnection, chosen: str) -> dict[str, tuple[float, float]]:
    """By window, the 95 % bootstrap interval of the default's share; job families are resampled, not rows."""
    by_window: dict[str, list[tuple[int, int]]] = {}
    for window, rows, hits in connection.execute(f"""
        SELECT "window", count(*), count(*) FILTER (hit) FROM own WHERE {chosen}
        GROUP BY "window", job_family ORDER BY "window", job_family
    """).fetchall():
        by_window.setdefault(window, []).append((rows, hits))
    random = np.random.default_rng(0)
    bands = {}
    for window, sums in by_window.items():
        if len(sums) < 2:  # of a single family every draw is the same
            continue
        rows, hits = np.array(sums, dtype=np.float64).T
        times = random.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLED)
        low, high = np.percentile(100 * (times @ hits) / (times @ rows), BAND)
        bands[window] = float(low), float(high)
    return bands


def _model_types(
    connection: duckdb.DuckDBPyConnection, default: str, references: Collection[str]
) -> tuple[ModelTypeShares, ...]:
    wanted = ", ".join(quoted(model) for model in {default, *references})
    shares: dict[str, dict[str, float]] = {}
    own: dict[str, tuple[int, int, float | None]] = {}
    for model_type, model, rows, hits, first_rows, first_hits in connection.execute(f"""
        SELECT model_type, model, count(*), count(*) FILTER (hit),
            count(*) FILTER (first_in_cell), count(*) FILTER (hit AND first_in_cell)
        FROM scored WHERE model IN ({wanted}) GROUP BY ALL ORDER BY ALL
    """).fetchall():
        shares.setdefault(model_type, {})[model] = 100 * hits / rows
        if model == default:
            own[model_type] = rows, first_rows, 100 * first_hits / first_rows if first_rows else None
    most_run = sorted(own, key=lambda model_type: (-own[model_type][0], model_type))
    return tuple(
        ModelTypeShares(model_type, rows, first_rows, shares[model_type], first)
        for model_type in most_run
        for rows, first_rows, first in [own[model_type]]
    )


def _levels(connection: duckdb.DuckDBPyConnection) -> tuple[LevelShare, ...]:
    found = connection.execute("""
        SELECT level, count(*), 100.0 * avg(hit::INTEGER), median(CASE WHEN isfinite(log_predicted)
            THEN 100 * abs(exp(greatest(least(log_predicted - log_measured, 50.0), -50.0)) - 1) ELSE 'inf'::DOUBLE END)
        FROM own GROUP BY level ORDER BY count(*) DESC, level
    """).fetchall()
    return tuple(
        LevelShare(level, rows, within20, median if math.isfinite(median) else None)
        for level, rows, within20, median in found
    )


def _scatter(connection: duckdb.DuckDBPyConnection, chosen: str) -> Scatter | None:
    condition = f"{chosen} AND isfinite(log_predicted)"
    rows, least, most = one_row(
        connection, f"SELECT count(*), min(log_measured), max(log_measured) FROM own WHERE {condition}"
    )
    if not rows:
        return None
    low = min(max(math.floor(least / math.log(10)), LEAST_POWER), MOST_POWER - 1)
    high = min(max(math.ceil(most / math.log(10)), low + 1), MOST_POWER)
    columns = max(1, GRID // (high - low)) * (high - low)
    width = (high - low) * math.log(10)
    off = math.log(MOST_OFF)

    def cell(along: str, cells: int) -> str:
        """The cell in which the share `along` of an axis lies; what is beyond the axis is counted at its edge."""
        return f"greatest(0, least({cells - 1}, floor({cells} * greatest(-1.0, least(2.0, {along})))))::INTEGER"

    def density(up: str) -> Density:
        across = cell(f"(log_measured - {low * math.log(10)!r}) / {width!r}", columns)
        counts = connection.execute(
            f"SELECT {across}, {cell(up, GRID)}, count(*) FROM own WHERE {condition} GROUP BY ALL"
        ).fetchall()
        return Density(columns, GRID, {(column, row): number for column, row, number in counts})

    beyond, *_ = one_row(
        connection, f"SELECT count(*) FROM own WHERE {condition} AND abs(log_predicted - log_measured) > {off!r}"
    )
    return Scatter(
        rows,
        low,
        high,
        math.exp(min(least, 700.0)),
        math.exp(min(most, 700.0)),
        density(f"(log_predicted - {low * math.log(10)!r}) / {width!r}"),
        density(f"(log_predicted - log_measured + {off!r}) / {2 * off!r}"),
        beyond,
        {
            power: Share(number, 100 * hits / number)
            for power, number, hits in connection.execute(f"""
                SELECT floor(greatest({low}, least({high - 1}, log_measured / {math.log(10)!r})))::INTEGER AS power,
                    count(*), count(*) FILTER (hit)
                FROM own WHERE {chosen} GROUP BY power ORDER BY power
            """).fetchall()
        },
    )


def one_row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The only row that `query` gives."""
    (row,) = connection.execute(query).fetchall()
    return row

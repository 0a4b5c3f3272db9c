"""The latest row of every key of a level, streamed from a build of the history rows."""

# ruff: noqa: S608 - names are this product's own, paths are quoted.

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from leap_features.archive_reader import connect, file_literal
from leap_features.history_rows import PART
from leap_features.layout import Value
from leap_features.levels import Level
from leap_features.row_fields import FEATURE_NAMES

ROWS_AT_ONCE: Final = 1_000


class LatestRow(NamedTuple):
    """The row of one key."""

    key: tuple[str | int, ...]
    """Values of the level's join keys, in their order."""
    values: tuple[Value, ...]
    """Of every feature, in the order of `history.FEATURES`."""
    recorded_at_us: int
    """Its timestamp, microseconds since 1970."""


class LatestRows:
    """The rows of one level. Memory holds the keys and what is fetched at once, not the rows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, build: Path, level: Level) -> None:
        self._connection = connection
        self._level = level
        keys = ", ".join(level.join_keys)
        # A build has one row per key and timestamp.
        connection.execute(f"""
            CREATE OR REPLACE TABLE latest AS
            SELECT {keys}, max(event_timestamp) AS event_timestamp FROM {_source(build, level)} GROUP BY ALL
        """)
        ((self.count,),) = connection.execute("SELECT count(*) FROM latest").fetchall()
        self._source = _source(build, level)

    def batches(self) -> Iterator[list[LatestRow]]:
        """All rows, `ROWS_AT_ONCE` at a time, in no order."""
        keys = ", ".join(self._level.join_keys)
        cursor = self._connection.execute(f"""
            SELECT {keys}, {", ".join(FEATURE_NAMES)}, epoch_us(event_timestamp)
            FROM {self._source} SEMI JOIN latest USING ({keys}, event_timestamp)
        """)
        width = len(self._level.join_keys)
        while batch := cursor.fetchmany(ROWS_AT_ONCE):
            yield [LatestRow(row[:width], row[width:-1], row[-1]) for row in batch]


@contextmanager
def opened(build: Path, level: Level) -> Iterator[LatestRows]:
    """The latest rows of `level` in the directory `build`."""
    with tempfile.TemporaryDirectory(prefix="leap-rows-") as spill, connect(spill) as connection:
        connection.execute("SET preserve_insertion_order = false")  # bounds the memory; no caller relies on an order
        yield LatestRows(connection, build, level)


def _source(build: Path, level: Level) -> str:
    return f"read_parquet({file_literal(build / level.view / PART)})"

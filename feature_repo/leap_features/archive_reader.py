"""The archive read by DuckDB: SQL over segments in which every position occurs once."""

# ruff: noqa: S608 - columns and conditions are this product's own; paths are quoted by `file_literal`.

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leap_features.archive_rows import COLUMNS

if TYPE_CHECKING:
    import duckdb


class Segment(NamedTuple):
    """One file of the archive and the offsets that it covers, both included."""

    epoch: int
    partition: int
    first: int
    last: int
    path: Path


class Slice(NamedTuple):
    """What a reader takes from one segment: the offsets that no segment before it covers."""

    path: Path
    first: int
    last: int
    whole: bool


def without_overlaps(found: Iterable[Segment]) -> list[Slice]:
    """Slices of `found` (sorted) that together hold every position once."""
    slices = []
    ends: dict[tuple[int, int], int] = {}
    for epoch, partition, first, last, path in found:
        start = max(first, ends.get((epoch, partition), first))
        if start <= last:
            slices.append(Slice(path, start, last, start == first))
            ends[epoch, partition] = last + 1
    return slices


def relation(found: Iterable[Segment], columns: Sequence[str] = tuple(COLUMNS), where: str = "true") -> str:
    """SQL query: `columns` of the events in `found` (sorted) that satisfy `where`, each position once."""
    chosen = ", ".join(f'"{name}"' for name in columns)
    slices = without_overlaps(found)
    parts = []
    if whole := [s.path for s in slices if s.whole]:
        files = ", ".join(file_literal(path) for path in whole)
        parts.append(f"SELECT {chosen} FROM read_parquet([{files}], hive_partitioning = false) WHERE {where}")
    if cut := [s for s in slices if not s.whole]:
        files = ", ".join(file_literal(s.path) for s in cut)
        ranges = ", ".join(f"({quoted(str(s.path))}, {s.first}, {s.last})" for s in cut)
        parts.append(f"""
            SELECT {chosen} FROM read_parquet([{files}], hive_partitioning = false, filename = true) AS events
            JOIN (VALUES {ranges}) AS part(path, first, last)
            ON events.filename = part.path AND "offset" BETWEEN part.first AND part.last
            WHERE {where}
        """)
    if not parts:
        nothing = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in COLUMNS.items())
        parts.append(f"SELECT {chosen} FROM (SELECT {nothing}) WHERE false")
    return "\nUNION ALL ".join(parts)


def quoted(text: str) -> str:
    """`text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def file_literal(path: Path) -> str:
    """`path` as a literal of SQL that DuckDB does not take for a pattern."""
    return quoted(re.sub(r"[*?\[]", lambda match: f"[{match[0]}]", str(path)))


def connect(temporary: Path | str | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory, its times in UTC, that spills to the directory `temporary`."""
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_progress_bar = false")  # it would be drawn on standard output
    if temporary is not None:
        connection.execute(f"SET temp_directory = {quoted(str(temporary))}")
    return connection

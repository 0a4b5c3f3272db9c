"""Point-in-time joins over Parquet in DuckDB: for every entity row the latest feature row that could be known then.

The cost is that of sorting both sides, whatever the size of the largest key. Every entity row is kept, in its order.
Where rows of one key share an event timestamp, the one created last wins, then the one that lies last in the files.
Times are UTC; those in the files without a time zone are read as UTC.
"""

# ruff: noqa: S608 - names and texts are quoted by _name and _text; files and columns are the repository's own.

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

Result = TypeVar("Result")

# Names that no data set uses; `filename` and `file_row_number` are DuckDB's own.
_ROW: Final = "__leap_row"
_AT: Final = "__leap_at"
_CREATED: Final = "__leap_created"
_KNOWN: Final = "__leap_known"
_BEST: Final = "__leap_best"
_FILE: Final = "__leap_file"
_LINE: Final = "file_row_number"


@dataclass(frozen=True, slots=True)
class Rows:
    """Feature rows in Parquet files that share a schema, but for columns that older files lack."""

    files: tuple[str, ...]
    timestamp: str
    """Column of the event timestamp."""
    created: str | None = None
    """Column of the time at which a row was made, if there is one."""


@dataclass(frozen=True, slots=True)
class View:
    """What is joined from one data set."""

    name: str
    rows: Rows
    keys: Mapping[str, str]
    """Entity column → column of the data set. Empty: one series for all."""
    features: Mapping[str, str]
    """Name in the result → column of the data set."""
    ttl_us: int = 0
    """A row older than this, in microseconds, counts as absent; 0: a row lives for ever."""


def run(query: Callable[[duckdb.DuckDBPyConnection], Result], timeout_s: float | None = None) -> Result:
    """What `query` gives on a fresh connection, whose time zone is UTC.

    Raises:
        TimeoutError: it took longer than `timeout_s` seconds.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # The default is a folder within the working directory.
        connection.execute(f"SET temp_directory = {_text(tempfile.gettempdir())}")
        try:
            with _interrupting(connection, timeout_s):
                return query(connection)
        except duckdb.InterruptException:
            raise TimeoutError(f"the query took longer than {timeout_s} s") from None


def join(
    connection: duckdb.DuckDBPyConnection,
    entities: pa.Table,
    at: str,
    views: Sequence[View],
    *,
    known_then: bool = False,
) -> pa.Table:
    """`entities` with the features of every view as of the time in column `at`.

    Args:
        connection: from `run`.
        entities: rows with the entity columns of every view; all columns are kept as they are.
        at: a timestamp column with a time zone.
        views: what to join; names in the result must be new and unique.
        known_then: leave out rows whose `created` is later than `at` (views without `created`: no difference).

    Raises:
        ValueError: a column is missing, or the types of a key differ.
    """
    asked = pa.table(
        {_ROW: pa.array(np.arange(entities.num_rows)), _AT: entities.column(at)}
        | {name: entities.column(name) for view in views for name in view.keys}
    )
    connection.register("entities", asked)
    result = entities
    for view in views:
        query = _known_then(view) if known_then and view.rows.created else _as_of(view)
        try:
            found = connection.sql(query).to_arrow_table()
        except (duckdb.BinderException, duckdb.ConversionException) as error:
            raise ValueError(f"feature view {view.name}: {error}") from None
        for name in view.features:
            result = result.append_column(name, found.column(name))
    return result


def latest(rows: Rows, keys: Sequence[str], columns: Sequence[str], until: datetime) -> str:
    """Query for the latest row of each key that is stamped `until` or earlier."""
    where = f"WHERE {_AT} <= {_instant(until)}"
    return f"WITH rows AS ({_read(rows)}) SELECT {_names(columns)} FROM rows {where} {_last_of(keys, by_time=True)}"


def every(rows: Rows, columns: Sequence[str], since: datetime | None, until: datetime | None) -> str:
    """Query for all rows stamped between `since` and `until`, both included; all columns where `columns` is empty."""
    bounds = [f"{_AT} >= {_instant(since)}"] if since else []
    bounds += [f"{_AT} <= {_instant(until)}"] if until else []
    where = f"WHERE {' AND '.join(bounds)}" if bounds else ""
    names = _names(columns) if columns else f"* EXCLUDE ({_names([_AT, _CREATED, _FILE, _LINE])})"
    return f"WITH rows AS ({_read(rows)}) SELECT {names} FROM rows {where} ORDER BY {_AT}, {_FILE}, {_LINE}"


def keys_between(views: Iterable[View], since: datetime | None, until: datetime) -> str:
    """Query for the distinct keys, as entity columns in name order, that have a row in any of `views` in that time.

    All views must have the same entity columns.
    """
    parts = []
    for view in views:
        names = ", ".join(f"{_name(view.keys[entity])} AS {_name(entity)}" for entity in sorted(view.keys))
        since_too = f" AND {_AT} >= {_instant(since)}" if since else ""
        parts.append(f"SELECT DISTINCT {names} FROM ({_read(view.rows)}) WHERE {_AT} <= {_instant(until)}{since_too}")
    return " UNION ".join(parts) + " ORDER BY ALL"


def _as_of(view: View) -> str:
    """Features per entity row, by an ASOF join."""
    at_most_as_old = f"f.{_AT} >= e.{_AT} - to_microseconds({view.ttl_us})"
    # The feature rows stand in a CTE: in a subquery of an ASOF join, DuckDB takes a name that both sides have for the
    # entity's, and correlates the two, which costs their product.
    return (
        f"WITH rows AS ({_read(view.rows)}), f AS (SELECT * FROM rows {_last_of([*view.keys.values(), _AT])}) "
        f"SELECT {_features(view, at_most_as_old)} FROM entities e ASOF LEFT JOIN f "
        f"ON {_matches(view)} e.{_AT} >= f.{_AT} ORDER BY e.{_ROW}"
    )


def _known_then(view: View) -> str:
    """Features per entity row from rows that had been created by then.

    A row can be seen from `known`, the later of its two times, on. So the best row of all that can be seen is a running
    maximum in the order of `known`, and the ASOF join is on `known`.
    """
    keys = _names(view.keys.values())
    partition = f"PARTITION BY {keys} " if keys else ""
    rank = f"{{'a': {_AT}, 'c': {_CREATED}, 'f': {_FILE}, 'l': {_LINE}}}"
    at_most_as_old = f"f.{_AT} >= e.{_AT} - to_microseconds({view.ttl_us})"
    return (
        f"WITH rows AS ({_read(view.rows)}), "
        f"seen AS (SELECT *, greatest({_AT}, {_CREATED}) AS {_KNOWN}, {rank} AS {_BEST} FROM rows "
        f"WHERE {_CREATED} IS NOT NULL), "
        f"best AS (SELECT {keys + ', ' if keys else ''}{_KNOWN}, max({_BEST}) OVER "
        f"({partition}ORDER BY {_KNOWN} RANGE UNBOUNDED PRECEDING) AS {_BEST} FROM seen), "
        f"step AS (SELECT DISTINCT * FROM best), "
        f"chosen AS (SELECT e.{_ROW}, e.{_AT}, f.{_BEST} FROM entities e ASOF LEFT JOIN step f "
        f"ON {_matches(view)} e.{_AT} >= f.{_KNOWN}) "
        f"SELECT {_features(view, at_most_as_old)} FROM chosen e LEFT JOIN rows f "
        f"ON f.{_FILE} = e.{_BEST}.f AND f.{_LINE} = e.{_BEST}.l ORDER BY e.{_ROW}"
    )


def _read(rows: Rows) -> str:
    files = ", ".join(_text(file) for file in rows.files)
    created = f"CAST({_name(rows.created)} AS TIMESTAMPTZ)" if rows.created else "NULL"
    return (
        f"SELECT *, CAST({_name(rows.timestamp)} AS TIMESTAMPTZ) AS {_AT}, {created} AS {_CREATED} FROM read_parquet("
        f"[{files}], union_by_name = true, hive_partitioning = false, filename = '{_FILE}', file_row_number = true)"
    )


def _last_of(group: Sequence[str], *, by_time: bool = False) -> str:
    """A clause that keeps one row of each group: the last by time (if asked), creation and place in the files."""
    partition = f"PARTITION BY {_names(group)} " if group else ""
    time = f"{_AT} DESC, " if by_time else ""
    order = f"{time}{_CREATED} DESC NULLS LAST, {_FILE} DESC, {_LINE} DESC"
    return f"QUALIFY row_number() OVER ({partition}ORDER BY {order}) = 1"


def _features(view: View, at_most_as_old: str) -> str:
    shown = "CASE WHEN {condition} THEN f.{column} END AS {name}" if view.ttl_us else "f.{column} AS {name}"
    return ", ".join(
        shown.format(condition=at_most_as_old, column=_name(column), name=_name(name))
        for name, column in view.features.items()
    )


def _matches(view: View) -> str:
    return "".join(f"e.{_name(entity)} = f.{_name(column)} AND " for entity, column in view.keys.items())


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: Iterable[str]) -> str:
    return ", ".join(_name(name) for name in names)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _instant(time: datetime) -> str:
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no time zone: give one, for example datetime(…, tzinfo=UTC)")
    return f"TIMESTAMPTZ '{time.astimezone(UTC).isoformat(sep=' ')}'"


class _Interrupt:
    """Interrupts a connection's query after some seconds."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, after_s: float) -> None:
        self._timer = threading.Timer(after_s, connection.interrupt)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()


def _interrupting(connection: duckdb.DuckDBPyConnection, after_s: float | None) -> AbstractContextManager[None]:
    return nullcontext() if after_s is None else _Interrupt(connection, after_s)

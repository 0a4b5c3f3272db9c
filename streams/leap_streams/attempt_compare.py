"""The attempts that the online store remembers, beside the first events of the archive.

An attempt that is forgotten too soon would count twice, one that is remembered wrongly not at all. A claim is right if
the archive has an event of that attempt and content at its position; whether that was the first of several is for the
worker to say, to whom they may have come in another order.
"""

# ruff: noqa: S608 - names are this product's own.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import duckdb
import pyarrow as pa

from leap_features.history import Position
from leap_features.history_build import Ends
from leap_features.meta import Meta, attempt_value, decode_attempt, decode_attempt_key
from leap_streams.row_restore import Say
from leap_streams.store import Store
from leap_streams.store_scan import scan

ATTEMPTS_AT_ONCE: Final = 5_000

AttemptVerdict = Literal["forgotten", "wrong", "unknown"]

MEANINGS: Final[Mapping[AttemptVerdict, str]] = {
    "forgotten": "are not remembered online: reported again they would count twice",
    "wrong": "are remembered online otherwise than the archive has them",
    "unknown": "are remembered online, and the archive has none of that name: reported, they would not count",
}


class AttemptDifference(NamedTuple):
    """An attempt of which the store does not remember what it should."""

    succeeded: bool
    attempt_id: str
    verdict: AttemptVerdict
    stored: bytes
    """What the store remembers; empty for nothing."""
    archived: bytes
    """What it should; empty for nothing."""


def compare(
    connection: duckdb.DuckDBPyConnection, store: Store, meta: Meta, ends: Ends, since_us: int, say: Say
) -> Iterator[list[AttemptDifference]]:
    """The attempts that are not remembered as they should be.

    Args:
        connection: a DuckDB with the tables of `first_events.load`.
        meta: what the store said about itself before.
        ends: how far the archive was.
        since_us: an attempt that was recorded later, in microseconds since 1970, must be remembered.
    """
    _load_remembered(connection, store, say)
    lanes = [(*map(int, lane.split(":")), end) for lane, end in ends.items()]
    _table(connection, "archived_lanes", lanes)
    _table(connection, "online_lanes", [(meta.epoch, p, offset) for p, offset in meta.checkpoints.items()])
    identity = "succeeded, attempt_id"
    place = 'epoch, partition, "offset"'
    connection.execute(f"""
        CREATE OR REPLACE TABLE differing AS
        WITH places AS (
            SELECT {identity}, effective.epoch, effective.partition, effective."offset", digest
            FROM (SELECT *, status = 'succeeded' AS succeeded FROM effective) AS effective
            SEMI JOIN firsts USING ({identity}, digest)
        ), wrong AS (
            SELECT DISTINCT {identity}, stored
            FROM (SELECT * FROM remembered JOIN archived_lanes USING (epoch, partition) WHERE "offset" < "end")
            ANTI JOIN places USING ({identity}, {place}, digest)
        ), forgotten AS (
            SELECT firsts.* FROM firsts LEFT JOIN online_lanes USING (epoch, partition)
            WHERE recorded_us >= {since_us:d}
                AND (epoch < {meta.epoch:d} OR (epoch = {meta.epoch:d} AND "offset" < coalesce("end", 0)))
        )
        SELECT {identity}, stored, {place}, digest FROM wrong LEFT JOIN firsts USING ({identity})
        UNION ALL
        SELECT {identity}, ''::BLOB, {place}, digest FROM forgotten ANTI JOIN remembered USING ({identity})
    """)
    found = connection.execute(f"SELECT {identity}, stored, digest, {place} FROM differing")
    while batch := found.fetchmany(ATTEMPTS_AT_ONCE):
        yield [_difference(*row) for row in batch]


def _difference(succeeded: bool, attempt_id: str, stored: bytes, digest: str | None, *place: int) -> AttemptDifference:
    archived = b"" if digest is None else attempt_value(Position(*place), digest)
    verdict: AttemptVerdict = "forgotten" if not stored else "wrong" if archived else "unknown"
    return AttemptDifference(succeeded, attempt_id, verdict, stored, archived)


def _load_remembered(connection: duckdb.DuckDBPyConnection, store: Store, say: Say) -> None:
    """Make the table `remembered` of what the store remembers. An attempt may stand there twice."""
    connection.execute("""
        CREATE OR REPLACE TABLE remembered (
            succeeded BOOLEAN, attempt_id VARCHAR, epoch BIGINT, partition BIGINT, "offset" BIGINT, digest VARCHAR,
            stored BLOB
        )
    """)
    for page in scan(store, say):
        values = store.call([(b"MGET", *page.attempts)])[0] if page.attempts else []
        _insert(
            connection,
            "remembered",
            [
                (*decode_attempt_key(store.project, key), *_claimed(value), value)
                for key, value in zip(page.attempts, values, strict=True)
                if value is not None  # else it has been forgotten meanwhile, in due time
            ],
        )


def _claimed(value: bytes) -> tuple[int, int, int, str]:
    position, digest = decode_attempt(value)
    return *position, digest


def _table(connection: duckdb.DuckDBPyConnection, name: str, lanes: Sequence[tuple[int, ...]]) -> None:
    connection.execute(f'CREATE OR REPLACE TABLE {name} (epoch BIGINT, partition BIGINT, "end" BIGINT)')
    _insert(connection, name, lanes)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        columns = {f"c{at}": list(column) for at, column in enumerate(zip(*rows, strict=True))}
        connection.register("page", pa.table(columns))
        connection.execute(f"INSERT INTO {table} SELECT * FROM page")
        connection.unregister("page")

"""The first event of each attempt in the archive: what the online store must remember, so that none counts twice."""

# ruff: noqa: S608 - names are this product's own.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import duckdb

from leap_features import archive_reader, attempts
from leap_features.archive_reader import Segment
from leap_features.history import Position

ATTEMPTS_AT_ONCE: Final = 5_000


class FirstEvent(NamedTuple):
    """Where an attempt was reported first, and with what."""

    succeeded: bool
    attempt_id: str
    position: Position
    digest: str


def load(connection: duckdb.DuckDBPyConnection, found: Sequence[Segment], horizon_us: int) -> int:
    """Make the tables `effective` (events that count, or repeat one) and `firsts` of the segments `found`.

    Args:
        horizon_us: the worker's horizon, in microseconds.

    Returns:
        The greatest record time, in microseconds since 1970; 0 without events.
    """
    connection.execute("SET preserve_insertion_order = false")  # bounds the memory; nothing here has an order
    connection.execute(
        "CREATE OR REPLACE TABLE effective AS "
        f"{archive_reader.relation(found, attempts.NEEDED, attempts.taken_in(horizon_us))}"
    )
    connection.execute(f"""
        CREATE OR REPLACE TABLE firsts AS
        SELECT status = 'succeeded' AS succeeded, attempt_id, epoch, partition, "offset", digest,
            epoch_us(recorded_at) AS recorded_us
        FROM ({attempts.with_first("effective")}) WHERE folds
    """)
    ((latest_us,),) = connection.execute("SELECT coalesce(epoch_us(max(recorded_at)), 0) FROM effective").fetchall()
    return int(latest_us)


def since(connection: duckdb.DuckDBPyConnection, since_us: int) -> tuple[int, Iterator[list[FirstEvent]]]:
    """How many of the table `firsts` were recorded at `since_us` (microseconds since 1970) or later, and these."""
    recent = f"FROM firsts WHERE recorded_us >= {since_us:d}"
    ((count,),) = connection.execute(f"SELECT count(*) {recent}").fetchall()

    def batches() -> Iterator[list[FirstEvent]]:
        cursor = connection.execute(f'SELECT succeeded, attempt_id, epoch, partition, "offset", digest {recent}')
        while batch := cursor.fetchmany(ATTEMPTS_AT_ONCE):
            yield [FirstEvent(succeeded, attempt, Position(*at), digest) for succeeded, attempt, *at, digest in batch]

    return count, batches()

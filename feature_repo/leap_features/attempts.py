"""Which archived events count: the rules by which the worker takes events in, as SQL over the archive.

- Only succeeded and failed attempts have an effect on history.
- An event that completed more than the clock allowance after it was recorded, or that was recorded later than the
  horizon after it completed and was not replayed, never came past the worker's door.
- The first event of an attempt counts, one for success and one for failure. A later one of the same content is a
  duplicate: it counts nothing, but its position has been taken in. A later one of other content is a conflict and
  changes nothing.

The first is the least by (epoch, greatest record time so far in its partition, partition, offset): within a partition
the order of offsets, whatever the broker's clock did.
"""

# ruff: noqa: S608 - relations are this product's own.

from __future__ import annotations

from leap_features.events import CLOCK_ALLOWANCE_US

NEEDED = ("epoch", "partition", "offset", "recorded_at", "replay", "status", "attempt_id", "completed_at", "digest")
"""Columns of the archive that the rules look at."""


def taken_in(horizon_us: int) -> str:
    """SQL condition: the event in a row of the archive came past the worker's door and has an effect on history."""
    age = "(epoch_us(recorded_at) - epoch_us(completed_at))"
    return (
        f"status IN ('succeeded', 'failed') AND {age} >= {-CLOCK_ALLOWANCE_US} AND (replay OR {age} <= {horizon_us:d})"
    )


def with_first(relation: str) -> str:
    """SQL query: `relation` (rows that satisfy `taken_in`) with two more columns.

    `folds`: whether the row is the first event of its attempt; `first_digest`: the content of that first event. A row
    that does not fold is a duplicate where its digest equals `first_digest`, else a conflict.
    """
    # Nearly all attempts have one event. Only the others are worth sorting.
    return f"""
        WITH repeated AS (
            SELECT status = 'succeeded' AS succeeded, attempt_id FROM {relation} GROUP BY ALL HAVING count(*) > 1
        ), known AS (
            SELECT events.*, max(recorded_at) OVER (
                PARTITION BY status, attempt_id, epoch, partition ORDER BY "offset" ROWS UNBOUNDED PRECEDING
            ) AS known_at
            FROM {relation} AS events SEMI JOIN repeated
            ON (events.status = 'succeeded') = repeated.succeeded AND events.attempt_id = repeated.attempt_id
        )
        SELECT *, true AS folds, digest AS first_digest
        FROM {relation} AS events ANTI JOIN repeated
        ON (events.status = 'succeeded') = repeated.succeeded AND events.attempt_id = repeated.attempt_id
        UNION ALL
        SELECT * EXCLUDE known_at, row_number() OVER attempt = 1, first_value(digest) OVER attempt
        FROM known
        WINDOW attempt AS (PARTITION BY status, attempt_id ORDER BY epoch, known_at, partition, "offset")
    """

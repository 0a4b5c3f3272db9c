"""Archives for tests: events written as segments, and what history rows a build has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from events_strategies import BASE, raw_event
from leap_features import archive
from leap_features.events import CompletionEvent, decode, to_us
from leap_features.history import Position
from leap_features.levels import LEVELS
from leap_features.meta import FIRST_LIVE_EPOCH

MINUTE_US = 60_000_000
DAY_US = 86_400_000_000
HORIZON_US = 7 * DAY_US


def event(attempt_id: str, minute: float = 0, **changes: Any) -> CompletionEvent:
    """A valid event that completed `minute` minutes after the base time."""
    return decode(raw_event(attempt_id=attempt_id, completed=BASE + timedelta(minutes=minute), **changes))


def write_events(
    root: Path | str,
    events: Sequence[CompletionEvent],
    *,
    epoch: int = FIRST_LIVE_EPOCH,
    partition: int = 0,
    first: int = 0,
    lag_us: int = 0,
    replay: bool = False,
) -> Path:
    """One segment: `events` at the offsets from `first` on, each recorded `lag_us` after its completion."""
    archive.create(root)
    records = [
        archive.to_record(event, Position(epoch, partition, first + at), to_us(event.completed_at) + lag_us, replay)
        for at, event in enumerate(events)
    ]
    return archive.write_segment(root, epoch, partition, first, first + len(events) - 1, records)


def rows_of(history: Path | str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a build by view, ordered by key and time."""
    return {
        level.view: sorted(
            pq.read_table(Path(history) / level.view).to_pylist(),
            key=lambda row: (*(row[name] for name in level.join_keys), row["event_timestamp"]),
        )
        for level in LEVELS
    }


def latest(history: Path | str, view: str) -> list[Mapping[str, Any]]:
    """The latest row of every key of a view."""
    (level,) = (level for level in LEVELS if level.view == view)
    found = {tuple(row[name] for name in level.join_keys): row for row in rows_of(history)[view]}
    return list(found.values())

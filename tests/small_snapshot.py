"""Snapshots of made-up rows, and what they hold, for tests of those who read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leap_features.family import DEFAULT_RULES
from leap_features.layout import Value
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.history.request import MetaReading, StoredRow
from leap_predictor.history.snapshot_file import Footer
from leap_predictor.history.snapshot_writer import SnapshotRow, write_snapshot
from leap_predictor.manifest import View, history_views
from stored_history import Subject

VIEWS = history_views()
AS_OF = datetime(2026, 3, 1, 4, tzinfo=UTC)
Key = tuple[str | int, ...]
Row = tuple[int | None, Sequence[Value]]
"""Record time and values."""
Rows = Mapping[tuple[View, Key], Row]


def meta(generation: str = "g1") -> MetaReading:
    """Of a store that is ready."""
    return MetaReading(SCHEMA_VERSION, DEFAULT_RULES.version, generation, "ready")


def write(path: Path, rows: Rows, *, generation: str = "g1", project: str = "leap") -> Footer:
    """Write `rows` to a snapshot."""
    made = (SnapshotRow(view, key, values, at) for (view, key), (at, values) in rows.items())
    return write_snapshot(path, made, views=VIEWS, project=project, meta=meta(generation), as_of=AS_OF)


def values(**changes: Value) -> tuple[Value, ...]:
    """Those of a row that saw one run, with `changes`."""
    of_row: dict[str, Any] = {
        "last": 4.5,
        "mean": 4.5,
        "std": 0.0,
        "count": 1,
        "last_seen": 1_700_000_000_000_000,
        "failures_since_success": 0,
        "last_hardware_type": "H100",
        "last_trainer_count": 8,
        "last_batch_size": 32.0,
        "mean_log_trainers": 2.1,
        "mean_log_batch": 3.5,
    } | changes
    return tuple(of_row[feature.name] for feature in VIEWS[0].features)


def rows_of(subjects: Sequence[Subject], **changes: Value) -> dict[tuple[View, Key], Row]:
    """The same row of every level for all `subjects`."""
    return {
        (view, tuple(getattr(subject, name) for name in view.join_keys)): (1_700_000_000_000_000, values(**changes))
        for subject in subjects
        for view in VIEWS
    }


def wanted(rows: Rows, subjects: Sequence[Subject]) -> tuple[dict[str, StoredRow | None], ...]:
    """What must be read for `subjects`, looked up in `rows`."""
    answer = []
    for subject in subjects:
        of_subject: dict[str, StoredRow | None] = {}
        for view in VIEWS:
            found = rows.get((view, tuple(getattr(subject, name) for name in view.join_keys)))
            names = [feature.name for feature in view.features]
            of_subject[view.view] = (
                None if found is None else StoredRow(dict(zip(names, found[1], strict=True)), found[0])
            )
        answer.append(of_subject)
    return tuple(answer)

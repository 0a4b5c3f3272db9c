"""History rows and meta put into a Redis as the worker would, for tests of those who read them."""

from __future__ import annotations

from typing import NamedTuple

import redis

from leap_features.events import fixed_log
from leap_features.family import DEFAULT_RULES
from leap_features.history import EMPTY, FEATURES, Position, Row, Run, features, fold
from leap_features.layout import encode_timestamp, encode_value, entity_key, field, timestamp_field
from leap_features.levels import LEVELS, Level
from leap_features.meta import FIRST_LIVE_EPOCH, SCHEMA_VERSION, Meta, encode_meta, meta_key

DAY_US = 86_400_000_000


class Subject(NamedTuple):
    """Whose history."""

    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int


def store_meta(client: redis.Redis, project: str, **changes: str) -> None:
    """Make the store ready, with `changes` to its meta."""
    meta = Meta(
        schema=SCHEMA_VERSION,
        family_rule=DEFAULT_RULES.version,
        epoch=FIRST_LIVE_EPOCH,
        topic_uuid="",
        generation="g1",
        state="ready",
    )
    fields = encode_meta(meta) | {name.encode(): value.encode() for name, value in changes.items()}
    client.hset(meta_key(project), mapping=dict(fields))  # type: ignore[arg-type]  # keys may be bytes


def store_row(client: redis.Redis, project: str, level: Level, subject: Subject, row: Row) -> None:
    """Write one history row."""
    values = features(row)
    mapping = {field(level.view, name): encode_value(values[name]) for name, _ in FEATURES}
    mapping[timestamp_field(level.view)] = encode_timestamp(row.recorded_at_us)
    key = entity_key(project, level.join_keys, level.key(subject))
    client.hset(key, mapping=dict(mapping))  # type: ignore[arg-type]  # keys may be bytes


def store_runs(client: redis.Redis, project: str, subject: Subject, throughputs: list[float | None]) -> dict[str, Row]:
    """Fold runs of `subject` (None: a failure), a day apart, into all levels; return the rows by view."""
    rows = {}
    for level in LEVELS:
        row = EMPTY
        for offset, throughput in enumerate(throughputs):
            run = Run(
                succeeded=throughput is not None,
                completed_at_us=(offset + 1) * DAY_US,
                attempt_id=f"attempt-{offset}",
                x=0 if throughput is None else fixed_log(throughput),
                log_trainers=fixed_log(subject.trainer_count),
                log_batch=fixed_log(32.0),
                hardware_type=subject.hardware_type,
                trainer_count=subject.trainer_count,
                batch_size=32.0,
            )
            row = fold(row, run, Position(FIRST_LIVE_EPOCH, 0, offset), run.completed_at_us + 1_000)
        store_row(client, project, level, subject, row)
        rows[level.view] = row
    return rows

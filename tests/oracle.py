"""The slow, obvious oracle: rows of every level from the plain list of records that a topic holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import redis

from leap_features import layout
from leap_features.events import InvalidEvent, check_recorded, content_digest, decode
from leap_features.family import family_of_event
from leap_features.history import EMPTY, FEATURES, Position, Row, features, fold, run_of, touch
from leap_features.layout import Value
from leap_features.levels import LEVELS
from leap_streams.history_writer import Delivery, Subject

Key = tuple[str, tuple[str | int, ...]]
"""View and values of its join keys."""


class Expected(NamedTuple):
    """What a topic's records come to."""

    rows: dict[Key, dict[str, Value]]
    dead_letters: dict[tuple[int, int], str]
    """(partition, offset) → rule."""


def expected_of(deliveries: Iterable[Delivery], epoch: int, horizon_us: int) -> Expected:
    """Rows and dead letters of `deliveries`, each of which may stand there more than once."""
    return expected_of_lives({epoch: deliveries}, horizon_us)


def expected_of_lives(lives: Mapping[int, Iterable[Delivery]], horizon_us: int) -> Expected:
    """The same of several lives of a topic, by epoch. Dead letters are those of the last one."""
    rows: dict[Key, Row] = {}
    dead: dict[tuple[int, int], str] = {}
    first: dict[tuple[bool, str], tuple[Position, str]] = {}
    for epoch in sorted(lives):
        dead.clear()
        for delivery in lives[epoch]:
            position = Position(epoch, delivery.partition, delivery.offset)
            try:
                if delivery.value is None:
                    raise InvalidEvent("empty", "")
                event = decode(delivery.value)
                check_recorded(event, delivery.recorded_at_us, horizon_us, delivery.replay)
            except InvalidEvent as error:
                dead[delivery.partition, delivery.offset] = error.rule
                continue
            run = run_of(event)
            if run is None:
                continue
            digest = content_digest(event)
            claimed, with_digest = first.setdefault((run.succeeded, run.attempt_id), (position, digest))
            if digest != with_digest:
                dead[delivery.partition, delivery.offset] = "conflicting_attempt"
                continue
            subject = Subject(family_of_event(event), event.model_type, event.hardware_type, event.trainer_count)
            for level in LEVELS:
                key = (level.view, level.key(subject))
                row = rows.get(key, EMPTY)
                recorded = delivery.recorded_at_us
                rows[key] = (
                    fold(row, run, position, recorded) if claimed == position else touch(row, position, recorded)
                )
    return Expected({key: stamped(row) for key, row in rows.items()}, dead)


def stamped(row: Row) -> dict[str, Value]:
    """Features of `row` and its event timestamp in microseconds."""
    return features(row) | {"event_timestamp": row.recorded_at_us}


def stored_rows(client: redis.Redis, project: str) -> dict[Key, dict[str, Value]]:
    """Every history row in Redis, decoded."""
    views = {tuple(sorted(level.join_keys)): level for level in LEVELS}
    found: dict[Key, dict[str, Value]] = {}
    for key in client.scan_iter(match=b"*" + project.encode()):
        try:
            names, values = layout.decode_entity_key(key, project)
        except layout.LayoutError:
            continue
        level = views.get(names)
        if level is None:
            continue
        fields: Mapping[bytes, bytes] = client.hgetall(key)
        by_name = dict(zip(names, values, strict=True))
        row: dict[str, Value] = {
            name: layout.decode_value(fields.get(layout.field(level.view, name))) for name, _ in FEATURES
        }
        row["event_timestamp"] = layout.decode_timestamp(fields[layout.timestamp_field(level.view)])
        found[level.view, tuple(by_name[name] for name in level.join_keys)] = row
    return found

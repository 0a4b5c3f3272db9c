"""`leap rebuild`: the online store from the archive.

The steps, in this order:

1. check that the archive has everything that the store will be said to have, and build the history rows;
2. take a new generation, state `rebuilding`: workers wait, and whatever they still had under way is refused;
3. delete the project's history rows and attempts;
4. write the rows, by Feast's materialize;
5. write the attempts that may still be repeated within the horizon;
6. write the checkpoints (where the archive ends) and the state `ready`, in one step.

A rebuild that is killed leaves the state `rebuilding`: nobody takes half a store for a whole one. Another rebuild
starts from the beginning. Of two rebuilds at once the later one wins; the earlier one does not get to step 6.
"""

# ruff: noqa: S608 - names are this product's own, paths are quoted.

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from leap_features import archive, archive_reader, attempts, family, feature_store, history_build
from leap_features.conditional_write import MOVE_CHECKPOINTS, REFUSED
from leap_features.events import from_us, to_us
from leap_features.history import Position
from leap_features.history_rows import PART
from leap_features.levels import LEVELS
from leap_features.meta import (
    FIRST_LIVE_EPOCH,
    SCHEMA_VERSION,
    Meta,
    MetaError,
    attempt_key,
    attempt_value,
    checkpoint_field,
    meta_key,
)
from leap_features.online_store import AtomicRedisOnlineStore
from leap_features.settings import Settings
from leap_streams.kafka import TopicError, topic_uuid
from leap_streams.store import Store, new_generation
from leap_streams.topic_bounds import Bounds, topic_bounds

ATTEMPTS_AT_ONCE: Final = 5_000

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RebuildRefused(RuntimeError):
    """The archive, the topic and the store do not fit together; the message says what to do."""


class Rebuilt(msgspec.Struct, frozen=True):
    """What was written."""

    epoch: int
    generation: str
    rows: dict[str, int]
    """Keys per view."""
    attempts: int
    checkpoints: dict[int, int]


def rebuild(
    settings: Settings,
    *,
    rules: family.Rules,
    new_epoch: bool = False,
    registry: Path | None = None,
    bounds_of: Callable[[Settings], Mapping[int, Bounds] | None] = topic_bounds,
    say: Callable[[str], None] = lambda _line: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Rebuilt:
    """Fill the online store of `settings` from the archive.

    Args:
        new_epoch: the topic was deleted and created again: its offsets begin a new epoch.
        registry: Feast's registry, if not the one of the feature repository.
        bounds_of: asks the broker which offsets it still has; None where it does not answer.

    Raises:
        ArchiveError: there is no archive, or it lacks events.
        RebuildRefused: the topic is another one than that of the archive, or another rebuild began meanwhile.
        HistoryError, FeatureRepoError: the history rows cannot be built, or Feast cannot be used.
        Unavailable, Halt: the store does not answer, or refuses.
    """
    store = Store(settings)
    try:
        before = _meta(store)
        epoch = _epoch(settings, before, new_epoch)
        bounds = bounds_of(settings)
        if bounds is None:
            say(f"no topic {settings.topic} at {settings.kafka_brokers}: it is not checked against the archive")
        uuid = _check_topic(settings, before, epoch, bounds, new_epoch=new_epoch)

        built = history_build.build(
            settings.archive, settings.history, horizon_us=settings.horizon_us, rules=rules, say=say
        )
        checkpoints = _checkpoints(built.ends, epoch)
        feast = feature_store.open_feature_store(settings, registry)
        feature_store.apply_definitions(feast, settings)

        meta = Meta(
            schema=SCHEMA_VERSION,
            family_rule=rules.version,
            epoch=epoch,
            topic_uuid=uuid,
            generation=new_generation(),
            state="rebuilding",
        )
        store.write_meta(meta)
        say("online store: rebuilding; workers wait")
        views = [feast.get_feature_view(level.view) for level in LEVELS]
        online = AtomicRedisOnlineStore()
        for view in views:
            online.delete_table(feast.config, view)
        _delete_attempts(store)
        keys = _keys(settings)
        say(f"online store: writing {sum(keys.values()):,} rows")
        with redirect_stdout(io.StringIO()):  # Feast prints headings in colour, also into a pipe
            feast.materialize(start_date=BEGINNING, end_date=_end(settings, now()))
        remembered = _write_attempts(store, settings, now())
        _finish(store, meta, checkpoints)
        say("online store: ready")
        return Rebuilt(epoch, meta.generation, keys, remembered, checkpoints)
    finally:
        store.close()


def _meta(store: Store) -> Meta | None:
    """What the store says about itself; None where that cannot be used: a rebuild is what mends it."""
    try:
        return store.read_meta()
    except MetaError:
        return None


def _epoch(settings: Settings, before: Meta | None, new_epoch: bool) -> int:
    """The epoch of the topic's present life."""
    live = [segment.epoch for segment in archive.segments(settings.archive) if segment.epoch >= FIRST_LIVE_EPOCH]
    known = max([*live, before.epoch if before else 0], default=0)
    if new_epoch and known:
        return known + 1
    return known or FIRST_LIVE_EPOCH


def _check_topic(
    settings: Settings, before: Meta | None, epoch: int, bounds: Mapping[int, Bounds] | None, *, new_epoch: bool
) -> str:
    """Check that the topic, as far as it can be asked, is the archive's; return its UUID, empty where unknown."""
    known = before.topic_uuid if before and not new_epoch else ""
    if bounds is None:
        archive.check_complete(settings.archive)
        return known
    try:
        uuid = "" if settings.allow_create_time else topic_uuid(settings)
    except TopicError as error:
        raise RebuildRefused(str(error)) from None
    if known and uuid and known != uuid:
        raise RebuildRefused(
            f"topic {settings.topic} has UUID {uuid}, the online store follows {known}: the topic was deleted and "
            "created again; `leap rebuild --new-epoch` begins a new epoch for it"
        )
    if new_epoch:
        archive.check_complete(settings.archive)
        return uuid
    for partition, end in archive.end_offsets(settings.archive, epoch).items():
        if partition not in bounds or end > bounds[partition].end:
            ends = f"ends at {bounds[partition].end}" if partition in bounds else "does not exist"
            raise RebuildRefused(
                f"the archive has epoch {epoch}, partition {partition} up to offset {end}, but in topic "
                f"{settings.topic} it {ends}: the topic was deleted and created again; `leap rebuild --new-epoch` "
                "begins a new epoch for it"
            )
    archive.check_complete(settings.archive, {(epoch, p): bound.first for p, bound in bounds.items()})
    return uuid


def _checkpoints(ends: history_build.Ends, epoch: int) -> dict[int, int]:
    """Partition → offset after the last one that the history rows have of `epoch`."""
    lanes = {tuple(map(int, lane.split(":"))): end for lane, end in ends.items()}
    return {partition: end for (of_epoch, partition), end in lanes.items() if of_epoch == epoch}


def _delete_attempts(store: Store) -> None:
    """Forget every attempt."""
    pattern = attempt_key(store.project, True, "").removesuffix(b"s:") + b"*"
    cursor = b"0"
    while True:
        ((cursor, keys),) = store.call([(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"1000")])
        if keys:
            store.call([(b"UNLINK", *keys)])
        if cursor == b"0":
            return


def _end(settings: Settings, now: datetime) -> datetime:
    """Up to when rows are materialized: now, or later where the topic's times are the producers' and lie ahead."""
    # Every event that any row takes in is in a row of the first level.
    rows = archive_reader.file_literal(Path(settings.history) / LEVELS[0].view / PART)
    with archive_reader.connect() as connection:
        ((latest_us,),) = connection.execute(
            f"SELECT coalesce(epoch_us(max(event_timestamp)), 0) FROM read_parquet({rows})"
        ).fetchall()
    return max(now, from_us(latest_us)) + timedelta(seconds=1)


def _write_attempts(store: Store, settings: Settings, now: datetime) -> int:
    """Remember the attempts that may be repeated without being too late; how many they are."""
    memory_ms = settings.attempt_memory_ms
    written = 0
    for batch in _recent_attempts(settings, memory_ms, now):
        store.call(
            [
                (
                    b"SET",
                    attempt_key(settings.project, succeeded, attempt_id),
                    attempt_value(Position(*position), digest),
                    b"PX",
                    str(memory_ms).encode(),
                )
                for succeeded, attempt_id, digest, *position in batch
            ]
        )
        written += len(batch)
    return written


def _recent_attempts(settings: Settings, memory_ms: int, now: datetime) -> Iterator[list[tuple[Any, ...]]]:
    """Attempts of the last `memory_ms`, in batches of (succeeded, attempt_id, digest, epoch, partition, offset).

    The last record time is the clock where it lies before `now`: in a topic whose producers set the times, or one that
    has been silent for long, attempts may still be repeated as if no time had passed.
    """
    with tempfile.TemporaryDirectory(prefix="leap-rebuild-") as spill, archive_reader.connect(spill) as connection:
        relation = archive_reader.relation(
            archive.segments(settings.archive), attempts.NEEDED, attempts.taken_in(settings.horizon_us)
        )
        connection.execute(f"CREATE TABLE effective AS {relation}")
        ((latest_us,),) = connection.execute("SELECT epoch_us(max(recorded_at)) FROM effective").fetchall()
        if latest_us is None:
            return
        since_us = min(latest_us, to_us(now)) - memory_ms * 1000
        cursor = connection.execute(f"""
            SELECT status = 'succeeded', attempt_id, digest, epoch, partition, "offset"
            FROM ({attempts.with_first("effective")}) WHERE folds AND epoch_us(recorded_at) >= {since_us}
        """)
        while batch := cursor.fetchmany(ATTEMPTS_AT_ONCE):
            yield batch


def _finish(store: Store, meta: Meta, checkpoints: Mapping[int, int]) -> None:
    """Write checkpoints and the state `ready`, if the store is still in this rebuild's generation."""
    fields = [b"state", b"ready"]
    for partition, end in sorted(checkpoints.items()):
        fields += (checkpoint_field(partition), str(end).encode())
    (reply,) = store.call(
        [
            (
                b"EVAL",
                MOVE_CHECKPOINTS.encode(),
                b"1",
                meta_key(store.project),
                meta.generation.encode(),
                b"0",  # no checkpoint to compare: there are none in this generation
                *fields,
            )
        ]
    )
    if reply == REFUSED:
        raise RebuildRefused("another rebuild began meanwhile; it goes on, this one has stopped")


def _keys(settings: Settings) -> dict[str, int]:
    """Number of keys per view."""
    counts: dict[str, int] = {}
    with archive_reader.connect() as connection:
        for level in LEVELS:
            rows = archive_reader.file_literal(Path(settings.history) / level.view / PART)
            keys = ", ".join(level.join_keys)
            ((counts[level.view],),) = connection.execute(
                f"SELECT count(*) FROM (SELECT DISTINCT {keys} FROM read_parquet({rows}))"
            ).fetchall()
    return counts

"""`leap rebuild`: the online store from the archive.

The steps, in this order:

1. check that the archive has everything that the store will be said to have, and build the history rows;
2. take a new generation, state `rebuilding`: workers wait, and whatever they still had under way is refused;
3. remove the project's history rows and attempts;
4. write the rows;
5. write the attempts that may still be repeated within the horizon;
6. write the checkpoints and the state `ready`, in one step.

A checkpoint is where the archive ended at step 1, or where the worker had come to if that is less: what breaks a rule
is not in the archive, and only a worker that goes over it sends it to the dead letters. The rows have the rest already.

A rebuild that is killed leaves the state `rebuilding`: nobody takes half a store for a whole one. Another rebuild
starts from the beginning. Of two rebuilds at once the later one wins: the earlier one is refused at its next write.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

import msgspec

from leap_features import archive, archive_epochs, archive_reader, family, first_events, history_build
from leap_features.archive_epochs import Life
from leap_features.conditional_write import MOVE_CHECKPOINTS, REFUSED
from leap_features.events import to_us
from leap_features.history_build import Build
from leap_features.meta import FIRST_LIVE_EPOCH, SCHEMA_VERSION, Meta, MetaError, checkpoint_field, meta_key
from leap_features.settings import Settings
from leap_streams.acknowledged import acknowledged
from leap_streams.faults import Refused
from leap_streams.kafka import TopicError, admin_client, topic_uuid
from leap_streams.row_restore import RowRestore, Say
from leap_streams.store import ANOTHER_STORE, Store, new_generation
from leap_streams.topic_bounds import Bounds, topic_bounds


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


def _uuid_of(settings: Settings) -> str:
    return "" if settings.allow_create_time else topic_uuid(settings, admin_client(settings))


def rebuild(
    settings: Settings,
    *,
    rules: family.Rules,
    new_epoch: bool = False,
    bounds_of: Callable[[Settings], Mapping[int, Bounds] | None] = topic_bounds,
    uuid_of: Callable[[Settings], str] = _uuid_of,
    acknowledged_of: Callable[[Settings, Collection[int]], Mapping[int, int]] = acknowledged,
    say: Say = lambda _line: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Rebuilt:
    """Fill the online store of `settings` from the archive.

    Args:
        new_epoch: the topic was deleted and created again: its offsets begin a new epoch.
        bounds_of: asks the broker which offsets it still has; None where it does not answer.
        uuid_of: asks it for the topic's UUID; empty where it has none.
        acknowledged_of: asks it how far the worker has come, where the store does not say.

    Raises:
        ArchiveError: there is no archive, or it lacks events.
        RebuildRefused: the topic is another one than that of the archive, or another rebuild began meanwhile.
        HistoryError: the history rows cannot be built.
        Unavailable, Halt: the store does not answer, or refuses.
    """
    store = Store(settings)
    try:
        before = _meta(store)
        epoch = _epoch(settings, before, new_epoch)
        bounds = bounds_of(settings)
        if bounds is None:
            say(f"no topic {settings.topic} at {settings.kafka_brokers}: it is not checked against the archive")
        life = _life(settings, before, epoch, bounds, uuid_of, new_epoch=new_epoch)
        if new_epoch:
            archive_epochs.note(settings.archive, epoch, life)
        built = history_build.build(
            settings.archive, settings.history, horizon_us=settings.horizon_us, rules=rules, say=say
        )
        checkpoints = _checkpoints(built.ends, epoch)
        if bounds is not None:
            came_to = _came_to(before, epoch) or acknowledged_of(settings, checkpoints)
            checkpoints = {
                partition: max(bounds[partition].first, min(end, came_to.get(partition, 0)))
                for partition, end in checkpoints.items()
            }
        meta = Meta(
            schema=SCHEMA_VERSION,
            family_rule=rules.version,
            epoch=epoch,
            topic_uuid=life.topic_uuid,
            generation=new_generation(),
            state="rebuilding",
        )
        store.replace_meta(meta, before)
        say("online store: rebuilding; workers wait")
        restore = RowRestore(store, meta.generation, say)
        restore.clear()
        rows = restore.write_rows(history_build.current(settings.history))
        remembered = _write_attempts(restore, settings, built, now(), say)
        _finish(store, meta, checkpoints)
        say("online store: ready")
        return Rebuilt(epoch, meta.generation, rows, remembered, checkpoints)
    except Refused:
        raise RebuildRefused(
            "another rebuild, or `leap epoch new`, has taken the store over meanwhile; this one has stopped"
        ) from None
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
    archive.check_format(settings.archive)
    known = max([*archive_epochs.live_epochs(settings.archive), before.epoch if before else 0], default=0)
    if new_epoch and known:
        return known + 1
    return known or FIRST_LIVE_EPOCH


def _life(
    settings: Settings,
    before: Meta | None,
    epoch: int,
    bounds: Mapping[int, Bounds] | None,
    uuid_of: Callable[[Settings], str],
    *,
    new_epoch: bool,
) -> Life:
    """The life of the topic that `epoch` is, once the topic is known to be the archive's, as far as it can be asked."""
    noted = archive_epochs.noted(settings.archive, epoch)
    known = noted.topic_uuid if noted else before.topic_uuid if before and before.epoch == epoch else ""
    if bounds is None:
        if new_epoch:
            raise RebuildRefused("a new epoch begins where the topic does, and the broker does not say where that is")
        archive.check_complete(settings.archive)
        return Life(known)
    try:
        uuid = uuid_of(settings)
    except TopicError as error:
        raise RebuildRefused(str(error)) from None
    if known and uuid and known != uuid:
        raise RebuildRefused(
            f"topic {settings.topic} has UUID {uuid}, epoch {epoch} is of the topic with UUID {known}: the topic was "
            "deleted and created again; `leap rebuild --new-epoch` begins a new epoch for it"
        )
    if new_epoch:
        archive.check_complete(settings.archive)
        return Life(uuid, {partition: bound.first for partition, bound in bounds.items() if bound.first})
    for partition, end in archive.end_offsets(settings.archive, epoch).items():
        if partition not in bounds or end > bounds[partition].end:
            ends = f"ends at {bounds[partition].end}" if partition in bounds else "does not exist"
            raise RebuildRefused(
                f"the archive has epoch {epoch}, partition {partition} up to offset {end}, but in topic "
                f"{settings.topic} it {ends}: the topic was deleted and created again; `leap rebuild --new-epoch` "
                "begins a new epoch for it"
            )
    archive.check_complete(settings.archive, {(epoch, p): bound.first for p, bound in bounds.items()})
    return Life(uuid)


def _checkpoints(ends: history_build.Ends, epoch: int) -> dict[int, int]:
    """Partition → offset after the last one that the history rows have of `epoch`."""
    lanes = {tuple(map(int, lane.split(":"))): end for lane, end in ends.items()}
    return {partition: end for (of_epoch, partition), end in lanes.items() if of_epoch == epoch}


def _came_to(before: Meta | None, epoch: int) -> Mapping[int, int]:
    """Partition → where the worker had come to, as the store says; empty where it does not."""
    return before.checkpoints if before is not None and before.epoch == epoch else {}


def _write_attempts(restore: RowRestore, settings: Settings, built: Build, now: datetime, say: Say) -> int:
    """Remember the attempts that may be repeated without being too late; how many they are.

    They are those of the events that `built` was made from, and no others: which event of an attempt is the first is
    decided by all that there are.

    The last record time is the clock where it lies before `now`: in a topic whose producers set the times, or one that
    has been silent for long, attempts may still be repeated as if no time had passed.
    """
    with tempfile.TemporaryDirectory(prefix="leap-rebuild-") as spill, archive_reader.connect(spill) as connection:
        found = history_build.segments_of(built, settings.archive)
        latest_us = first_events.load(connection, found, settings.horizon_us)
        since_us = min(latest_us, to_us(now)) - settings.attempt_memory_ms * 1000
        count, batches = first_events.since(connection, since_us)
        say(f"{count:,} attempts may be repeated")
        restore.write_attempts(count, batches, settings.attempt_memory_ms)
    return count


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
        raise Refused(ANOTHER_STORE)

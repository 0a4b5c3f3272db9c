"""`leap epoch new`: the topic's present life gets an epoch of its own, and the online store stays what it is.

For a topic that was deleted and created again, and for one whose retention has passed what the store or the archive
have taken in. What the old epoch brought stays in rows and attempts. The topic is read from its beginning under the
new epoch: an event that was counted before is a duplicate then, so that nothing counts twice. Refused where that would
leave out what a rebuild restores, and, unless told so, where events are lost.

The change is one step in the store, under the condition that it is still the one that was looked at. Workers and
archive app find it at their next write or look, and begin anew by themselves. An archive app that is about to write
confirms the topic's UUID after it has fetched, so that no record of the new life gets into the old epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from confluent_kafka import KafkaException

from leap_features import archive, archive_epochs
from leap_features.archive_epochs import Life
from leap_features.events import to_us
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.faults import Refused
from leap_streams.followed_topic import stored_meta
from leap_streams.kafka import TopicError, admin_client, topic_uuid
from leap_streams.lost_records import Losses, losses, shown
from leap_streams.store import Store, new_generation
from leap_streams.topic_bounds import Bounds, recorded_before, topic_bounds


class EpochRefused(RuntimeError):
    """There is no need for a new epoch, or it would lose events; the message says what to do."""


class TopicNow(NamedTuple):
    """The topic as the broker describes it."""

    uuid: str
    """Empty where the broker has none."""
    bounds: Mapping[int, Bounds]
    forgotten: Mapping[int, Bounds]
    """Offsets that were recorded longer ago than attempts are remembered."""


class NewEpoch(NamedTuple):
    """What was done."""

    epoch: int
    before: int
    lost: Losses


def look_at_topic(settings: Settings) -> TopicNow:
    """What the broker says of the topic of `settings`.

    Raises:
        EpochRefused: there is no such topic, or the broker does not answer.
    """
    bounds = topic_bounds(settings)
    if bounds is None:
        raise EpochRefused(
            f"no topic {settings.topic} at {settings.kafka_brokers}, or the broker does not answer; `leap init` makes "
            "the topics"
        )
    if settings.allow_create_time:  # the embedded broker has neither UUIDs nor times of its own
        return TopicNow("", bounds, {})
    remembered_us = to_us(datetime.now(UTC) - timedelta(milliseconds=settings.attempt_memory_ms))
    try:
        return TopicNow(
            topic_uuid(settings, admin_client(settings)), bounds, recorded_before(settings, remembered_us, bounds)
        )
    except (TopicError, KafkaException) as error:
        raise EpochRefused(str(error)) from None


def new_epoch(
    settings: Settings, *, accept_loss: bool = False, look: Callable[[Settings], TopicNow] = look_at_topic
) -> NewEpoch:
    """Give the topic's present life a new epoch in the online store of `settings`.

    Args:
        accept_loss: go on without what cannot be restored.
        look: asks the broker about the topic.

    Raises:
        EpochRefused: see there.
        ArchiveError: there is no archive, or it cannot be read.
        Halt, Unavailable: the store has no meta, does not answer or refuses; the broker does not answer.
    """
    store = Store(settings)
    try:
        before = stored_meta(store)
        if before.state != "ready":
            raise EpochRefused("the online store is being rebuilt: run `leap rebuild` to its end")
        archived = archive.archived_offsets(settings.archive, before.epoch)
        epochs = archive_epochs.live_epochs(settings.archive)
        topic = look(settings)
        first_left = _first_left(settings, before, archived, topic)
        lost = losses(before.checkpoints, archived, first_left)
        _check_restored(settings, before, lost, epochs)
        _check_remembered(settings, {p: topic.forgotten[p] for p in first_left if p in topic.forgotten})
        if lost and not accept_loss:
            raise EpochRefused(f"{'; '.join(described(lost))}. `leap epoch new --accept-loss` goes on without them")
        epoch = max(before.epoch, *epochs, 0) + 1
        begins = {partition: bounds.first for partition, bounds in topic.bounds.items() if bounds.first}
        archive_epochs.note(settings.archive, epoch, Life(topic.uuid, begins))
        after = msgspec.structs.replace(
            before, epoch=epoch, topic_uuid=topic.uuid, generation=new_generation(), checkpoints={}
        )
        store.replace_meta(after, before)
    except Refused:
        raise EpochRefused("the online store has changed meanwhile (a rebuild?): run `leap epoch new` again") from None
    finally:
        store.close()
    return NewEpoch(epoch, before.epoch, lost)


def described(lost: Losses) -> list[str]:
    """What is lost to whom."""
    lines = []
    if lost.only_online:
        lines.append(
            f"taken in online and never archived, so that no rebuild and no training set will have them: "
            f"{shown(lost.only_online)}"
        )
    if lost.nowhere:
        lines.append(f"deleted by retention before anybody took them in: {shown(lost.nowhere)}")
    return lines


def _first_left(settings: Settings, before: Meta, archived: Mapping[int, range], topic: TopicNow) -> Mapping[int, int]:
    """Partition → first offset that the topic still has of the life that the store follows; absent: none is left.

    Raises:
        EpochRefused: it is the same life, and both store and archive can go on.
    """
    if before.topic_uuid and topic.uuid and before.topic_uuid != topic.uuid:
        return {}
    ends = {
        partition: max(before.checkpoints.get(partition, 0), archived.get(partition, range(0)).stop)
        for partition in {*before.checkpoints, *archived}
    }
    cut = {p for p, end in ends.items() if p not in topic.bounds or topic.bounds[p].end < end}
    if cut and not (before.topic_uuid and topic.uuid):
        return {}
    left = {partition: bounds.first for partition, bounds in topic.bounds.items() if partition not in cut}
    begun = [*before.checkpoints.items(), *((partition, offsets.stop) for partition, offsets in archived.items())]
    if not cut and all(offset >= left[partition] for partition, offset in begun):
        raise EpochRefused(
            f"nothing to do: topic {settings.topic} is the one that the online store follows, and has all that store "
            "and archive have not taken in yet"
        )
    return left


def _check_restored(settings: Settings, before: Meta, lost: Losses, epochs: list[int]) -> None:
    """Check that no event would be left out that a rebuild restores.

    Raises:
        EpochRefused: one would.
    """
    later = [epoch for epoch in epochs if epoch > before.epoch and archive.archived_offsets(settings.archive, epoch)]
    if later:
        raise EpochRefused(
            f"archive {settings.archive} has events of epoch {later[-1]}, of which the online store, in epoch "
            f"{before.epoch}, knows nothing: `leap rebuild` takes them in"
        )
    if lost.only_archive:
        raise EpochRefused(
            f"the archive has {shown(lost.only_archive)} that the online store has not taken in, and the topic no "
            "longer has them: `leap rebuild` takes them in, or says that it needs --new-epoch"
        )


def _check_remembered(settings: Settings, forgotten: Mapping[int, Bounds]) -> None:
    """Check that every event that is read anew is known to have been counted.

    Raises:
        EpochRefused: some may be forgotten.
    """
    if forgotten:
        days = settings.attempt_memory_ms / 86_400_000
        raise EpochRefused(
            f"topic {settings.topic} still has {shown({p: range(*b) for p, b in forgotten.items()})} recorded more "
            f"than {days:g} days ago, for which attempts are remembered: read anew they would count twice; set the "
            "topic's retention.ms to LEAP_TOPIC_RETENTION_DAYS and wait until the broker has deleted them"
        )

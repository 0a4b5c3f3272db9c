"""What the doctor asks of the broker. It joins no group, commits nothing and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from leap_features.events import InvalidEvent, decode, to_us
from leap_features.settings import Settings
from leap_streams.dead_letter_log import LAST_MS
from leap_streams.doctor_facts import APPS, App, Group, Member, Missing, Record, Sample, TopicShape
from leap_streams.faults import Unavailable
from leap_streams.kafka import TopicFacts, admin_client, client_config, describe_topic
from leap_streams.topic_bounds import Bounds, topic_bounds

TIMEOUT_S: Final = 5.0
"""Of one question to the broker."""
SAMPLE_MAX: Final = 20_000
"""Most records that are read in all, however many partitions there are."""

UNSUPPORTED: Final = Missing("LEAP_ALLOW_CREATE_TIME is set, and brokers for trying out do not tell", asked=False)


def topics(settings: Settings) -> dict[str, TopicShape]:
    """The layout of the completions and the dead-letter topic, where they exist.

    Raises:
        KafkaException: the broker does not answer.
    """
    shapes = {}
    consumer = _consumer(settings)  # unlike a producer's or an admin's, its question makes no topic
    try:
        for name in (settings.topic, settings.dead_letter_topic):
            partitions = consumer.list_topics(name, TIMEOUT_S).topics[name].partitions
            if partitions:
                shapes[name] = TopicShape(len(partitions), min(len(p.replicas) for p in partitions.values()))
    finally:
        consumer.close()
    return shapes


def configs(settings: Settings, names: Mapping[str, TopicShape]) -> dict[str, TopicFacts] | Missing:
    """UUID and settings of the topics `names`.

    Raises:
        TopicError, Unavailable: the broker does not tell.
    """
    if settings.allow_create_time:
        return UNSUPPORTED
    admin = admin_client(settings)
    return {name: describe_topic(msgspec.structs.replace(settings, topic=name), admin) for name in names}


def bounds(settings: Settings) -> dict[int, Bounds]:
    """Bounds of the completions topic.

    Raises:
        Unavailable: the broker does not tell.
    """
    found = topic_bounds(settings)
    if found is None:
        raise Unavailable(f"{settings.kafka_brokers} does not tell which offsets {settings.topic} has")
    return found


def groups(settings: Settings) -> dict[App, Group] | Missing:
    """The apps' consumer groups.

    Raises:
        KafkaException: the broker does not tell.
    """
    if settings.allow_create_time:
        return UNSUPPORTED
    names = {app: f"{settings.project}-{app}" for app in APPS}
    admin = admin_client(settings)  # without it, its futures fail
    futures = admin.describe_consumer_groups(list(names.values()), request_timeout=TIMEOUT_S)
    return {app: _group(futures[name].result(TIMEOUT_S), settings.topic) for app, name in names.items()}


def _group(described: Any, topic: str) -> Group:
    members = tuple(
        Member(
            f"{member.client_id} at {member.host}",
            tuple(sorted(tp.partition for tp in member.assignment.topic_partitions if tp.topic == topic)),
        )
        for member in described.members
    )
    return Group(described.state.name.lower(), members)


def sample(settings: Settings, within: Mapping[int, Bounds], per_partition: int) -> Sample:
    """The latest records of each partition: at most `per_partition`, and fewer where there are many partitions.

    Raises:
        KafkaException, Unavailable: the broker does not give them.
    """
    each = min(per_partition, max(SAMPLE_MAX // max(len(within), 1), 1))
    starts = {p: max(bound.first, bound.end - each) for p, bound in within.items() if bound.end > bound.first}
    records: list[Record] = []
    _read(settings, starts, {p: within[p].end for p in starts}, lambda message: records.append(_record(message)))
    newest = max(within, default=0)
    first = first_recorded(settings, {newest: within[newest].first}, within) if newest in starts else {}
    return Sample(tuple(records), first.get(newest))


def first_recorded(settings: Settings, offsets: Mapping[int, int], within: Mapping[int, Bounds]) -> dict[int, int]:
    """Partition → record time (microseconds since 1970) of its first record at or after its offset, where there is one.

    Raises:
        KafkaException, Unavailable: the broker does not give them.
    """
    found: dict[int, int] = {}

    def take(message: Message) -> None:
        found.setdefault(message.partition() or 0, _recorded_at_us(message))

    starts = {p: max(at, within[p].first) for p, at in offsets.items() if p in within}
    starts = {p: at for p, at in starts.items() if at < within[p].end}
    _read(settings, starts, {p: at + 1 for p, at in starts.items()}, take)
    return found


def _read(
    settings: Settings, starts: Mapping[int, int], ends: Mapping[int, int], take: Callable[[Message], None]
) -> None:
    """Hand the committed records of each partition to `take`: from its start, to the first at or after its end − 1."""
    consumer = _consumer(settings)
    silent_since = time.monotonic()
    left = set(starts)
    try:
        consumer.assign([TopicPartition(settings.topic, partition, offset) for partition, offset in starts.items()])
        while left:
            messages = consumer.consume(1_000, timeout=0.5)
            if messages:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > TIMEOUT_S:
                raise Unavailable(f"{settings.kafka_brokers} gave no record of {settings.topic} within {TIMEOUT_S:g} s")
            for message in messages:
                partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
                if partition not in left:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                if error is None:
                    take(message)
                # The end of a partition may be a transaction's marker, which is no record.
                if error is not None or offset >= ends[partition] - 1:
                    left.discard(partition)
                    consumer.incremental_unassign([TopicPartition(settings.topic, partition)])
    finally:
        consumer.close()


def _record(message: Message) -> Record:
    partition, recorded_at_us, key = message.partition() or 0, _recorded_at_us(message), _bytes(message.key())
    try:
        event = decode(_bytes(message.value()) or b"")
    except InvalidEvent:
        return Record(partition, recorded_at_us, key)
    return Record(partition, recorded_at_us, key, event.model_type, to_us(event.completed_at))


def _recorded_at_us(message: Message) -> int:
    # Where producers stamp their records, a foreign client may have put in any number.
    return min(max(message.timestamp()[1], 0), LAST_MS) * 1000


def _bytes(value: str | bytes | None) -> bytes | None:
    """What librdkafka's binding, which types keys and values as either, gives as bytes."""
    return value.encode() if isinstance(value, str) else value


def _consumer(settings: Settings) -> Consumer:
    return Consumer(
        client_config(settings)
        | {
            "group.id": f"{settings.project}-doctor",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # retention may delete what is about to be read
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
        }
    )

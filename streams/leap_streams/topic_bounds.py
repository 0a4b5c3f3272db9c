"""Which offsets the completions topic still has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from leap_features.settings import Settings
from leap_streams.kafka import client_config

TIMEOUT_S: Final = 5.0


class Bounds(NamedTuple):
    """Of one partition: the first offset that it still has, and the one after its last."""

    first: int
    end: int


def topic_bounds(settings: Settings) -> dict[int, Bounds] | None:
    """Bounds per partition; None where the broker does not answer, or has no such topic."""
    try:
        with _consumer(settings) as consumer:
            topic = consumer.list_topics(settings.topic, TIMEOUT_S).topics[settings.topic]
            if topic.error is not None or not topic.partitions:
                return None
            return {
                partition: Bounds(*consumer.get_watermark_offsets(TopicPartition(settings.topic, partition), TIMEOUT_S))
                for partition in topic.partitions
            }
    except KafkaException:
        return None


def recorded_before(settings: Settings, at_us: int, bounds: dict[int, Bounds]) -> dict[int, Bounds]:
    """Offsets of `bounds` that were recorded before `at_us` (microseconds since 1970), where there are any.

    Raises:
        KafkaException: the broker does not answer.
    """
    wanted = [TopicPartition(settings.topic, partition, at_us // 1000) for partition in bounds]
    with _consumer(settings) as consumer:
        found = {tp.partition: tp.offset for tp in consumer.offsets_for_times(wanted, timeout=TIMEOUT_S)}
    before = {}
    for partition, (first, end) in bounds.items():
        since = found[partition] if found[partition] >= 0 else end  # negative: no record is as late as that
        if since > first:
            before[partition] = Bounds(first, since)
    return before


@contextmanager
def _consumer(settings: Settings) -> Iterator[Consumer]:
    """A consumer that never subscribes: it asks for offsets and joins no group."""
    consumer = Consumer(
        client_config(settings) | {"group.id": f"{settings.project}-bounds", "enable.auto.commit": False}
    )
    try:
        yield consumer
    finally:
        consumer.close()

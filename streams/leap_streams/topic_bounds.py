"""Which offsets the completions topic still has."""

from __future__ import annotations

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
    # A consumer that never subscribes: it asks for offsets and joins no group.
    consumer = Consumer(
        client_config(settings) | {"group.id": f"{settings.project}-bounds", "enable.auto.commit": False}
    )
    try:
        topic = consumer.list_topics(settings.topic, TIMEOUT_S).topics[settings.topic]
        if topic.error is not None or not topic.partitions:
            return None
        return {
            partition: Bounds(*consumer.get_watermark_offsets(TopicPartition(settings.topic, partition), TIMEOUT_S))
            for partition in topic.partitions
        }
    except KafkaException:
        return None
    finally:
        consumer.close()

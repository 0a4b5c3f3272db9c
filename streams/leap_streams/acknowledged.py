"""How far the history worker has come, as its consumer group tells it: a record is acknowledged last of all.

The online store says it better, and alone decides where a worker begins. This is for when the store is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from leap_features.settings import Settings
from leap_streams.kafka import client_config

TIMEOUT_S: Final = 10.0


def acknowledged(settings: Settings, partitions: Collection[int]) -> dict[int, int]:
    """Partition → offset after the last record that a history worker has acknowledged, for those of which it has any.

    All before it has been taken in, and what breaks a rule there is with the dead letters. A broker that does not
    answer knows of none.
    """
    # A consumer that never subscribes: it asks for the group's offsets and does not join it.
    consumer = Consumer(
        client_config(settings) | {"group.id": f"{settings.project}-history", "enable.auto.commit": False}
    )
    try:
        places = [TopicPartition(settings.topic, partition) for partition in partitions]
        found = consumer.committed(places, timeout=TIMEOUT_S)
    except KafkaException:
        return {}
    finally:
        consumer.close()
    return {place.partition: place.offset for place in found if place.offset >= 0}

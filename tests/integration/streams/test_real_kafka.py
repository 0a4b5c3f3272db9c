from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from services import Kafka, RealKafka

pytestmark = pytest.mark.real_kafka


def send(kafka: Kafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.brokers, "acks": "all"})
    producer.produce(topic, value=value, partition=0, timestamp=1_000)
    assert producer.flush(60) == 0


def read_first(kafka: Kafka, topic: str) -> Message:
    consumer = Consumer({"bootstrap.servers": kafka.brokers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message


def test_topics_record_the_brokers_append_time(real_kafka: RealKafka, project: str) -> None:
    real_kafka.create_topic(project, partitions=3)
    before_ms = int(time.time() * 1000) - 60_000
    send(real_kafka, project, b"one")
    kind, timestamp_ms = read_first(real_kafka, project).timestamp()
    assert kind == 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME
    assert timestamp_ms > before_ms


def test_a_record_outlives_a_killed_broker(own_kafka: RealKafka) -> None:
    own_kafka.create_topic("kept", partitions=1)
    send(own_kafka, "kept", b"one")
    address = own_kafka.brokers
    own_kafka.kill()
    own_kafka.start()
    assert own_kafka.brokers == address
    assert read_first(own_kafka, "kept").value() == b"one"

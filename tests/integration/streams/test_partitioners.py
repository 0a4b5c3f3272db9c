"""Our partitioners beside the client's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from leap_features.settings import Settings
from leap_streams.kafka import client_config
from leap_streams.partitioners import java_partition, librdkafka_partition
from stream_process import read_topic

pytestmark = pytest.mark.stream

KEYS = [f"model{'x' * (i % 9)}-{i}".encode() for i in range(300)] + ["模型".encode()]


@pytest.mark.parametrize(
    ("config", "partition_of"),
    [({"partitioner": "murmur2_random"}, java_partition), ({}, librdkafka_partition)],
    ids=["murmur2_random", "the client's default"],
)
@pytest.mark.parametrize("partitions", [7])
def test_a_key_goes_where_the_client_sends_it(
    settings: Settings, config: dict[str, str], partition_of: Callable[[bytes, int], int]
) -> None:
    producer = Producer(client_config(settings) | config)
    for key in KEYS:
        producer.produce(settings.topic, key=key, value=b"")
    assert producer.flush(30) == 0
    found = {record.key: record.partition for record in read_topic(settings, settings.topic)}
    assert found == {key: partition_of(key, settings.partitions) for key in KEYS}
    assert len(set(found.values())) == settings.partitions

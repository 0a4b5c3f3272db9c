"""The client of the training platform on a real broker, and on none."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from events_strategies import event_fields, raw_event
from leap_features.events import CompletionEvent, InvalidEvent, decode
from leap_features.settings import Settings
from leap_streams.child_process import free_port
from leap_streams.kafka import REPLAY_HEADER
from leap_streams.producer import CompletionProducer, QueueFull
from stream_process import read_topic


def java_murmur2(data: bytes) -> int:
    """The partitioner's hash as Kafka's Java client defines it (Utils.murmur2), written down independently."""
    mask = 0xFFFFFFFF
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    rest = data[len(data) - len(data) % 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


@pytest.mark.stream
def test_an_event_arrives_whole_keyed_by_model_type_on_the_murmur2_partition(
    settings: Settings, partitions: int
) -> None:
    models = [f"model-{i}" for i in range(20)]
    with CompletionProducer(settings) as producer:
        for model in models:
            producer.send(decode(raw_event(model_type=model, attempt_id=model)), replay=model == "model-3")
    assert (producer.sent, producer.failed) == (20, 0)
    records = read_topic(settings, settings.topic)
    assert {record.key for record in records} == {model.encode() for model in models}
    for record in records:
        assert record.key is not None
        assert record.partition == java_murmur2(record.key) % partitions
        event = decode(record.value or b"")
        assert event == decode(raw_event(model_type=event.model_type, attempt_id=event.model_type))
        assert record.replay == (event.model_type == "model-3")
        assert ((REPLAY_HEADER, b"1") in record.headers) == record.replay


def test_an_invalid_event_is_refused_before_it_is_sent(settings: Settings) -> None:
    event = decode(raw_event())
    broken = CompletionEvent(**{name: getattr(event, name) for name in event.__struct_fields__} | {"throughput": -1.0})
    with CompletionProducer(settings) as producer:
        with pytest.raises(InvalidEvent, match=r"> 0 for a succeeded attempt, got -1\.0"):
            producer.send(broken)
        with pytest.raises(InvalidEvent) as caught:
            producer.send_encoded(raw_event(config={"a": "x" * 70_000}))
        assert caught.value.rule == "size"
        with pytest.raises(InvalidEvent):
            producer.send_encoded(json.dumps(event_fields(batch_size=-1)).encode())
    assert producer.sent == 0


def test_a_broker_that_is_down_does_not_hold_the_caller_up() -> None:
    settings = Settings(kafka_brokers=f"127.0.0.1:{free_port()}")
    lost: list[tuple[str, str]] = []
    producer = CompletionProducer(
        settings,
        on_failure=lambda event, reason: lost.append((event.attempt_id, reason)),
        timeout_s=0.3,
        delivery_timeout_s=60,
        queue_max=10,
    )
    for i in range(10):
        producer.send(decode(raw_event(attempt_id=f"a{i}")))
    with pytest.raises(QueueFull, match="attempt a10 was not taken"):
        producer.send(decode(raw_event(attempt_id="a10")))
    assert producer.close(timeout_s=0.2) == 10
    assert sorted(attempt for attempt, _ in lost) == sorted(f"a{i}" for i in range(10))
    assert producer.failed == 10


def test_an_event_that_cannot_be_delivered_in_time_is_handed_back() -> None:
    settings = Settings(kafka_brokers=f"127.0.0.1:{free_port()}")
    lost: list[str] = []
    producer = CompletionProducer(
        settings, on_failure=lambda event, _: lost.append(event.attempt_id), delivery_timeout_s=0.5
    )
    producer.send(decode(raw_event()))
    deadline = time.monotonic() + 30
    while not lost and time.monotonic() < deadline:
        time.sleep(0.05)
    assert lost == ["attempt-1"]
    assert producer.close() == 0


def test_an_on_failure_that_raises_does_not_end_the_deliveries() -> None:
    def raising(event: CompletionEvent, _reason: str) -> None:
        raise RuntimeError(event.attempt_id)

    producer = CompletionProducer(
        Settings(kafka_brokers=f"127.0.0.1:{free_port()}"), on_failure=raising, delivery_timeout_s=0.5
    )
    deadline = time.monotonic() + 30
    for sent in range(1, 3):
        producer.send(decode(raw_event()))
        while producer.failed < sent and time.monotonic() < deadline:
            time.sleep(0.05)
    assert producer.failed == 2
    assert producer.close() == 0


def test_a_closed_producer_says_so(settings: Settings) -> None:
    producer = CompletionProducer(settings)
    assert producer.close() == 0
    assert producer.close() == 0
    with pytest.raises(ValueError, match="closed"):
        producer.send(decode(raw_event(completed=datetime.now(UTC) - timedelta(minutes=1))))

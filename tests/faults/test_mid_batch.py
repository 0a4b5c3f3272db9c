"""What happens in the middle of a batch: a proxy before Redis holds the worker there, on real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from completion_stream import produce
from counting_proxy import CountingProxy
from events_strategies import event_fields
from leap_features.conditional_write import MOVE_CHECKPOINTS, WRITE_ROW, sha1
from leap_features.settings import Settings
from leap_streams.kafka import client_config
from leap_streams.producer import CompletionProducer
from oracle import stored_rows
from services import RedisServer
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until
from stream_traffic import check_equal_to_the_oracle, initialised, taken_in, wait_for_the_end

pytestmark = pytest.mark.stream

EVENTS = 400
SLOW_BATCH_SIZE = 31337.25
"""Its text is in the write of one row, and nowhere else."""


@pytest.fixture
def proxy(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[CountingProxy]:
    """Before the run's Redis, which is empty."""
    assert redis_server.port is not None
    with CountingProxy("127.0.0.1", redis_server.port) as made:
        yield made


@pytest.fixture
def env(settings: Settings, settings_env: dict[str, str], proxy: CountingProxy, tmp_path: Path) -> Mapping[str, str]:
    """Of a worker that reaches its Redis through the proxy, after `leap init`."""
    return initialised(settings_env, proxy.url, tmp_path / "init.log")


def committed(settings: Settings) -> dict[int, int]:
    """Partition → offset that the worker's group has committed to Kafka, for those where it has."""
    consumer = Consumer(
        client_config(settings) | {"group.id": f"{settings.project}-history", "enable.auto.commit": False}
    )
    try:
        places = [TopicPartition(settings.topic, partition) for partition in range(settings.partitions)]
        return {place.partition: place.offset for place in consumer.committed(places, timeout=30) if place.offset >= 0}
    finally:
        consumer.close()


def produce_a_slow_one(settings: Settings) -> None:
    """One event whose rows can be told from all others on the wire."""
    fields = event_fields(
        attempt_id="slow", completed=datetime.now(UTC) - timedelta(minutes=10), batch_size=SLOW_BATCH_SIZE
    )
    with CompletionProducer(settings) as producer:
        producer.send_encoded(json.dumps(fields).encode())


def test_what_is_committed_never_passes_an_event_whose_rows_are_not_written(
    settings: Settings, env: Mapping[str, str], proxy: CountingProxy, redis_client: redis.Redis, tmp_path: Path
) -> None:
    # faust-streaming/faust#606: several partitions in flight, one of them slow
    log = tmp_path / "worker.log"
    produce(settings, EVENTS, seed=1)
    with LeapProcess(["worker"], env, log) as worker:
        wait_for_the_end(settings, worker)
        proxy.late = str(SLOW_BATCH_SIZE).encode()
        produce(settings, EVENTS, seed=2)
        produce_a_slow_one(settings)
        produce(settings, EVENTS, seed=3)
        wait_until(lambda: proxy.held_back > 0, timeout_s=60, what="the slow write", process=worker)
        (slow,) = [d for d in read_topic(settings, settings.topic) if b'"slow"' in (d.value or b"")]
        # Whatever is to be committed has been, once the two are equal.
        wait_until(lambda: committed(settings) == checkpoints(settings), timeout_s=60, what="a commit", process=worker)
        assert checkpoints(settings)[slow.partition] <= slow.offset
        worker.kill()
    assert committed(settings)[slow.partition] <= slow.offset
    assert ("family_history", ("ranker/ranker-prod",)) not in stored_rows(redis_client, settings.project)
    proxy.let_late_ones_go()
    with LeapProcess(["worker"], env, log) as worker:
        wait_for_the_end(settings, worker)
        assert worker.terminate() == 0
    check_equal_to_the_oracle(settings)


@pytest.mark.real_kafka  # the embedded broker has room for one member in a group
@pytest.mark.parametrize("held", [WRITE_ROW, MOVE_CHECKPOINTS], ids=["before the rows", "before the checkpoints"])
def test_a_rebalance_in_mid_batch_skips_no_offset_and_the_late_writes_of_the_first_worker_do_no_harm(
    settings: Settings, env: Mapping[str, str], proxy: CountingProxy, tmp_path: Path, held: str
) -> None:
    # faust-streaming/faust#216, #221; redis/redis-py#261: what timed out arrives all the same
    proxy.late = sha1(held)
    produce(settings, EVENTS, seed=1)
    direct = {**env, "LEAP_REDIS_URL": settings.redis_url}
    with LeapProcess(["worker"], env, tmp_path / "first.log") as first:
        wait_until(lambda: proxy.held_back > 0, timeout_s=60, what="a batch in hand", process=first)
        with LeapProcess(["worker"], direct, tmp_path / "second.log") as second:
            wait_until(lambda: taken_in(settings) > 0, timeout_s=60, what="records of the second", process=second)
            proxy.let_late_ones_go()
            produce(settings, EVENTS, seed=2)
            end = ends(read_topic(settings, settings.topic))
            wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=first)
            assert first.terminate() == 0
            assert second.terminate() == 0
    check_equal_to_the_oracle(settings)


def test_kill_9_between_the_rows_and_the_checkpoints_counts_nothing_twice(
    settings: Settings, env: Mapping[str, str], proxy: CountingProxy, redis_client: redis.Redis, tmp_path: Path
) -> None:
    # faust-streaming/faust#323, #47
    log = tmp_path / "worker.log"
    proxy.late = sha1(MOVE_CHECKPOINTS)
    produce(settings, EVENTS, seed=1)
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(lambda: proxy.held_back > 0, timeout_s=60, what="rows that are written", process=worker)
        worker.kill()
    assert stored_rows(redis_client, settings.project)
    assert checkpoints(settings) == {}
    with LeapProcess(["worker"], {**env, "LEAP_REDIS_URL": settings.redis_url}, log) as worker:
        wait_for_the_end(settings, worker)
        assert worker.terminate() == 0
    check_equal_to_the_oracle(settings)

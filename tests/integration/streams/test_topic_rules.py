"""What the worker refuses to begin on. The embedded broker has neither UUIDs nor retention: a real Kafka is needed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from events_strategies import event_fields
from leap_features.meta import meta_key
from leap_features.settings import Settings
from leap_streams.kafka import client_config
from leap_streams.run import EXIT_HALTED
from services import RealKafka
from stream_process import LeapProcess, checkpoints, wait_until

pytestmark = pytest.mark.real_kafka


def initialise(env: dict[str, str], tmp_path: Path) -> None:
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()


def send(settings: Settings, count: int, partition: int = 0) -> None:
    producer = Producer(client_config(settings))
    completed = datetime.now(UTC) - timedelta(minutes=10)
    for i in range(count):
        value = json.dumps(event_fields(attempt_id=f"a{i}", completed=completed)).encode()
        producer.produce(settings.topic, key=b"ranker", value=value, partition=partition)
    assert producer.flush(30) == 0


def take_in(settings: Settings, env: dict[str, str], end: dict[int, int], tmp_path: Path) -> None:
    with LeapProcess(["worker"], env, tmp_path / "first.log") as worker:
        wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)
        worker.terminate()


def delete_before(settings: Settings, offset: int) -> None:
    """Delete records of partition 0, as retention does."""
    admin = AdminClient(client_config(settings))
    for future in admin.delete_records([TopicPartition(settings.topic, 0, offset)]).values():
        future.result(30)


def halted(env: dict[str, str], tmp_path: Path, app: str = "worker") -> str:
    with LeapProcess([app], env, tmp_path / f"halted-{app}.log") as process:
        assert process.wait(60) == EXIT_HALTED
        return process.log.read_text()


def test_a_topic_with_the_producers_time_is_refused(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    topic = f"{settings.project}.create-time"
    real_kafka.create_topic(topic, partitions=1, config={"message.timestamp.type": "CreateTime"})
    env = settings_env | {"LEAP_TOPIC": topic}
    initialise(env, tmp_path)
    assert "set it to LogAppendTime" in halted(env, tmp_path)


def test_init_makes_topics_as_history_needs_them(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    names = {"LEAP_TOPIC": f"{settings.project}.new", "LEAP_DEAD_LETTER_TOPIC": f"{settings.project}.new-dead"}
    env = settings_env | names
    initialise(env, tmp_path)
    described = AdminClient(client_config(settings)).list_topics(names["LEAP_TOPIC"]).topics[names["LEAP_TOPIC"]]
    assert len(described.partitions) == settings.partitions
    assert redis_client.hget(meta_key(settings.project), "topic_uuid")
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        wait_until(lambda: "begins at" in worker.log.read_text(), timeout_s=60, what="a start", process=worker)
        assert worker.terminate() == 0


def test_a_topic_that_is_deleted_and_created_again_is_refused_by_running_apps_and_by_new_ones(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    initialise(settings_env, tmp_path)
    send(settings, 10)
    with LeapProcess(["worker"], settings_env, tmp_path / "worker.log") as worker:
        wait_until(lambda: checkpoints(settings) == {0: 10}, timeout_s=60, what="the end", process=worker)
        real_kafka.delete_topic(settings.topic)
        real_kafka.create_topic(settings.topic, partitions=settings.partitions)
        send(settings, 20)
        assert worker.wait(60) == EXIT_HALTED
        assert "deleted and created again" in worker.log.read_text()
    assert checkpoints(settings) == {0: 10}
    assert "deleted and created again" in halted(settings_env, tmp_path, "archive")


def test_records_that_retention_deleted_before_they_were_taken_in_are_counted(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    initialise(settings_env, tmp_path)
    send(settings, 10)
    take_in(settings, settings_env, {0: 10}, tmp_path)
    send(settings, 20)
    delete_before(settings, 25)
    message = halted(settings_env, tmp_path)
    assert "15 records from offset 10 on have been deleted by retention" in message


def test_records_that_retention_deletes_under_a_waiting_worker_are_counted(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    initialise(settings_env, tmp_path)
    send(settings, 10)
    with LeapProcess(["worker"], settings_env, tmp_path / "worker.log") as worker:
        wait_until(lambda: checkpoints(settings) == {0: 10}, timeout_s=60, what="the end", process=worker)
        worker.pause()
        time.sleep(2)  # a fetch that is under way ends without a record
        send(settings, 20)
        delete_before(settings, 25)
        worker.go_on()
        assert worker.wait(60) == EXIT_HALTED
        assert "15 records from offset 10 on have been deleted by retention" in worker.log.read_text()


def test_transaction_markers_are_passed_and_aborted_records_are_not_counted(
    real_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    initialise(settings_env, tmp_path)
    producer = Producer(client_config(settings) | {"transactional.id": settings.project})
    producer.init_transactions(30)
    completed = datetime.now(UTC) - timedelta(minutes=10)
    for i in range(12):
        producer.begin_transaction()
        value = json.dumps(event_fields(attempt_id=f"t{i}", completed=completed)).encode()
        producer.produce(settings.topic, key=b"ranker", value=value, partition=0)
        if i % 3 == 2:
            producer.flush(10)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    # The last marker follows the last record: the checkpoint lies behind the last committed record.
    take_in(settings, settings_env, {0: 21}, tmp_path)
    with redis.Redis.from_url(settings.redis_url) as client:
        assert len(list(client.scan_iter(f"leap:{settings.project}:attempt:*"))) == 8

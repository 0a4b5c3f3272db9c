"""What the apps make of the topic itself; on a real Kafka: the embedded broker has neither UUIDs nor retention."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from archived_events import write_events
from events_strategies import event_fields
from leap_features import archive
from leap_features.events import CompletionEvent, decode
from leap_features.family import DEFAULT_RULES
from leap_features.meta import FIRST_LIVE_EPOCH, meta_key
from leap_features.settings import Settings
from leap_streams.audit import audit
from leap_streams.epoch import EpochRefused, new_epoch
from leap_streams.history_writer import Delivery
from leap_streams.kafka import MAX_MESSAGE_BYTES, client_config
from leap_streams.rebuild import rebuild
from leap_streams.run import EXIT_HALTED
from oracle import expected_of, expected_of_lives, stored_rows
from services import RealKafka
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until
from stream_traffic import check_equal_to_the_oracle

pytestmark = pytest.mark.real_kafka

EPOCH = FIRST_LIVE_EPOCH
COMPLETED = datetime.now(UTC) - timedelta(minutes=10)


@pytest.fixture
def env(settings_env: dict[str, str]) -> dict[str, str]:
    """The environment of apps that are quick: segments of the archive are written at once."""
    return settings_env | {"LEAP_ARCHIVE_WITHIN_S": "0.2"}


def initialise(env: Mapping[str, str], tmp_path: Path) -> str:
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
        return init.log.read_text()


def value(attempt_id: str, **changes: Any) -> bytes:
    return json.dumps(event_fields(attempt_id=attempt_id, completed=COMPLETED, **changes)).encode()


def event(attempt_id: str) -> CompletionEvent:
    return decode(value(attempt_id))


def send(settings: Settings, attempts: range, partition: int = 0) -> None:
    producer = Producer(client_config(settings))
    for i in attempts:
        producer.produce(settings.topic, key=b"ranker", value=value(f"a{i}"), partition=partition)
    assert producer.flush(30) == 0


@contextmanager
def running(app: str, env: Mapping[str, str], tmp_path: Path) -> Iterator[LeapProcess]:
    with LeapProcess([app], env, tmp_path / f"{app}.log") as process:
        yield process
        assert process.terminate() == 0


def wait_for(settings: Settings, end: Mapping[int, int], worker: LeapProcess) -> None:
    wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what=f"checkpoints {end}", process=worker)


def wait_for_the_archive(settings: Settings, epoch: int, end: Mapping[int, int], archiver: LeapProcess) -> None:
    def archived() -> bool:
        return archive.end_offsets(settings.archive, epoch) == end

    wait_until(archived, timeout_s=60, what=f"the archive at {end}", process=archiver)


def take_in(settings: Settings, env: Mapping[str, str], end: Mapping[int, int], tmp_path: Path) -> None:
    with running("worker", env, tmp_path) as worker:
        wait_for(settings, end, worker)


def delete_before(settings: Settings, offset: int) -> None:
    """Delete records of partition 0, as retention does."""
    admin = AdminClient(client_config(settings))
    for future in admin.delete_records([TopicPartition(settings.topic, 0, offset)]).values():
        future.result(30)


def recreate(kafka: RealKafka, settings: Settings) -> None:
    kafka.delete_topic(settings.topic)

    def gone() -> bool:
        try:
            kafka.create_topic(settings.topic, partitions=settings.partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_until(gone, timeout_s=30, what="a topic that is deleted")


def halted(env: Mapping[str, str], tmp_path: Path, app: str = "worker") -> str:
    with LeapProcess([app], env, tmp_path / f"halted-{app}.log") as process:
        assert process.wait(60) == EXIT_HALTED
        return process.log.read_text().splitlines()[-1]


def test_a_topic_with_the_producers_time_is_refused(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    topic = f"{settings.project}.create-time"
    real_kafka.create_topic(topic, partitions=1, config={"message.timestamp.type": "CreateTime"})
    env = env | {"LEAP_TOPIC": topic}
    initialise(env, tmp_path)
    assert "set it to LogAppendTime" in halted(env, tmp_path)


def test_init_makes_topics_as_history_needs_them(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    names = {"LEAP_TOPIC": f"{settings.project}.new", "LEAP_DEAD_LETTER_TOPIC": f"{settings.project}.new-dead"}
    env = env | names
    initialise(env, tmp_path)
    described = AdminClient(client_config(settings)).list_topics(names["LEAP_TOPIC"]).topics[names["LEAP_TOPIC"]]
    assert len(described.partitions) == settings.partitions
    assert redis_client.hget(meta_key(settings.project), "topic_uuid")
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        wait_until(lambda: "begins at" in worker.log.read_text(), timeout_s=60, what="a start", process=worker)
        assert worker.terminate() == 0


def test_a_recreated_topic_halts_the_apps_and_a_new_epoch_goes_on_from_both_lives(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    send(settings, range(10))
    lives: dict[int, list[Delivery]] = {EPOCH: read_topic(settings, settings.topic)}
    logs = [tmp_path / f"first-{app}.log" for app in ("worker", "archive")]
    with LeapProcess(["worker"], env, logs[0]) as worker, LeapProcess(["archive"], env, logs[1]) as archiver:
        wait_for(settings, {0: 10}, worker)
        wait_for_the_archive(settings, EPOCH, {0: 10}, archiver)
        recreate(real_kafka, settings)
        send(settings, range(5, 30))  # some of them were sent to the first life too
        for process in (worker, archiver):
            assert process.wait(60) == EXIT_HALTED
            assert "deleted and created again; `leap epoch new`" in process.log.read_text()
    # Nothing of the second life was taken for the first, though it is longer.
    assert checkpoints(settings) == archive.end_offsets(settings.archive, EPOCH) == {0: 10}
    assert stored_rows(redis_client, settings.project) == expected_of_lives(lives, settings.horizon_us).rows
    assert "`leap epoch new`" in initialise(env, tmp_path)

    with LeapProcess(["epoch", "new"], env, tmp_path / "epoch.log") as command:
        assert command.wait() == 0, command.log.read_text()
        assert f"epoch {EPOCH + 1} (before: {EPOCH})" in command.log.read_text()
    lives[EPOCH + 1] = read_topic(settings, settings.topic)
    with running("worker", env, tmp_path) as worker, running("archive", env, tmp_path) as archiver:
        wait_for(settings, {0: 25}, worker)
        wait_for_the_archive(settings, EPOCH + 1, {0: 25}, archiver)
    expected = expected_of_lives(lives, settings.horizon_us).rows
    assert stored_rows(redis_client, settings.project) == expected
    assert expected["family_history", ("ranker/ranker-prod",)]["count"] == 30
    assert audit(settings, rules=DEFAULT_RULES).sound
    with pytest.raises(EpochRefused, match="nothing to do"):
        new_epoch(settings)


def test_apps_that_wait_for_a_new_epoch_go_on_by_themselves(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    # Where the broker tells no UUID, a log that ends below the checkpoint tells.
    initialise(env, tmp_path)
    redis_client.hset(meta_key(settings.project), "topic_uuid", "")
    send(settings, range(10))
    lives = {EPOCH: read_topic(settings, settings.topic)}
    with running("archive", env, tmp_path) as archiver:
        take_in(settings, env, {0: 10}, tmp_path)
        wait_for_the_archive(settings, EPOCH, {0: 10}, archiver)
        archiver.pause()
        recreate(real_kafka, settings)
        send(settings, range(5, 9))
        assert "ends at offset 4, below the checkpoint 10: the topic was deleted" in halted(env, tmp_path)
        assert new_epoch(settings).epoch == EPOCH + 1
        archiver.go_on()
        send(settings, range(9, 30))
        lives[EPOCH + 1] = read_topic(settings, settings.topic)
        take_in(settings, env, {0: 25}, tmp_path)
        wait_for_the_archive(settings, EPOCH + 1, {0: 25}, archiver)
    assert archive.end_offsets(settings.archive, EPOCH) == {0: 10}
    assert stored_rows(redis_client, settings.project) == expected_of_lives(lives, settings.horizon_us).rows
    assert audit(settings, rules=DEFAULT_RULES).sound


def test_records_that_retention_deleted_and_the_archive_has_are_restored_by_a_rebuild(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    send(settings, range(10))
    take_in(settings, env, {0: 10}, tmp_path)
    send(settings, range(10, 30))
    records = read_topic(settings, settings.topic)
    with running("archive", env, tmp_path) as archiver:
        wait_for_the_archive(settings, EPOCH, {0: 30}, archiver)
    delete_before(settings, 25)
    message = halted(env, tmp_path)
    assert "deleted by retention before they were taken in: 15 records (partition 0: offsets 10 to 24)" in message
    assert "the archive has them all: `leap rebuild`" in message
    with pytest.raises(EpochRefused, match=r"the archive has 15 records .* `leap rebuild` takes them in"):
        new_epoch(settings)
    assert rebuild(settings, rules=DEFAULT_RULES).checkpoints == {0: 25}  # what breaks a rule from there on is not lost
    send(settings, range(28, 35))
    take_in(settings, env, {0: 37}, tmp_path)
    records += read_topic(settings, settings.topic)[5:]
    assert stored_rows(redis_client, settings.project) == expected_of(records, EPOCH, settings.horizon_us).rows


def test_records_that_retention_deletes_under_a_waiting_worker_are_counted_and_gone_on_without(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    send(settings, range(10))
    with LeapProcess(["worker"], env, tmp_path / "first.log") as worker:
        wait_for(settings, {0: 10}, worker)
        worker.pause()
        time.sleep(2)  # a fetch that is under way ends without a record
        send(settings, range(10, 30))
        records = read_topic(settings, settings.topic)
        delete_before(settings, 25)
        worker.go_on()
        assert worker.wait(60) == EXIT_HALTED
        message = worker.log.read_text()
    assert "deleted by retention before they were taken in: 15 records (partition 0: offsets 10 to 24)" in message
    assert "the archive lacks them too, they are lost: `leap epoch new --accept-loss`" in message
    write_events(settings.archive, [event(f"a{i}") for i in range(4)])
    archived = halted(env, tmp_path, "archive")
    assert (
        "before they were archived: 21 records (partition 0: offsets 4 to 24); the online store has taken in 6"
        in archived
    )
    with pytest.raises(EpochRefused) as refused:
        new_epoch(settings)
    assert "never archived, so that no rebuild and no training set will have them: 6 records" in str(refused.value)
    assert "deleted by retention before anybody took them in: 15 records (partition 0: offsets 10 to 24)" in str(
        refused.value
    )
    new_epoch(settings, accept_loss=True)
    take_in(settings, env, {0: 30}, tmp_path)
    kept = {EPOCH: records[:10], EPOCH + 1: records[25:]}
    assert stored_rows(redis_client, settings.project) == expected_of_lives(kept, settings.horizon_us).rows


def test_transaction_markers_are_passed_and_aborted_records_are_not_counted(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    producer = Producer(client_config(settings) | {"transactional.id": settings.project})
    producer.init_transactions(30)
    for i in range(12):
        producer.begin_transaction()
        producer.produce(settings.topic, key=b"ranker", value=value(f"t{i}"), partition=0)
        if i % 3 == 2:
            producer.flush(10)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    # The last marker follows the last record: the checkpoint lies behind the last committed record.
    take_in(settings, env, {0: 21}, tmp_path)
    assert len(list(redis_client.scan_iter(f"leap:{settings.project}:attempt:*"))) == 8


def test_the_holes_of_a_compacted_log_are_passed(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    compaction = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    topic = f"{settings.project}.compacted"
    real_kafka.create_topic(topic, partitions=1, config=compaction)
    compacted = msgspec.structs.replace(settings, topic=topic)
    env = env | {"LEAP_TOPIC": topic}
    initialise(env, tmp_path)
    producer = Producer(client_config(settings))
    for i in range(60):
        key = f"once{i}" if i % 9 == 0 else f"again{i % 4}"
        producer.produce(topic, key=key.encode(), value=value(f"c{i}"))
        if i % 10 == 9:
            assert producer.flush(30) == 0
            time.sleep(0.15)  # the next record begins another segment

    def kept() -> list[int]:
        return [delivery.offset for delivery in read_topic(compacted, topic)]

    wait_until(lambda: len(kept()) < 40, timeout_s=40, what="a compaction")
    take_in(compacted, env, {0: 60}, tmp_path)
    assert {0, 9, 18, 59} <= set(kept())
    row = stored_rows(redis_client, settings.project)["family_history", ("ranker/ranker-prod",)]
    assert row["version"] == f"{EPOCH}:0:59"
    assert len(kept()) <= int(str(row["count"])) < 60


def test_partitions_that_are_added_while_the_worker_lags_are_taken_in_whole(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    sent = 5_000  # more than a worker takes in between its first batch and its end
    send(settings, range(sent))
    with LeapProcess(["worker"], env | {"LEAP_BATCH_MAX": "20"}, tmp_path / "first.log") as worker:
        wait_until(lambda: checkpoints(settings) != {}, timeout_s=60, what="a first batch", process=worker)
        worker.kill()
    assert checkpoints(settings)[0] < sent
    grown = NewPartitions(settings.topic, settings.partitions + 2)
    admin = AdminClient(client_config(settings))
    admin.create_partitions([grown])[settings.topic].result(30)
    # The same keys now come in other partitions too, in another order, and some attempts once more.
    send(settings, range(sent - 10, sent + 20), partition=settings.partitions)
    send(settings, range(sent + 10, sent + 40), partition=settings.partitions + 1)
    take_in(settings, env, {0: sent, 4: 30, 5: 30}, tmp_path)
    records = read_topic(settings, settings.topic)
    assert stored_rows(redis_client, settings.project) == expected_of(records, EPOCH, settings.horizon_us).rows


def test_records_of_all_kinds_of_producers_are_counted_once_or_set_aside_whole(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    initialise(env, tmp_path)
    kinds = [("none", "murmur2_random"), ("gzip", "consistent_random"), ("snappy", "murmur2"), ("lz4", "random")]
    for number, (compression, partitioner) in enumerate([*kinds, ("zstd", "consistent")]):
        producer = Producer(
            client_config(settings)
            | {"compression.type": compression, "partitioner": partitioner, "linger.ms": 50}
            | {"message.max.bytes": 4 * MAX_MESSAGE_BYTES}
        )
        for i in range(40):
            model = f"model{i % 5}"
            # Every other attempt is sent by the producer before, too: to another partition, perhaps.
            name = f"{number - i % 2}-{i}"
            producer.produce(
                settings.topic,
                key=None if i % 7 == 0 else model.encode(),
                value=value(name, model_type=model, job_name=f"{model}-family{i % 3}-run{i}"),
                headers=[("trace", b"\x00\xff"), ("trace", None), ("leap-unknown", "ä".encode())],
            )
        producer.produce(settings.topic, key=b"model0", value=None)
        # Above the limit of an event, within the topic's; it compresses well.
        producer.produce(settings.topic, key=b"model0", value=value("large", config={"text": "x" * 70_000}))
        producer.produce(settings.topic, key=None, value=b"\xff" * 65_537)
        assert producer.flush(30) == 0
    take_in(settings, env, ends(read_topic(settings, settings.topic)), tmp_path)
    check_equal_to_the_oracle(settings)
    letters = read_topic(settings, settings.dead_letter_topic)
    assert len(letters) == 3 * 5
    assert {len(letter.value or b"") for letter in letters} == {
        0,
        65_537,
        len(value("large", config={"text": "x" * 70_000})),
    }


def test_a_record_above_the_limit_of_the_topic_is_an_error_of_its_producer(
    real_kafka: RealKafka, settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    env = env | {
        "LEAP_TOPIC": f"{settings.project}.limited",
        "LEAP_DEAD_LETTER_TOPIC": f"{settings.project}.limited-dead",
    }
    initialise(env, tmp_path)
    producer = Producer(client_config(settings) | {"message.max.bytes": 4 * MAX_MESSAGE_BYTES})
    failed: list[KafkaError | None] = []
    producer.produce(
        env["LEAP_TOPIC"],
        value=b"x" * (MAX_MESSAGE_BYTES + 1),
        on_delivery=lambda error, _message: failed.append(error),
    )
    producer.flush(30)
    (error,) = failed
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE

"""The doctor on real deployments: it finds nothing where all is well, and names what was planted, several at a time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from archived_events import DAY_US, event, write_events
from events_strategies import raw_event
from leap_features import archive, archive_epochs, history_build
from leap_features.archive_epochs import Life
from leap_features.events import to_us
from leap_features.family import Rules
from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.history import Position
from leap_features.meta import FIRST_LIVE_EPOCH, SCHEMA_VERSION, Meta, encode_meta, meta_key
from leap_features.settings import Settings
from leap_streams import doctor_kafka
from leap_streams.child_process import free_port
from leap_streams.dead_letter import HEADER_PREFIX
from leap_streams.doctor import examine
from leap_streams.doctor_facts import App
from leap_streams.doctor_finding import Finding
from leap_streams.doctor_gather import ask, gather
from leap_streams.doctor_sources import redis_server
from leap_streams.kafka import client_config
from leap_streams.partitioners import java_partition, librdkafka_partition
from leap_streams.producer import CompletionProducer
from services import EmbeddedKafka, RealKafka, RedisServer
from small_bundle import publish_small_bundle
from stream_process import LeapProcess, checkpoints, wait_until

REPOSITORY = Path(__file__).parents[3] / "feature_repo"
DAY_MS = 86_400_000
OTHER_RULES = Rules("1+0123abcd", disable=["rerun"])


@pytest.fixture
def place(own_redis: RedisServer, project: str, tmp_path: Path) -> Settings:
    """Settings of a deployment of this test alone, of which only the Redis is there yet."""
    repository = tmp_path / "feature_repo"
    repository.mkdir()
    for name in ("feature_store.yaml", "definitions.py"):
        shutil.copy(REPOSITORY / name, repository)
    edit(repository / "feature_store.yaml", "project: leap\n", f"project: {project}\n")
    return Settings(
        kafka_brokers=f"127.0.0.1:{free_port()}",
        redis_url=own_redis.url,
        project=project,
        topic=f"{project}.completions",
        dead_letter_topic=f"{project}.dead-letter",
        partitions=1,
        archive_within_s=5.0,
        archive=str(tmp_path / "archive"),
        history=str(tmp_path / "history"),
        bundles=str(tmp_path / "bundles"),
        feature_repo=str(repository),
    )


def but(settings: Settings, **changes: Any) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


def environment(settings: Settings) -> dict[str, str]:
    """The environment of a process with `settings`."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    given = {name: value for name, value in msgspec.structs.asdict(settings).items() if value not in ("", False)}
    return clean | {f"LEAP_{name.upper()}": str(value) for name, value in given.items()}


def faults(settings: Settings, *, limit_s: float = 30.0) -> dict[str, Finding]:
    """What the doctor finds wrong, by check."""
    return {finding.check: finding for finding in examine(gather(settings, limit_s=limit_s)) if finding.rule}


def send(settings: Settings, **record: Any) -> None:
    """One record: by default an event of the model type `ranker` that completed ten minutes ago, keyed by it."""
    completed = datetime.now(UTC) - timedelta(minutes=10)
    record = {"topic": settings.topic, "key": b"ranker", "value": raw_event(completed=completed)} | record
    producer = Producer(client_config(settings) | {"partitioner": record.pop("partitioner", "murmur2_random")})
    producer.produce(**record)
    assert producer.flush(30) == 0


def write_meta(settings: Settings, **changes: Any) -> None:
    meta = Meta(
        schema=SCHEMA_VERSION, family_rule="1", epoch=FIRST_LIVE_EPOCH, topic_uuid="", generation="g", state="ready"
    )
    with redis.Redis.from_url(settings.redis_url) as client:
        client.hset(meta_key(settings.project), mapping=encode_meta(msgspec.structs.replace(meta, **changes)))


def settled(settings: Settings, app: App, count: int) -> bool:
    """Whether `count` members of the group of `app` have shared out the partitions."""
    state, joined = doctor_kafka.groups(settings)[app]
    return state == "stable" and len(joined) == count


@contextmanager
def members(settings: Settings, app: App, count: int) -> Iterator[None]:
    """`count` members of the group of `app`, of one consumer each, once they have shared out the partitions."""
    config = client_config(settings) | {"group.id": f"{settings.project}-{app}", "enable.auto.commit": False}
    consumers = [Consumer(config) for _ in range(count)]
    try:
        for consumer in consumers:
            consumer.subscribe([settings.topic])

        def joined() -> bool:
            for consumer in consumers:
                consumer.poll(0.1)
            return settled(settings, app, count)

        wait_until(joined, timeout_s=60, what="a group that is stable")
        yield
    finally:
        for consumer in consumers:
            consumer.close()


def apart(partitions: int) -> str:
    """A model type that CRC32 puts elsewhere than murmur2."""
    names = (f"model{i}" for i in range(1_000))
    return next(
        name
        for name in names
        if java_partition(name.encode(), partitions) != librdkafka_partition(name.encode(), partitions)
    )


def snapshot(settings: Settings) -> dict[str, Any]:
    """What the doctor must leave as it is."""
    admin = AdminClient(client_config(settings))
    with redis.Redis.from_url(settings.redis_url) as client:
        keys = {key: client.dump(key) for key in client.scan_iter()}
    files = [
        path for root in (settings.archive, settings.feature_repo, settings.bundles) for path in Path(root).rglob("*")
    ]
    return {
        "keys": keys,
        "groups": {group.group_id for group in admin.list_consumer_groups().result(30).valid},
        "topics": set(admin.list_topics(timeout=30).topics),
        "offsets": doctor_kafka.bounds(settings),
        "files": {path: path.read_bytes() for path in files if path.is_file() and "__pycache__" not in path.parts},
    }


@pytest.mark.real_kafka
def test_a_deployment_that_is_well_has_no_warning_and_a_worker_too_many_or_the_last_one_gone_is_named(
    real_kafka: RealKafka, place: Settings, tmp_path: Path
) -> None:
    settings = but(place, kafka_brokers=real_kafka.brokers)
    env = environment(settings)
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    with (
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
    ):
        with CompletionProducer(settings) as producer:
            for i in range(20):
                producer.send_encoded(
                    raw_event(attempt_id=f"a{i}", completed=datetime.now(UTC) - timedelta(minutes=10))
                )
        apply_definitions(open_feature_store(settings), settings)
        publish_small_bundle(Path(settings.bundles), project=settings.project)
        wait_until(lambda: checkpoints(settings) == {0: 20}, timeout_s=60, what="the end", process=worker)
        wait_until(
            lambda: archive.end_offsets(settings.archive, FIRST_LIVE_EPOCH) == {0: 20},
            timeout_s=60,
            what="the archive's end",
            process=archiver,
        )
        history_build.build(settings.archive, settings.history, horizon_us=settings.horizon_us)

        before = snapshot(settings)
        with LeapProcess(["doctor"], env, tmp_path / "doctor.log") as doctor:
            assert doctor.wait() == 0, doctor.log.read_text()
        report = doctor.log.read_text()
        assert "errors 0, warnings 0, notes 3, ok " in report  # one replica of each topic, none of Redis
        assert "\x1b[" not in report
        assert snapshot(settings) == before

        with LeapProcess(["worker"], env, tmp_path / "second.log") as second:
            wait_until(lambda: settled(settings, "history", 2), timeout_s=60, what="a second worker", process=second)
            found = faults(settings)
            assert set(found) == {"topic.replicas", "dead-letter.replicas", "redis.replicas", "history.idle"}
            assert found["history.idle"].found.startswith(f"1 of 2 members of group {settings.project}-history have no")
            assert second.terminate() == 0
        assert worker.terminate() == 0
        with LeapProcess(["doctor", "--json"], env, tmp_path / "doctor.json") as doctor:
            assert doctor.wait() == 1
    printed = json.loads(doctor.log.read_text())
    assert printed["worst"] == "error"
    (fault,) = [finding for finding in printed["findings"] if finding["severity"] in ("warning", "error")]
    assert fault == {
        "severity": "error",
        "check": "history.members",
        "found": f"group {settings.project}-history has no member (state empty)",
        "rule": "events wait until `leap worker` runs",
        "mend": "start `leap worker`; if it runs and ends, its last line says why",
    }


@pytest.mark.real_kafka
def test_topics_producers_store_and_registry_that_are_wrong_are_named(
    real_kafka: RealKafka, place: Settings, own_redis: RedisServer, tmp_path: Path
) -> None:
    settings = but(
        place,
        kafka_brokers=real_kafka.brokers,
        partitions=4,
        batch_within_s=10.0,
        archive_within_s=1.0,
        policy=str(tmp_path),
    )
    real_kafka.create_topic(
        settings.topic,
        partitions=3,
        config={
            "message.timestamp.type": "CreateTime",
            "retention.ms": str(DAY_MS),
            "retention.bytes": "1000000000",
            "max.message.bytes": "50000",
            "unclean.leader.election.enable": "true",
        },
    )
    real_kafka.create_topic(
        settings.dead_letter_topic,
        partitions=1,
        config={
            "cleanup.policy": "compact,delete",
            "retention.ms": str(DAY_MS),
            "retention.bytes": "1000000000",
            "max.message.bytes": "50000",
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "true",
        },
    )
    model = apart(3)
    crc32, murmur2 = librdkafka_partition(model.encode(), 3), java_partition(model.encode(), 3)
    (neither,) = {0, 1, 2} - {crc32, murmur2}
    value = raw_event(model_type=model, completed=datetime.now(UTC) - timedelta(minutes=1))
    now = datetime.now(UTC)
    # The first record of the last partition tells when that came: what is older is not judged.
    send(settings, key=None, value=value, partition=2)
    send(settings, key=model.encode(), value=value, partitioner="consistent_random")
    send(settings, key=model.encode(), value=value, partition=neither)
    send(settings, key=b"another", value=value)
    send(settings, value=raw_event(completed=now), timestamp=to_us(now) // 1000 - 60_000)
    send(settings, timestamp=to_us(now) // 1000 + 3_600_000)

    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("appendonly", "no")
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.1))
        client.config_set("maxmemory-policy", "allkeys-lru")
    write_meta(settings, family_rule="1+0123abcd", topic_uuid="former", state="rebuilding", checkpoints={0: 10_000})

    archived = event("a1")
    write_events(settings.archive, [archived])
    archive_epochs.note(settings.archive, FIRST_LIVE_EPOCH, Life("another"))
    row = archive.to_record(
        archived, Position(FIRST_LIVE_EPOCH, 0, 5), to_us(archived.completed_at), False, OTHER_RULES
    )
    archive.write_segment(settings.archive, FIRST_LIVE_EPOCH, 0, 5, 5, [row])
    complete = str(tmp_path / "complete")
    write_events(complete, [archived])
    history_build.build(complete, settings.history, horizon_us=DAY_US)
    publish_small_bundle(Path(settings.bundles))  # of another project

    definitions = Path(settings.feature_repo) / "definitions.py"
    edit(definitions, "timedelta(0)", "timedelta(days=1)")
    apply_definitions(open_feature_store(settings), settings)
    edit(definitions, "timedelta(days=1)", "timedelta(0)")
    edit(Path(settings.feature_repo) / "feature_store.yaml", f"project: {settings.project}", "project: leap")

    with members(settings, "history", 4):
        found = faults(settings)

    assert set(found) == {
        "topic.timestamps",
        "topic.retention",
        "topic.retention-bytes",
        "topic.record-size",
        "topic.unclean-leader",
        "topic.replicas",
        "topic.partitions",
        "dead-letter.cleanup",
        "dead-letter.retention",
        "dead-letter.retention-bytes",
        "dead-letter.record-size",
        "dead-letter.replicas",
        "dead-letter.unclean-leader",
        "producers.partitioner",
        "producers.other-partitioner",
        "producers.keys",
        "producers.null-keys",
        "history.idle",
        "archive.members",
        "archive.complete",
        "archive.family-rule",
        "archive.topic",
        "redis.append-only",
        "redis.server",
        "redis.memory",
        "redis.replicas",
        "store.family-rule",
        "store.state",
        "store.topic",
        "store.checkpoint-ahead",
        "versions.history-rows",
        "versions.bundle",
        "versions.policy",
        "registry.project",
        "registry.ttl",
        "registry.in-step",
        "settings.batch",
        "settings.archive-batch",
        "clocks.broker",
        "clocks.producers",
    }
    assert found["dead-letter.replicas"].severity == "error"
    assert "1 of 4 members" in found["history.idle"].found
    assert found["registry.ttl"].found.startswith("these views have a ttl: family_hardware_history, ")
    assert "it has another feature view family_history (ttl)" in found["registry.in-step"].found


@pytest.mark.real_kafka
def test_apps_that_fell_behind_and_a_topic_that_grew_or_lost_records_are_named(
    real_kafka: RealKafka, place: Settings, own_redis: RedisServer, tmp_path: Path
) -> None:
    settings = but(place, kafka_brokers=real_kafka.brokers, partitions=2, family_rules=str(tmp_path / "none.toml"))
    config = {"message.timestamp.type": "CreateTime", "retention.ms": str(14 * DAY_MS)}
    real_kafka.create_topic(settings.topic, partitions=1, config=config | {"cleanup.policy": "compact,delete"})
    real_kafka.create_topic(settings.dead_letter_topic, partitions=1, config={"max.message.bytes": "2097152"})
    ten_days_ago_ms = to_us(datetime.now(UTC)) // 1000 - 10 * DAY_MS
    for _ in range(20):
        send(settings, timestamp=ten_days_ago_ms)
    send(settings, topic=settings.dead_letter_topic, headers=[(f"{HEADER_PREFIX}rule", b"json")])
    admin = AdminClient(client_config(settings))
    for future in admin.delete_records([TopicPartition(settings.topic, 0, 15)]).values():
        future.result(30)

    write_events(settings.archive, [event("a1")])
    write_meta(settings, checkpoints={0: 5})
    bundle_id = publish_small_bundle(Path(settings.bundles), project=settings.project)
    (Path(settings.bundles) / bundle_id / "layered.npz").write_bytes(b"damaged")
    edit(
        Path(settings.feature_repo) / "feature_store.yaml",
        "  type: leap_features.online_store.AtomicRedisOnlineStore",
        "  type: sqlite",
    )
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("appendfsync", "no")
        client.replicaof("127.0.0.1", free_port())

    with members(settings, "history", 1):
        admin.create_partitions([NewPartitions(settings.topic, 2)])[settings.topic].result(30)
        wait_until(
            lambda: doctor_kafka.topics(settings)[settings.topic].partitions == 2,
            timeout_s=30,
            what="a second partition",
        )
        found = faults(settings)

    assert set(found) >= {
        "topic.cleanup",
        "dead-letter.count",
        "history.unassigned",
        "history.lag",
        "archive.lag",
        "archive.in-danger",
        "archive.lost",
        "redis.fsync",
        "redis.role",
        "store.checkpoint-passed",
        "versions.family-rules",
        "versions.bundle",
        "registry.online-store",
    }
    assert found["archive.lost"].rule == "the 14 records between are nowhere any more"
    assert found["store.checkpoint-passed"].rule.startswith("10 records have been deleted by retention")
    assert "deletes in 4.0 days" in found["archive.in-danger"].found
    assert "layered.npz" in found["versions.bundle"].found


@pytest.mark.real_kafka
def test_what_was_never_made_is_named_with_the_command_that_makes_it(real_kafka: RealKafka, place: Settings) -> None:
    found = faults(but(place, kafka_brokers=real_kafka.brokers))
    assert {check: found[check].mend for check in ("store.meta", "topic.exists", "archive.readable")} == {
        "store.meta": "`leap init` for a new store, `leap rebuild` for one that lost its data",
        "topic.exists": "`leap init`, or the right LEAP_TOPIC and LEAP_DEAD_LETTER_TOPIC",
        "archive.readable": "mend LEAP_ARCHIVE, or `leap init`",
    }
    assert set(found) >= {"dead-letter.exists", "versions.history-rows", "versions.bundle", "registry.applied"}
    assert not (Path(place.feature_repo) / "data").exists()
    assert place.topic not in AdminClient({"bootstrap.servers": real_kafka.brokers}).list_topics(timeout=30).topics


def test_a_broker_that_is_down_and_a_redis_that_hangs_are_named_and_the_others_are_asked(
    place: Settings, own_redis: RedisServer
) -> None:
    archive.create(place.archive)
    own_redis.pause()
    try:
        findings = examine(gather(place, limit_s=20.0))
    finally:
        own_redis.go_on()
    found = {finding.check: finding for finding in findings}
    assert found["topic.broker"].severity == "error"
    assert "TimeoutError" in found["redis.answers"].found
    assert found["history.groups"].found == "not checked: the broker does not answer"
    assert found["archive.complete"].severity == "ok"


def test_a_redis_that_refuses_the_password_is_named_and_the_password_is_not(
    place: Settings, own_redis: RedisServer
) -> None:
    urls = {name: f"redis://:{name}-secret@127.0.0.1:{own_redis.port}/0" for name in ("right", "wrong")}
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("requirepass", "right-secret")
    told = ask({name: partial(redis_server, but(place, redis_url=url)) for name, url in urls.items()}, limit_s=15.0)
    assert told["wrong"].reason.startswith("AuthenticationError: ")
    assert told["right"].server.role == "master"
    assert "secret" not in str(told)


def test_the_embedded_broker_is_asked_for_what_it_can_tell(place: Settings) -> None:
    with EmbeddedKafka() as kafka:
        settings = but(place, kafka_brokers=kafka.brokers, allow_create_time=True)
        kafka.create_topic(settings.topic, partitions=1)
        kafka.create_topic(settings.dead_letter_topic, partitions=1)
        write_meta(settings)
        archive.create(settings.archive)
        send(settings)
        send(settings, key=None)
        findings = examine(gather(settings))
    found = {finding.check: finding.found for finding in findings}
    assert found["topic.configs"].startswith("not checked: LEAP_ALLOW_CREATE_TIME is set")
    assert found["history.groups"].startswith("not checked: LEAP_ALLOW_CREATE_TIME is set")
    assert found["producers.null-keys"].startswith("1 of the latest 2 records (50.0%) have no key")
    assert found["history.lag"] == "2 records wait"
    assert {f.check for f in findings if f.severity in ("warning", "error")} == {"producers.null-keys"}

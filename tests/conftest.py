"""Fixtures that tests of every room share: one broker and one Redis per run, and fresh names for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis

# Feast switches this library to its multi-process mode, unless it was imported before; and so in what is started later.
os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
import prometheus_client  # noqa: F401
import pytest
import redis

from leap_features.settings import Settings
from services import LIBS_VARIABLE, EmbeddedKafka, Kafka, RealKafka, RedisServer
from small_bundle import publish_small_bundle
from stored_history import store_meta

# Its assertions compare whole stores: without this a failure would not say where they differ.
pytest.register_assert_rewrite("stream_traffic", "interleavings", "archived_interleavings")

# No example is too slow: how long one takes depends on the machine. `--hypothesis-profile=long` looks at many more.
hypothesis.settings.register_profile("leap", deadline=None)
hypothesis.settings.register_profile("long", max_examples=5_000, deadline=None)
hypothesis.settings.load_profile("leap")


class Topics(NamedTuple):
    """The topics of one test."""

    completions: str
    dead_letter: str


@pytest.fixture(scope="session")
def kafka_libs() -> Path | None:
    """The directory of Kafka's jars that LEAP_TEST_KAFKA_LIBS names; None: there is none."""
    value = os.environ.get(LIBS_VARIABLE)
    return Path(value) if value else None


@pytest.fixture(scope="session")
def kafka(kafka_libs: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker: a real Kafka where its jars are given, else the embedded one. Not to be killed: see `own_kafka`."""
    if kafka_libs is None:
        with EmbeddedKafka() as embedded:
            yield embedded
    else:
        with RealKafka(kafka_libs, tmp_path_factory.mktemp("kafka")) as real:
            yield real


@pytest.fixture(scope="session")
def real_kafka(kafka: Kafka) -> RealKafka:
    """The run's broker, which must be a real Kafka; for tests marked `real_kafka`."""
    if not isinstance(kafka, RealKafka):
        pytest.fail(f"this test needs a real Kafka: `make kafka-jars`, then {LIBS_VARIABLE}=.cache/kafka")
    return kafka


@pytest.fixture
def own_kafka(kafka_libs: Path | None, tmp_path: Path) -> Iterator[RealKafka]:
    """A real Kafka of this test alone, which may stop and kill it; for tests marked `real_kafka`."""
    if kafka_libs is None:
        pytest.fail(f"this test needs a real Kafka: `make kafka-jars`, then {LIBS_VARIABLE}=.cache/kafka")
    with RealKafka(kafka_libs, tmp_path / "kafka") as real:
        yield real


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The run's Redis. Not to be killed: see `own_redis`."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of this test alone with an append-only file forced to disk at every write; it may be killed."""
    with RedisServer(tmp_path / "redis", append_only=True, fsync="always") as server:
        yield server


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client (bytes in, bytes out) of the run's Redis, which is emptied before the test."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
        yield client


@pytest.fixture
def project() -> str:
    """A Feast project that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def bundles(tmp_path: Path, project: str) -> Path:
    """A directory of bundles with one small model, published."""
    publish_small_bundle(tmp_path / "bundles", project=project)
    return tmp_path / "bundles"


@pytest.fixture
def store(redis_client: redis.Redis, project: str) -> redis.Redis:
    """A client of the run's Redis, which is ready and has no history."""
    store_meta(redis_client, project)
    return redis_client


@pytest.fixture
def partitions() -> int:
    """Number of partitions of the test's topics; a test that needs another number parametrizes it directly."""
    return 4


@pytest.fixture
def topics(kafka: Kafka, project: str, partitions: int) -> Topics:
    """Fresh, empty topics for completion events and dead letters."""
    made = Topics(f"{project}.completions", f"{project}.completions.dead-letter")
    for name in made:
        kafka.create_topic(name, partitions=partitions)
    return made


@pytest.fixture
def settings(
    kafka: Kafka,
    redis_server: RedisServer,
    redis_client: redis.Redis,
    project: str,
    topics: Topics,
    partitions: int,
    tmp_path: Path,
) -> Settings:
    """Settings of a fresh deployment: own project, topics and folders on the run's broker and an emptied Redis."""
    return Settings(
        kafka_brokers=kafka.brokers,
        redis_url=redis_server.url,
        project=project,
        topic=topics.completions,
        dead_letter_topic=topics.dead_letter,
        partitions=partitions,
        archive=str(tmp_path / "archive"),
        history=str(tmp_path / "history"),
        bundles=str(tmp_path / "bundles"),
        allow_create_time=not kafka.append_time,
    )


@pytest.fixture
def settings_env(settings: Settings) -> dict[str, str]:
    """The environment of a process that is to run with `settings`: this one's, without its own LEAP_ variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    return clean | {
        "LEAP_KAFKA_BROKERS": settings.kafka_brokers,
        "LEAP_REDIS_URL": settings.redis_url,
        "LEAP_PROJECT": settings.project,
        "LEAP_TOPIC": settings.topic,
        "LEAP_DEAD_LETTER_TOPIC": settings.dead_letter_topic,
        "LEAP_PARTITIONS": str(settings.partitions),
        "LEAP_ARCHIVE": settings.archive,
        "LEAP_HISTORY": settings.history,
        "LEAP_BUNDLES": settings.bundles,
        "LEAP_ALLOW_CREATE_TIME": str(settings.allow_create_time).lower(),
    }

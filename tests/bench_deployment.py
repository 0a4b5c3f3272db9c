"""A deployment for benchmarks: a broker, a Redis, the topics and what `leap init` makes, as long as it is needed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from leap_features.settings import Settings
from services import LIBS_VARIABLE, EmbeddedKafka, Kafka, RealKafka, RedisServer
from stream_process import LeapProcess

ROOT: Final = Path(__file__).resolve().parent.parent
PARTITIONS: Final = 8


class BenchDeployment(NamedTuple):
    """Where everything is."""

    settings: Settings
    env: dict[str, str]
    """Of a process that is to run with `settings`."""
    directory: Path
    """For logs and other files; removed at the end."""
    broker: str
    """What kind of broker it is, for the result."""


@contextmanager
def bench_deployment() -> Iterator[BenchDeployment]:
    """Start it all: a real Kafka where LEAP_TEST_KAFKA_LIBS names its jars, else the embedded broker."""
    libs = os.environ.get(LIBS_VARIABLE)
    with tempfile.TemporaryDirectory() as name, RedisServer() as redis_server:
        directory = Path(name)
        broker: Kafka
        with RealKafka(Path(libs), directory / "kafka") if libs else EmbeddedKafka() as broker:
            env = _environment(broker, redis_server.url, directory)
            settings = Settings.from_env(env)
            for topic in (settings.topic, settings.dead_letter_topic):
                broker.create_topic(topic, partitions=PARTITIONS)
            with LeapProcess(["init"], env, directory / "init.log") as init:
                if init.wait() != 0:
                    raise SystemExit(init.log.read_text())
            yield BenchDeployment(settings, env, directory, "Apache Kafka" if broker.append_time else "embedded")


def _environment(broker: Kafka, redis_url: str, directory: Path) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")} | {
        "LEAP_KAFKA_BROKERS": broker.brokers,
        "LEAP_REDIS_URL": redis_url,
        "LEAP_PROJECT": "bench",
        "LEAP_TOPIC": "bench.completions",
        "LEAP_DEAD_LETTER_TOPIC": "bench.dead-letter",
        "LEAP_PARTITIONS": str(PARTITIONS),
        "LEAP_ARCHIVE": str(directory / "archive"),
        "LEAP_HISTORY": str(directory / "history"),
        "LEAP_FEATURE_REPO": str(ROOT / "feature_repo"),
        "LEAP_ALLOW_CREATE_TIME": str(not broker.append_time).lower(),
    }

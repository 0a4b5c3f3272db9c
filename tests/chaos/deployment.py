"""A whole LEAP on one machine: a Kafka, a Redis with its replica and sentinel, and the product's processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec  # type: ignore[attr-defined]

from chaos.supervisor import Supervisor
from leap_features import archive
from leap_features.meta import Meta, decode_meta, meta_key
from leap_features.settings import Settings
from services import RealKafka, SentinelDeployment
from stream_process import LeapProcess

PROJECT: Final = "chaos"
TOPIC: Final = "chaos.completions"
DEAD_LETTER_TOPIC: Final = "chaos.dead-letter"
PARTITIONS: Final = 6
GROWN_PARTITIONS: Final = 9
ROOT: Final = Path(__file__).parents[2]


class Deployment:
    """The servers run, and what is to be kept running is under the supervisor."""

    def __init__(
        self,
        kafka: RealKafka,
        redis_servers: SentinelDeployment,
        directory: Path,
        env: Mapping[str, str],
        supervisor: Supervisor,
    ) -> None:
        self.kafka = kafka
        self.redis = redis_servers
        self.directory = directory
        """Of everything that it writes."""
        self.env = env
        self.settings = Settings.from_env(env)
        self.supervisor = supervisor

    def meta(self) -> Meta | None:
        """What the online store says about itself; None where it does not, or does not answer."""
        try:
            with redis.Redis.from_url(self.redis.master.url, socket_timeout=5) as client:
                return decode_meta(client.hgetall(meta_key(PROJECT)))
        except redis.RedisError:
            return None

    def taken_in(self) -> int:
        """Records up to the checkpoints; 0 where the store does not say."""
        meta = self.meta()
        return sum(meta.checkpoints.values()) if meta else 0

    def lag(self) -> int:
        """Offsets of the topic that are not taken in yet."""
        admin = AdminClient({"bootstrap.servers": self.kafka.brokers})
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = [TopicPartition(TOPIC, p) for p in admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions]
        asked = admin.list_offsets(dict.fromkeys(places, latest), request_timeout=30)
        return sum(int(future.result().offset) for future in asked.values()) - self.taken_in()

    def archived(self) -> dict[int, int]:
        """Partition → offset after the last one that is archived."""
        meta = self.meta()
        return archive.end_offsets(self.settings.archive, meta.epoch) if meta else {}

    def grow_topic(self) -> None:
        """Add partitions, and return once they can be written to."""
        admin = AdminClient({"bootstrap.servers": self.kafka.brokers})
        admin.create_partitions([NewPartitions(TOPIC, GROWN_PARTITIONS)])[TOPIC].result(timeout=60)

        def led() -> bool:
            found = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
            return len(found) == GROWN_PARTITIONS and all(partition.leader >= 0 for partition in found.values())

        self.wait_until(led, 60, "leaders of the new partitions")

    def command(self, *arguments: str) -> LeapProcess:
        """`leap ARGUMENTS…`, started; killed where it still runs at the end of a `with`."""
        return LeapProcess(list(arguments), self.env, self.directory / "logs" / f"{arguments[0]}.log")

    def wait_until(self, condition: Callable[[], bool], timeout_s: float, what: str, *, may_halt: bool = False) -> None:
        """Poll `condition`.

        Raises:
            TimeoutError: it did not come true, or something has halted that ought not to; with the ends of all logs.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            halted = self.supervisor.halted()
            if time.monotonic() > deadline or (halted and not may_halt):
                why = f"{halted} halted" if halted else f"not within {timeout_s:g} s"
                raise TimeoutError(f"{what}: {why}\n{self.supervisor.tails()}")
            time.sleep(0.1)


@contextmanager
def deployed(libs: Path, directory: Path, say: Callable[[str], None]) -> Iterator[Deployment]:
    """A deployment after `leap init`, its worker and archive app running.

    Args:
        libs: directory of Kafka's jars.
        directory: of everything that it writes; empty.
    """
    logs = directory / "logs"
    logs.mkdir(parents=True)
    with (
        RealKafka(libs, directory / "kafka") as kafka,
        SentinelDeployment(directory / "redis") as redis_servers,
    ):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
        env = clean | {
            "LEAP_KAFKA_BROKERS": kafka.brokers,
            "LEAP_REDIS_URL": redis_servers.url,
            "LEAP_PROJECT": PROJECT,
            "LEAP_TOPIC": TOPIC,
            "LEAP_DEAD_LETTER_TOPIC": DEAD_LETTER_TOPIC,
            "LEAP_PARTITIONS": str(PARTITIONS),
            "LEAP_ARCHIVE": str(directory / "archive"),
            "LEAP_HISTORY": str(directory / "history"),
            "LEAP_FEATURE_REPO": str(ROOT / "feature_repo"),
            # Small batches and segments: there are many to be disturbed.
            "LEAP_BATCH_MAX": "500",
            "LEAP_ARCHIVE_BATCH_MAX": "3000",
            "LEAP_ARCHIVE_WITHIN_S": "1",
        }
        with LeapProcess(["init"], env, logs / "init.log") as init:
            if init.wait(120) != 0:
                raise RuntimeError(init.log.read_text())
        with Supervisor(env, logs, say) as supervisor:
            supervisor.start("worker-1", "worker")
            supervisor.start("archive", "archive")
            yield Deployment(kafka, redis_servers, directory, env, supervisor)

"""Servers for tests: an Apache Kafka or librdkafka's mock cluster, and a Redis, that can be stopped, killed, restarted.

with RealKafka(libs, directory) as kafka:          # libs: a directory of Kafka's jars (`make kafka-jars`)
    kafka.create_topic("leap.completions", partitions=8)
    kafka.kill()                                   # SIGKILL
    kafka.start()                                  # same port, same data
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leap_streams.child_process import LOOPBACK, ChildProcess, free_port
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis

LIBS_VARIABLE: Final = "LEAP_TEST_KAFKA_LIBS"
"""Environment variable that names the directory of Kafka's jars; absent: tests run on the embedded broker."""
START_TIMEOUT_S: Final = 120.0
"""After SIGKILL a broker first recovers its log, which took 13 s on two cores."""


class Kafka(Protocol):
    """What a test may ask of either broker."""

    @property
    def brokers(self) -> str:
        """`host:port`."""

    @property
    def append_time(self) -> bool:
        """Whether topics record the broker's append time; otherwise they record the producer's."""

    def create_topic(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and return once it can be used."""


class EmbeddedKafka:
    """librdkafka's mock cluster as a `Kafka`; topic configuration is accepted and has no effect there."""

    append_time = False

    def __init__(self) -> None:
        self._broker = EmbeddedBroker()

    @property
    def brokers(self) -> str:
        """`host:port`."""
        return self._broker.brokers

    def create_topic(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic."""
        del config
        self._broker.create_topic(name, partitions)

    def __enter__(self) -> Self:
        self._broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.stop()


class RealKafka:
    """A single-node Apache Kafka in KRaft mode, run from its jars.

    Topics are made with `message.timestamp.type=LogAppendTime`, as in production, unless told otherwise.
    """

    append_time = True

    def __init__(self, libs: Path, directory: Path, *, heap: str = "256m") -> None:
        """Describe a broker; nothing starts yet.

        Args:
            libs: directory of Kafka's jars.
            directory: its data and log; made where absent, kept afterwards.
            heap: Java's heap, as in `-Xmx`.
        """
        if not any(libs.glob("kafka_2.13-*.jar")):
            raise FileNotFoundError(f"no kafka_2.13-*.jar in {libs}: `make kafka-jars` fetches the jars")
        self._classpath = f"{libs.resolve()}/*"
        self._directory = directory.resolve()
        self._heap = heap
        self._port = free_port()
        self._controller_port = free_port()
        self._child: ChildProcess | None = None

    @property
    def brokers(self) -> str:
        """`host:port`; the same over restarts."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        return self._running().pid

    def start(self) -> None:
        """Start the broker and return once it answers; the first start formats its directory."""
        if self._child is not None:
            raise RuntimeError(f"Kafka already runs at {self.brokers}")
        properties = self._directory / "server.properties"
        if not properties.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            properties.write_text(self._properties(), encoding="utf-8")
            cluster = self._tool("kafka.tools.StorageTool", "random-uuid").strip().splitlines()[-1]
            self._tool("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties))
        self._child = ChildProcess(
            [*self._java(), "kafka.Kafka", str(properties)], directory=self._directory, log=self._log
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker in order, if it runs."""
        if self._child is not None:
            self._child.stop(timeout_s=30.0)
            self._child = None

    def kill(self) -> None:
        """Kill the broker as a crash would (SIGKILL); `start` brings it back with the same data."""
        self._running().kill()
        self._child = None

    def create_topic(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and return once every partition has a leader.

        Args:
            name: of the topic.
            partitions: >= 1.
            config: topic settings that are added to, or replace, LogAppendTime.
        """
        settings = {"message.timestamp.type": "LogAppendTime", **(config or {})}
        admin = AdminClient({"bootstrap.servers": self.brokers})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin.create_topics([topic])[name].result(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            described = admin.list_topics(name, timeout=10).topics[name].partitions
            if len(described) == partitions and all(partition.leader >= 0 for partition in described.values()):
                return
            time.sleep(0.05)
        raise TimeoutError(f"topic {name!r} has no leader for each of its {partitions} partitions after 30 s")

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all that it holds."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.delete_topics([name])[name].result(timeout=30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _log(self) -> Path:
        return self._directory / "kafka.log"

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise RuntimeError("Kafka is not running: call start()")
        return self._child

    def _java(self) -> list[str]:
        java = shutil.which("java")
        if java is None:
            raise FileNotFoundError("no java on the PATH: a real Kafka needs Java 17 or later")
        return [java, f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]

    def _tool(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._java(), *arguments], cwd=self._directory, capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _properties(self) -> str:
        return "\n".join(
            f"{name}={value}"
            for name, value in {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{self._controller_port}",
                "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": self._directory / "data",
                # A topic that nobody made must be an error in a test, not a topic with other settings.
                "auto.create.topics.enable": "false",
                # One node: one replica; few internal partitions start and recover faster.
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "4",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "4",
                "share.coordinator.state.topic.replication.factor": "1",
                "share.coordinator.state.topic.min.isr": "1",
                "share.coordinator.state.topic.num.partitions": "1",
                # A group's first member need not wait 3 s for more.
                "group.initial.rebalance.delay.ms": "0",
            }.items()
        )

    def _wait_until_ready(self) -> None:
        child = self._running()
        # Its own errors are expected while the broker is not up yet, so they are not logged.
        admin = AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})
        deadline = time.monotonic() + START_TIMEOUT_S
        while child.running() and time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                time.sleep(0.05)
        log = self._log.read_text(errors="replace")[-3000:]
        raise TimeoutError(f"Kafka did not answer at {self.brokers}; the end of its log:\n{log}")


class RedisServer(EmbeddedRedis):
    """A Redis for tests; with `append_only` a killed one comes back with what its file holds."""

    def restart(self) -> None:
        """Kill it as a crash would and start it on the same port and files."""
        self.kill()
        self.start()

"""Servers for tests: an Apache Kafka or librdkafka's mock cluster, and a Redis, that can be stopped, killed, restarted.

A Redis may stand alone (`RedisServer`) or be a master and a replica under sentinels (`SentinelDeployment`).

with RealKafka(libs, directory) as kafka:          # libs: a directory of Kafka's jars (`make kafka-jars`)
    kafka.create_topic("leap.completions", partitions=8)
    kafka.kill()                                   # SIGKILL
    kafka.start()                                  # same port, same data
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leap_streams.child_process import LOOPBACK, ChildProcess, free_port
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis, EmbeddedServiceError, find_redis_server
from stream_process import wait_until

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
    """A Redis for tests; with `append_only` a killed one comes back with what its file holds.

    Args:
        directory, append_only, fsync: as for `EmbeddedRedis`.
        options: further lines of its configuration.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        append_only: bool = False,
        fsync: Literal["always", "everysec", "no"] = "everysec",
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, append_only=append_only, fsync=fsync)
        self._options = dict(options or {})

    def _command(self, executable: Path, port: int, directory: Path) -> list[str]:
        command = super()._command(executable, port, directory)
        for name, value in self._options.items():
            command += [f"--{name}", value]
        return command

    def restart(self) -> None:
        """Kill it as a crash would and start it on the same port and files."""
        self.kill()
        self.start()

    def copy_files(self, to: Path) -> None:
        """Copy its append-only files to the directory `to`, as a backup does: what was written since is not in it."""
        shutil.copytree(self._append_only_files, to)

    def restart_with(self, files: Path) -> None:
        """Kill it and start it with a copy of its append-only files, as after a disk that lost the last writes."""
        self.kill()
        shutil.rmtree(self._append_only_files)
        shutil.copytree(files, self._append_only_files)
        self.start()

    def restart_empty(self) -> None:
        """Kill it and start it without its files."""
        self.kill()
        shutil.rmtree(self._append_only_files)
        self.start()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): it accepts connections and answers nothing."""
        os.kill(self.child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """After a pause."""
        os.kill(self.child.pid, signal.SIGCONT)

    @property
    def _append_only_files(self) -> Path:
        if self._directory is None:
            raise RuntimeError("this Redis has no files: it was never started")
        return self._directory / "appendonlydir"


class SentinelDeployment:
    """A master with an append-only file, its replica, and the sentinels that may promote it; all can be killed.

    with SentinelDeployment(directory) as redis:
        redis.freeze_replica()                     # it lags behind from now on
        redis.fail_over()                          # kills the master; returns once the replica has taken its place

    The sentinels wait `down_after_ms` before they take a server for dead. By default that is far longer than a test
    takes, so that none fails over by itself on a slow machine.
    """

    NAME: Final = "leap"
    """Of the master, to the sentinels."""

    def __init__(
        self, directory: Path, *, sentinels: int = 1, quorum: int | None = None, down_after_ms: int = 600_000
    ) -> None:
        """Describe a deployment; nothing starts yet.

        Args:
            directory: where the servers keep their files.
            sentinels: their number.
            quorum: how many of them must take the master for dead; None: more than half.
            down_after_ms: after how many milliseconds without an answer one of them does.
        """
        # A replica that asks for a copy gets one at once, not with others that might come within 5 s.
        options = {"repl-diskless-sync-delay": "0"}
        self.master = RedisServer(directory / "redis-1", append_only=True, fsync="always", options=options)
        """The server that has this role now."""
        self.replica = RedisServer(directory / "redis-2", append_only=True, fsync="always", options=options)
        """The other one."""
        self._directory = directory
        self._quorum = sentinels // 2 + 1 if quorum is None else quorum
        self._down_after_ms = down_after_ms
        self._ports = [free_port() for _ in range(sentinels)]
        self._sentinels: list[ChildProcess | None] = [None] * sentinels

    @property
    def url(self) -> str:
        """As in `LEAP_REDIS_URL`; the same over failovers."""
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in self._ports)
        return f"redis+sentinel://{hosts}/{self.NAME}/0"

    def start(self) -> None:
        """Start all and return once the replica has the master's data and every sentinel knows of all others."""
        self.master.start()
        self.replica.start()
        self._replicate()
        for number in range(len(self._ports)):
            self.start_sentinel(number)

    def stop(self) -> None:
        """Stop all that runs."""
        for child in self._sentinels:
            if child is not None:
                os.kill(child.pid, signal.SIGCONT)
                child.kill()
        self._sentinels = [None] * len(self._ports)
        for server in (self.master, self.replica):
            with contextlib.suppress(EmbeddedServiceError):  # it was killed
                server.go_on()
            server.stop()

    def sentinels(self) -> Iterator[Any]:
        """A client of each running sentinel."""
        for port, child in zip(self._ports, self._sentinels, strict=True):
            if child is not None:
                with redis.Redis(LOOPBACK, port) as client:
                    yield client

    def set_down_after(self, milliseconds: int) -> None:
        """Set after how many milliseconds without an answer the running sentinels take a server for dead."""
        self._down_after_ms = milliseconds
        for sentinel in self.sentinels():
            sentinel.sentinel_set(self.NAME, "down-after-milliseconds", milliseconds)

    def freeze_replica(self) -> None:
        """Let the replica stand still, and cut it off: what is written from now on never reaches it.

        Without the cut it would find the latest writes in its socket when it goes on.
        """
        self.replica.pause()
        with redis.Redis.from_url(self.master.url) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")

    def fail_over(self) -> None:
        """Kill the master (SIGKILL); return once the replica is the master. A frozen one goes on for it."""
        self.kill_master()
        self.wait_until_failed_over()

    def kill_master(self) -> None:
        """Kill the master (SIGKILL), let a frozen replica go on, and have the sentinels notice soon."""
        self.master.kill()
        self.replica.go_on()
        self.set_down_after(500)

    def wait_until_failed_over(self, timeout_s: float = 60.0) -> None:
        """Return once every running sentinel names the replica, and it is the master; `master` is then that one.

        The sentinels then wait as long as at the start again. The former master stays as it is: see `rejoin`.
        """
        wait_until(self._replica_is_promoted, timeout_s=timeout_s, what="a failover")
        self.master, self.replica = self.replica, self.master
        self.set_down_after(600_000)

    def rejoin(self) -> None:
        """Start the killed former master as the replica of the present one, and return once it has its data."""
        self.replica.start()
        self._replicate()

    def swap_roles(self) -> None:
        """Have the sentinels promote the replica while the master lives, which then becomes its replica.

        They would let the former master be one for 8 s more; clients that it has stay connected here.
        """
        wait_until(self._takes_failover, timeout_s=60, what="a replica that the sentinels find good enough")
        self.wait_until_failed_over()
        self._replicate()

    def kill_sentinel(self, number: int) -> None:
        """Kill one sentinel, counted from 0."""
        child = self._sentinel(number)
        os.kill(child.pid, signal.SIGCONT)
        child.kill()
        self._sentinels[number] = None

    def pause_sentinel(self, number: int) -> None:
        """Let one sentinel stand still: it accepts connections and answers nothing."""
        os.kill(self._sentinel(number).pid, signal.SIGSTOP)

    def go_on_sentinel(self, number: int) -> None:
        """After a pause."""
        os.kill(self._sentinel(number).pid, signal.SIGCONT)

    def start_sentinel(self, number: int) -> None:
        """Start one sentinel, and return once it knows the replica and the other running ones."""
        directory = self._directory / f"sentinel-{number + 1}"
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "sentinel.conf"
        if not configuration.exists():
            port, master = self._ports[number], f"{LOOPBACK} {self.master.port}"
            lines = (
                f"port {port}",
                f"bind {LOOPBACK}",
                f"dir {directory}",
                f"sentinel monitor {self.NAME} {master} {self._quorum}",
                f"sentinel down-after-milliseconds {self.NAME} {self._down_after_ms}",
                f"sentinel failover-timeout {self.NAME} 3000",
            )
            configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._sentinels[number] = ChildProcess(
            [str(find_redis_server()), str(configuration), "--sentinel"],
            directory=directory,
            log=directory / "sentinel.log",
        )
        others = len(list(self.sentinels())) - 1
        wait_until(lambda: self._knows(number, others), timeout_s=60, what=f"sentinel {number} that knows them all")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _replicate(self) -> None:
        with redis.Redis.from_url(self.replica.url) as client:
            client.replicaof(LOOPBACK, self.master.port)
        wait_until(self._replica_has_the_data, timeout_s=60, what="a replica")

    def _replica_has_the_data(self) -> bool:
        with redis.Redis.from_url(self.replica.url) as client:
            return bool(client.info("replication").get("master_link_status") == "up")

    def _sentinel(self, number: int) -> ChildProcess:
        child = self._sentinels[number]
        if child is None:
            raise RuntimeError(f"sentinel {number} is not running: call start_sentinel({number})")
        return child

    def _knows(self, number: int, others: int) -> bool:
        try:
            with redis.Redis(LOOPBACK, self._ports[number]) as client:
                known: dict[str, Any] = client.sentinel_master(self.NAME)
        except redis.RedisError:
            return False
        return (known["num-slaves"], known["num-other-sentinels"]) == (1, others)

    def _takes_failover(self) -> bool:
        try:
            return bool(next(self.sentinels()).sentinel_failover(self.NAME))
        except redis.ResponseError:
            return False

    def _replica_is_promoted(self) -> bool:
        named = {sentinel.sentinel_get_master_addr_by_name(self.NAME)[1] for sentinel in self.sentinels()}
        if named != {self.replica.port}:
            return False
        with redis.Redis.from_url(self.replica.url) as client:
            return bool(client.info("replication")["role"] == "master")

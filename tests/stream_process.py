"""Running the stream's commands as real processes, and waiting for what they do."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, TopicPartition

from leap_features import redis_address
from leap_features.meta import decode_meta, meta_key
from leap_features.settings import Settings
from leap_streams.history_writer import Delivery
from leap_streams.kafka import REPLAY_HEADER, client_config

LEAP = "from leap_features.command import leap; leap()"
LOG_APPEND_TIME_OR_CREATE_TIME = (1, 2)


class LeapProcess:
    """`leap ARGUMENTS…` as a process of its own, its log in a file."""

    def __init__(self, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LEAP, *arguments], env=dict(env), stdout=out, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """kill −9."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=10)

    def pause(self) -> None:
        """Let it stand still, as a machine without CPU time would (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After a pause."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 30) -> int:
        """SIGTERM; the exit status."""
        self._process.terminate()
        return self._process.wait(timeout=timeout_s)

    def wait(self, timeout_s: float = 60) -> int:
        """Until it ends by itself; the exit status."""
        return self._process.wait(timeout=timeout_s)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running:
            self.kill()


def wait_until(
    condition: Callable[[], bool], *, timeout_s: float, what: str, process: LeapProcess | None = None
) -> None:
    """Poll `condition`; fail with the process's log if it ends or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        ended = process is not None and not process.running
        if ended or time.monotonic() > deadline:
            log = process.log.read_text()[-4000:] if process else ""
            raise AssertionError(f"{what}: {'the process ended' if ended else f'not within {timeout_s:g} s'}\n{log}")
        time.sleep(0.1)


def checkpoints(settings: Settings) -> dict[int, int]:
    """Partition → next offset to take in, as the online store has it."""
    with redis_address.client(settings.redis_url) as client:
        meta = decode_meta(client.hgetall(meta_key(settings.project)))
    return {} if meta is None else dict(meta.checkpoints)


def read_topic(settings: Settings, topic: str) -> list[Delivery]:
    """Every record of `topic`, partition by partition, with the time at which the broker recorded it."""
    # A short wait: at a partition's end the next one waits for it.
    options = {"group.id": "reader", "enable.auto.commit": False, "fetch.wait.max.ms": 20, "enable.partition.eof": True}
    consumer = Consumer(client_config(settings) | options)
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        found: list[Delivery] = []
        for partition in sorted(partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            consumer.assign([TopicPartition(topic, partition, first)])
            at = first
            while at < end:
                for message in consumer.consume(min(end - at, 1000), timeout=1):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        at = message.offset() or end  # the last offsets may be of no record, but of transactions' ends
                        continue
                    assert error is None, error
                    kind, milliseconds = message.timestamp()
                    assert kind in LOG_APPEND_TIME_OR_CREATE_TIME
                    headers: Any = tuple(message.headers() or ())
                    offset = message.offset()
                    assert offset is not None
                    replay = (REPLAY_HEADER, b"1") in headers
                    value = message.value()
                    found.append(
                        Delivery(partition, offset, milliseconds * 1000, value, replay, message.key(), headers)
                    )
                    at = offset + 1
        return found
    finally:
        consumer.close()


def ends(deliveries: list[Delivery]) -> dict[int, int]:
    """Partition → offset after its last record."""
    return {delivery.partition: delivery.offset + 1 for delivery in deliveries}

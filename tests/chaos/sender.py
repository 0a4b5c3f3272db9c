"""Sends the list of events as two kinds of clients would, and waits until the broker has them all.

In between, transactions are aborted: what they sent never counts, and leaves holes in the offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from chaos.events import PARTITIONERS, Partitioner, Record

DELIVERY_TIMEOUT_S: Final = 300.0
"""Above any time for which a broker is away in a run."""
ABORT_EVERY: Final = 100
"""Records between two aborted transactions."""
TRANSACTION_TIMEOUT_S: Final = 5.0
"""After this the broker aborts a transaction that is left open, and reading goes on."""
COMPRESSION: Final[dict[Partitioner, str]] = {"murmur2_random": "gzip", "consistent_random": "none"}


class Sender:
    """Two idempotent producers, one per partitioner, and one whose transactions all fail.

    Args:
        rate: records a second.
    """

    def __init__(self, brokers: str, topic: str, rate: float) -> None:
        self.sent = 0
        """Records that the broker has acknowledged."""
        self._brokers = brokers
        self._topic = topic
        self._rate = rate
        self._failures: list[str] = []
        self._producers: dict[Partitioner, Producer] = {}
        self._transactional: Producer | None = None

    @contextmanager
    def sending(self, records: Sequence[Record]) -> Iterator[None]:
        """Send `records` meanwhile; at the end the broker has them all.

        Raises:
            RuntimeError: it has not.
        """
        thread = threading.Thread(target=self._send, args=(records,), name="sender")
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if self._failures:
            raise RuntimeError(f"{len(self._failures)} records were not delivered: {self._failures[0]}")

    def forget_partitions(self) -> None:
        """Ask anew how many partitions there are, from the next record on; a client looks by itself every 5 minutes."""
        self._producers.clear()

    def _send(self, records: Sequence[Record]) -> None:
        try:
            if not self._producers:
                self._producers = {partitioner: self._producer(partitioner) for partitioner in PARTITIONERS}
            began = time.monotonic()
            for at, record in enumerate(records):
                producer = self._producers[record.partitioner]
                producer.produce(
                    self._topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                )
                producer.poll(0)
                if at % ABORT_EVERY == 0:
                    self._abort_a_transaction(record)
                time.sleep(max(0.0, began + at / self._rate - time.monotonic()))
            for producer in self._producers.values():
                if left := producer.flush(DELIVERY_TIMEOUT_S):
                    self._failures.append(f"{left} still wait after {DELIVERY_TIMEOUT_S:g} s")
        except Exception as error:
            self._failures.append(repr(error))

    def _abort_a_transaction(self, like: Record) -> None:
        """Send `like` three times, by a transaction that fails; while the broker is away it is left out."""
        try:
            if self._transactional is None:
                self._transactional = Producer(
                    {
                        "bootstrap.servers": self._brokers,
                        "log_level": 0,
                        "transactional.id": "chaos",
                        "transaction.timeout.ms": round(TRANSACTION_TIMEOUT_S * 1000),
                    }
                )
                self._transactional.init_transactions(TRANSACTION_TIMEOUT_S)
            self._transactional.begin_transaction()
            for _ in range(3):
                self._transactional.produce(self._topic, value=like.value, headers=list(like.headers))
            self._transactional.flush(TRANSACTION_TIMEOUT_S)
            self._transactional.abort_transaction(TRANSACTION_TIMEOUT_S)
        except KafkaException:
            self._transactional = None

    def _producer(self, partitioner: Partitioner) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._brokers,
                "log_level": 2,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": partitioner,
                "compression.type": COMPRESSION[partitioner],
                "linger.ms": 20,
                "message.timeout.ms": round(DELIVERY_TIMEOUT_S * 1000),
            }
        )

    def _delivered(self, error: KafkaError | None, _message: Any) -> None:
        if error is None:
            self.sent += 1
        else:
            self._failures.append(error.str())

"""Records to one topic, in batches, each of which the broker has as a whole when the call returns."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from leap_features.settings import Settings
from leap_streams.faults import Unavailable
from leap_streams.kafka import client_config

DELIVERY_TIMEOUT_S: Final = 30.0

Headers = tuple[tuple[str, bytes | None], ...]


class OutgoingRecord(NamedTuple):
    """A record as it is to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class ConfirmedProducer:
    """Writes to `topic` as Java clients do: keys are partitioned by murmur2, records without a key at random.

    Args:
        compression: codec of the batches.
        timeout_s: longest time for which a batch may wait for the broker.
    """

    def __init__(
        self, settings: Settings, topic: str, *, compression: str, timeout_s: float = DELIVERY_TIMEOUT_S
    ) -> None:
        self._topic = topic
        self._timeout_s = timeout_s
        self._config = client_config(settings) | {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "message.timeout.ms": round(timeout_s * 1000),
            "compression.type": compression,
            # The most that the client allows, of what is not compressed yet: the broker's limit is on what is sent.
            "message.max.bytes": 1_000_000_000,
            "linger.ms": 5,
        }
        self._producer: Producer | None = None

    def send(self, records: Iterable[OutgoingRecord]) -> None:
        """Send `records` and wait until the broker has them all.

        Raises:
            Unavailable: it has not, within the timeout; sending them again repeats those that it has.
        """
        producer = self._producer or Producer(self._config)
        self._producer = None  # one that failed may never work again: the next call makes another
        failures: list[str] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failures.append(_explained(error))

        deadline = time.monotonic() + self._timeout_s
        for record in records:
            while True:
                try:
                    producer.produce(
                        self._topic,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers),
                        on_delivery=delivered,
                    )
                    break
                except BufferError:  # more than fits in the client at once
                    if time.monotonic() > deadline:
                        failures.append("the broker takes nothing")
                        break
                    producer.poll(0.1)
                except KafkaException as error:
                    failures.append(_explained(error.args[0]))
                    break
            producer.poll(0)
            if failures:
                break
        left = producer.flush(0 if failures else self._timeout_s)
        if left:
            producer.purge()
            producer.flush(1.0)
            failures.append(f"{left} records not acknowledged within {self._timeout_s:g} s")
        if failures:
            raise Unavailable(f"topic {self._topic}: {failures[0]}")
        self._producer = producer


def _explained(error: KafkaError) -> str:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return f"{error.str()}: raise max.message.bytes of the topic"
    return error.str()

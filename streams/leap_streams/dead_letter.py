"""Dead letters: records that break a rule, whole and unchanged, with headers that say where they came from and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from leap_features.events import from_us
from leap_features.settings import Settings
from leap_streams.faults import Unavailable
from leap_streams.history_writer import Rejected
from leap_streams.kafka import client_config

DELIVERY_TIMEOUT_S: Final = 30.0

HEADER_PREFIX: Final = "leap-dead-letter-"
"""Headers: topic, epoch, partition, offset, rule, message, recorded-at and at (both RFC 3339, UTC)."""


class DeadLetterTopic:
    """Writes rejected records to the dead-letter topic."""

    def __init__(self, settings: Settings) -> None:
        self._source = settings.topic
        self._topic = settings.dead_letter_topic
        self._producer = Producer(
            client_config(settings)
            | {
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.timeout.ms": round(DELIVERY_TIMEOUT_S * 1000),
                "message.max.bytes": 16 * 1024 * 1024,
                "linger.ms": 5,
            }
        )

    def send(self, rejected: Sequence[Rejected]) -> None:
        """Send `rejected` and wait until the broker has them all.

        Raises:
            Unavailable: it has not; sending them again repeats those that it has, under the same source position.
        """
        failures: list[str] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        for letter in rejected:
            try:
                self._producer.produce(
                    self._topic,
                    key=letter.delivery.key,
                    value=letter.delivery.value,
                    headers=self._headers(letter),
                    on_delivery=delivered,
                )
            except (BufferError, KafkaException) as error:
                failures.append(str(error))
            self._producer.poll(0)
        left = self._producer.flush(DELIVERY_TIMEOUT_S)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
            failures.append(f"{left} of {len(rejected)} not acknowledged within {DELIVERY_TIMEOUT_S:g} s")
        if failures:
            raise Unavailable(f"topic {self._topic}: {failures[0]}")

    def _headers(self, letter: Rejected) -> list[tuple[str, str | bytes | None]]:
        own = {
            "topic": self._source,
            "epoch": str(letter.position.epoch),
            "partition": str(letter.position.partition),
            "offset": str(letter.position.offset),
            "rule": letter.rule,
            "message": letter.message,
            "recorded-at": from_us(letter.delivery.recorded_at_us).isoformat(),
            "at": from_us(time.time_ns() // 1000).isoformat(),
        }
        return [*letter.delivery.headers, *((HEADER_PREFIX + name, text.encode()) for name, text in own.items())]

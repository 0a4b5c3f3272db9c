"""Which records a partition has from an offset on, asked of the broker directly.

Offsets may skip numbers (transaction markers take some up), and only the log can say whether a record is missing or
never was. The probe reads by a consumer of its own, outside any group.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from leap_features.settings import Settings
from leap_streams.faults import Halt, Unavailable
from leap_streams.kafka import client_config


class RecordsDeleted(Halt):
    """Retention has deleted the records that were asked for."""


PROBED_AT_ONCE: Final = 1_000
"""Offsets read by one probe: in a log with many holes one probe serves that many records."""
PROBE_TIMEOUT_S: Final = 10.0


class LogProbe:
    """Reads offsets of `settings.topic`. Opens its consumer when first used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None

    def offsets(self, partition: int, start: int) -> list[int]:
        """The offsets of the first committed records at or after `start`, at least one.

        Raises:
            Unavailable: the broker gave none in time.
            RecordsDeleted: those at `start` have been deleted by retention.
        """
        if self._consumer is None:
            self._consumer = Consumer(
                client_config(self._settings)
                | {
                    "group.id": f"{self._settings.project}-probe",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",  # records that are gone must not look like ones that never were
                    "fetch.wait.max.ms": 100,
                }
            )
        try:
            self._consumer.assign([TopicPartition(self._settings.topic, partition, start)])
            first = self._consumer.poll(PROBE_TIMEOUT_S)
            problem = first.error() if first is not None else None
            if problem is not None and problem.code() == KafkaError._AUTO_OFFSET_RESET:
                raise RecordsDeleted(
                    f"topic {self._settings.topic}, partition {partition}: records from offset {start} on have been "
                    "deleted by retention before they were taken in"
                )
            if first is None or problem is not None:
                reason = problem or "no record came"
                raise Unavailable(f"topic {self._settings.topic}, partition {partition}, offset {start}: {reason}")
            following = self._consumer.consume(PROBED_AT_ONCE - 1, timeout=0.1)
            self._consumer.unassign()
        except KafkaException as error:
            raise Unavailable(f"topic {self._settings.topic}, partition {partition}: {error}") from error
        offsets = [message.offset() for message in (first, *following) if message.error() is None]
        return [offset for offset in offsets if offset is not None]

    def close(self) -> None:
        """Let go of the broker."""
        if self._consumer is not None:
            self._consumer.close()

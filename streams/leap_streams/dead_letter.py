"""Dead letters: records that break a rule, whole and unchanged, with headers that say where they came from and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from leap_features.events import from_us
from leap_features.settings import Settings
from leap_streams.confirmed_producer import ConfirmedProducer, Headers, OutgoingRecord
from leap_streams.history_writer import Rejected

HEADER_PREFIX: Final = "leap-dead-letter-"
HEADERS: Final = ("topic", "epoch", "partition", "offset", "rule", "message", "recorded-at", "at")
"""What a letter has after the record's own headers, each name after the prefix. The last two are RFC 3339, in UTC."""


class DeadLetterTopic:
    """Writes rejected records to the dead-letter topic."""

    def __init__(self, settings: Settings) -> None:
        self._source = settings.topic
        # A record that came compressed may be far larger than the topic's limit, and must go on all the same: zstd
        # shrinks what any other codec has shrunk.
        self._producer = ConfirmedProducer(settings, settings.dead_letter_topic, compression="zstd")

    def send(self, rejected: Sequence[Rejected]) -> None:
        """Send `rejected` and wait until the broker has them all.

        Raises:
            Unavailable: it has not; sending them again repeats those that it has, under the same source position.
        """
        now_us = time.time_ns() // 1000
        self._producer.send(
            OutgoingRecord(letter.delivery.key, letter.delivery.value, headers_of(letter, self._source, now_us))
            for letter in rejected
        )


def headers_of(letter: Rejected, source: str, now_us: int) -> Headers:
    """Headers of a record of topic `source` that was rejected `now_us` microseconds after 1970: its own, then ours."""
    texts = (
        source,
        *map(str, letter.position),
        letter.rule,
        letter.message,
        from_us(letter.delivery.recorded_at_us).isoformat(),
        from_us(now_us).isoformat(),
    )
    own = ((HEADER_PREFIX + name, text.encode()) for name, text in zip(HEADERS, texts, strict=True))
    return (*letter.delivery.headers, *own)

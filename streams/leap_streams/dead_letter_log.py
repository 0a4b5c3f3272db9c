"""The dead-letter topic, read from its beginning to its end as of now, in bounded memory and outside any group."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, cast

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from leap_features.events import to_us
from leap_features.history import Position
from leap_features.settings import Settings
from leap_streams.confirmed_producer import Headers
from leap_streams.dead_letter import HEADER_PREFIX, HEADERS
from leap_streams.dead_letter_rules import UNKNOWN
from leap_streams.faults import Unavailable
from leap_streams.kafka import client_config
from leap_streams.spilled_map import SpilledMap
from leap_streams.topic_bounds import topic_bounds

FETCHED_AHEAD_KB: Final = 16_384
LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, in milliseconds since 1970."""
SILENCE_S: Final = 30.0
"""Longest time for which the broker may send nothing before the end."""


class Letter(NamedTuple):
    """One record of the dead-letter topic."""

    partition: int
    offset: int
    """Where the letter itself lies."""
    topic: str
    """Where the record came from; empty where no worker wrote the letter."""
    position: Position | None
    """Likewise; None where no worker wrote the letter."""
    rule: str
    message: str
    recorded_at_us: int | None
    """When the broker recorded the source, in microseconds since 1970 UTC."""
    at_us: int
    """When it was rejected, likewise."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """The record's own."""

    @property
    def source(self) -> str:
        """`epoch:partition:offset` of the source, or `@partition:offset` of a letter that no worker wrote."""
        if self.position is None:
            return f"@{self.partition}:{self.offset}"
        return ":".join(map(str, self.position))


def letter_of(
    partition: int, offset: int, written_at_us: int, key: bytes | None, value: bytes | None, headers: Headers
) -> Letter:
    """The letter in a record of the dead-letter topic; one that no worker wrote has the rule `unknown`."""
    ours: dict[str, bytes | None] = {}
    own: list[tuple[str, bytes | None]] = []
    # The worker's come last: what stands before them under the same names came with the record.
    for name, text in reversed(headers):
        short = name.removeprefix(HEADER_PREFIX)
        if name.startswith(HEADER_PREFIX) and short in HEADERS and short not in ours:
            ours[short] = text
        else:
            own.append((name, text))
    written = {name: text.decode(errors="replace") for name, text in ours.items() if text is not None}
    try:
        position = Position(int(written["epoch"]), int(written["partition"]), int(written["offset"]))
        topic, rule = written["topic"], written["rule"]
    except (KeyError, ValueError):
        return Letter(partition, offset, "", None, UNKNOWN, "", None, written_at_us, key, value, headers)
    at_us = _time_us(written.get("at"))
    return Letter(
        partition,
        offset,
        topic,
        position,
        rule,
        written.get("message", ""),
        _time_us(written.get("recorded-at")),
        written_at_us if at_us is None else at_us,
        key,
        value,
        tuple(reversed(own)),
    )


def _time_us(text: str | None) -> int | None:
    try:
        return to_us(datetime.fromisoformat(text or ""))
    except (TypeError, ValueError):
        return None


class DeadLetterLog:
    """The letters that the topic has at the time of making; each iteration reads them anew, in the topic's order."""

    def __init__(self, settings: Settings) -> None:
        """Look where the topic begins and ends.

        Raises:
            Unavailable: the broker does not answer, or has no such topic.
        """
        self._settings = settings
        self._topic = settings.dead_letter_topic
        bounds = topic_bounds(msgspec.structs.replace(settings, topic=self._topic))
        if bounds is None:
            raise Unavailable(
                f"topic {self._topic} at {settings.kafka_brokers}: the broker does not answer, or has no such topic; "
                "`leap init` makes it"
            )
        self._bounds = bounds

    def __iter__(self) -> Iterator[Letter]:
        """The letters.

        Raises:
            Unavailable: the broker stopped answering.
        """
        consumer = Consumer(
            client_config(self._settings)
            | {
                "group.id": f"{self._settings.project}-dead-letters",  # the client wants a name; no group is joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",  # retention may be faster than this reader
                "queued.max.messages.kbytes": FETCHED_AHEAD_KB,
                "fetch.wait.max.ms": 50,  # at a partition's end the next one waits for it
            }
        )
        try:
            for partition, (first, end) in sorted(self._bounds.items()):
                if first < end:
                    yield from self._read(consumer, TopicPartition(self._topic, partition, first), end)
        except KafkaException as error:
            raise Unavailable(f"topic {self._topic}: {error.args[0].str()}") from None
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, start: TopicPartition, end: int) -> Iterator[Letter]:
        consumer.assign([start])
        while True:
            message = consumer.poll(SILENCE_S)  # `consume` would wait as long for a full batch, also at the end
            if message is None:
                raise Unavailable(f"topic {self._topic}: nothing came for {SILENCE_S:g} s; start again")
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            letter = _letter(message)
            if letter.offset < end:
                yield letter
            if letter.offset >= end - 1:
                return


def _letter(message: Message) -> Letter:
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # noqa: S101  # a record without error has both
    assert offset is not None  # noqa: S101
    # A foreign client may have stamped its record with any number.
    written_at_us = 1000 * min(max(message.timestamp()[1], 0), LAST_MS)
    try:
        headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    except (SystemError, UnicodeDecodeError):
        foreign = letter_of(partition, offset, written_at_us, message.key(), message.value(), ())
        return foreign._replace(message="its headers cannot be read: the name of one is not UTF-8")
    return letter_of(partition, offset, written_at_us, message.key(), message.value(), tuple(headers))


def distinct(letters: Iterable[Letter]) -> Iterator[Letter]:
    """`letters`, each source once: after a crash a worker may write one again."""
    seen = SpilledMap()
    try:
        for letter in letters:
            if seen.put(f"{letter.topic} {letter.source}".encode()) is None:
                yield letter
    finally:
        seen.close()


class RuleCount(NamedTuple):
    """Letters of one rule, and when the first and the last of them were rejected (microseconds since 1970 UTC)."""

    records: int
    first_us: int
    last_us: int


class Summary:
    """Counts by rule, and the latest `limit` letters."""

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._latest: list[tuple[int, int, int, Letter]] = []
        self.counts: dict[str, RuleCount] = {}

    def add(self, letter: Letter) -> None:
        """Take `letter` in."""
        at_us = letter.at_us
        records, first_us, last_us = self.counts.get(letter.rule, RuleCount(0, at_us, at_us))
        self.counts[letter.rule] = RuleCount(records + 1, min(first_us, at_us), max(last_us, at_us))
        if self._limit:
            # No two letters have one partition and offset, so that letters themselves are never compared.
            entry = (at_us, letter.partition, letter.offset, letter)
            if len(self._latest) < self._limit:
                heapq.heappush(self._latest, entry)
            else:
                heapq.heappushpop(self._latest, entry)

    @property
    def latest(self) -> list[Letter]:
        """The latest letters, the last one last."""
        return [letter for *_, letter in sorted(self._latest, key=lambda entry: entry[:3])]


def counts(settings: Settings) -> dict[str, RuleCount]:
    """The topic's letters by rule.

    Raises:
        Unavailable: the broker does not answer, or has no such topic.
    """
    summary = Summary()
    for letter in distinct(DeadLetterLog(settings)):
        summary.add(letter)
    return summary.counts

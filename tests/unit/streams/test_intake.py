"""The intake between a sink and a broker, either of which may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import pytest
from faust.types import TP

from leap_features.settings import Settings
from leap_streams.faults import Unavailable
from leap_streams.faust_app import SinkConsumer
from leap_streams.history_writer import OUTCOMES, Delivery
from leap_streams.intake import Intake
from leap_streams.metrics import Metrics

SETTINGS = Settings(topic="t", allow_create_time=True)
TOPIC = TP("t", 0)


class FakeSink:
    """A store that is at some checkpoint of partition 0."""

    def __init__(self) -> None:
        self.checkpoint = 0
        self.taken: list[int] = []

    def begin(self) -> Mapping[int, int]:
        return {0: self.checkpoint}

    where = begin

    def take(self, deliveries: Sequence[Delivery], log_starts: Mapping[int, int]) -> Mapping[str, int]:
        self.taken += [delivery.offset for delivery in deliveries]
        self.checkpoint = self.taken[-1] + 1
        return {}

    def check(self) -> None: ...

    def passed(self, gone: Mapping[int, range]) -> str:
        raise NotImplementedError

    def close(self) -> None: ...


class FakeConsumer:
    """A consumer of one partition, of a broker that may be away."""

    def __init__(self) -> None:
        self.away = False
        self.at = 0

    def assignment(self) -> set[TP]:
        return {TOPIC}

    async def log_bounds(self, _tps: Sequence[TP]) -> tuple[dict[TP, int], dict[TP, int]]:
        if self.away:
            raise Unavailable("no answer")
        return {TOPIC: 0}, {TOPIC: 100}

    async def seek_wait(self, to: Mapping[TP, int]) -> None:
        self.at = to[TOPIC]

    def fetch(self, count: int) -> list[Event]:
        """The next records."""
        first, self.at = self.at, self.at + count
        return [Event(Message(offset)) for offset in range(first, self.at)]


class Message(NamedTuple):
    offset: int
    partition: int = 0
    topic: str = "t"
    timestamp: float = 0.0
    timestamp_type: int = 1
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Any, ...] = ()


class Event(NamedTuple):
    message: Message

    def ack(self) -> None: ...


def test_a_store_that_went_back_while_the_broker_is_away_is_followed_before_the_next_batch() -> None:
    """The sink knows where it is by then, and would take what comes next there: without the records in between."""

    async def scenario() -> list[int]:
        sink, consumer = FakeSink(), FakeConsumer()
        intake = Intake(
            "t", SETTINGS, lambda: sink, Metrics("t", OUTCOMES), batch_max=10, batch_within_s=1.0, linger_s=1.0
        )
        intake.app.consumer = cast(SinkConsumer, consumer)
        await intake.seek_to_sink(cast(SinkConsumer, consumer))
        await intake._take(consumer.fetch(5))
        sink.checkpoint = 2
        consumer.away = True
        with pytest.raises(Unavailable):
            await intake._resync(sink.where, wait=False)
        consumer.away = False
        await intake._take([])
        await intake._take(consumer.fetch(4))
        intake.close()
        return sink.taken

    assert asyncio.run(scenario()) == [0, 1, 2, 3, 4, 2, 3, 4, 5]

"""A fleet as a stream: its completion events into the topic, in order of completion, at a steady rate.

Sent as they are, events carry the replay header, since most of them completed long before they are recorded. Sent live,
each event completes at the moment at which it is sent, as on a real platform, and needs none: that is what a load test
of a deployment wants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from leap_features.events import CLOCK_ALLOWANCE_US, CompletionEvent, encode, from_us, to_us
from leap_training.fleet.events import events
from leap_training.replay import Completed, Replayed, replay

if TYPE_CHECKING:
    from leap_streams.producer import CompletionProducer
    from leap_training.fleet.attempts import Attempts
    from leap_training.fleet.simulate import Fleet

LEAST_SLEEP_S: Final = 0.002
"""Shorter sleeps are not worth their overhead: events that are due within it are sent together."""


class FromTheFuture(ValueError):
    """An attempt completes later than a worker would believe."""


class Pace:
    """A steady rate: each event has its due time, counted from the first; after a stall it catches up."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Begin with the first event.

        Args:
            rate: events a second; 0 is as fast as possible.
            clock: seconds, never going back.
            sleep: sleeps so many seconds.
        """
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._begin: float | None = None
        self._done = 0

    def wait(self) -> None:
        """Sleep until the next event is due."""
        if self._rate <= 0:
            return
        now = self._clock()
        if self._begin is None:
            self._begin = now
        ahead = self._begin + self._done / self._rate - now
        if ahead >= LEAST_SLEEP_S:
            self._sleep(ahead)
        self._done += 1


def stream_fleet(
    producer: CompletionProducer,
    fleet: Fleet,
    *,
    pace: Pace,
    live: bool,
    at_completion: bool,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    progress: Callable[[int], None] = lambda _done: None,
) -> Replayed:
    """Send the events of `fleet` through `producer`, and wait until the broker has them.

    Args:
        pace: when each event is due.
        live: move each event's times so that it completes as it is sent, and send it without the replay header.
            Attempts get ids of their own, so that a fleet may be sent live again.
        at_completion: give each record the time of its completion, for a topic whose record times are the producers'.
        now_us: the time, microseconds since 1970 (UTC).

    Raises:
        FromTheFuture: an attempt completes more than five minutes from now; what came before has been sent.
    """
    runs = _Outgoing(fleet, pace, live, now_us)
    return replay(producer, runs, at_completion=at_completion, marked=not live, progress=progress)


class _Outgoing:
    """The events of a fleet as they go out, each made when it is due."""

    def __init__(self, fleet: Fleet, pace: Pace, live: bool, now_us: Callable[[], int]) -> None:
        self._fleet = fleet
        self._batches = fleet.batches()
        self._first = next(self._batches)  # made before the time begins to count
        self._pace = pace
        self._live = live
        self._now_us = now_us

    def __len__(self) -> int:
        return self._fleet.attempts

    def __iter__(self) -> Iterator[Completed]:
        begun_us = self._now_us()
        for batch in chain((self._first,), _ahead(self._batches)):
            for event in events(self._fleet, batch):
                self._pace.wait()
                sent = moved(event, self._now_us(), begun_us) if self._live else self._checked(event)
                yield Completed(to_us(sent.completed_at), sent.attempt_id, encode(sent))

    def _checked(self, event: CompletionEvent) -> CompletionEvent:
        if to_us(event.completed_at) > self._now_us() + CLOCK_ALLOWANCE_US:
            raise FromTheFuture(
                f"attempt {event.attempt_id} completes at {event.completed_at.isoformat()}, later than now, and would "
                "be dead-lettered: begin the fleet earlier by --start, or send it --live"
            )
        return event


def moved(event: CompletionEvent, completed_us: int, begun_us: int) -> CompletionEvent:
    """`event` as an attempt of its own that completes at `completed_us` (microseconds since 1970, UTC).

    How long it waited and ran stays; its id ends in the time at which the stream began, `begun_us`.
    """
    later = from_us(completed_us) - event.completed_at
    return msgspec.structs.replace(
        event,
        attempt_id=f"{event.attempt_id}-live{begun_us // 1000:x}",
        submitted_at=event.submitted_at + later,
        started_at=event.started_at + later,
        completed_at=event.completed_at + later,
    )


def _ahead(batches: Iterator[Attempts]) -> Iterator[Attempts]:
    """`batches`, each made while the one before it is sent, so that making them does not hold the stream up."""
    with ThreadPoolExecutor(1, thread_name_prefix="fleet") as executor:
        waiting = executor.submit(next, batches, None)
        while (batch := waiting.result()) is not None:
            waiting = executor.submit(next, batches, None)
            yield batch

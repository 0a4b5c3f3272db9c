"""`leap replay`: past runs as completion events, in order of completion, through the topic.

Each event carries the replay header, so that the worker takes it however late it is. The worker counts an attempt once,
whether it comes again or the archive has it from an import.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from leap_features.events import encode, to_us
from leap_streams.producer import CompletionProducer, QueueFull
from leap_training.past_runs import PastRun

QUEUE_WAIT_S: Final = 60.0
FLUSH_S: Final = 120.0


class Completed(NamedTuple):
    """An event in the order in which runs completed."""

    completed_us: int
    attempt_id: str
    raw: bytes


class Runs(Protocol):
    """Events in the order in which they are to be sent, made as they are asked for, and how many there are."""

    def __iter__(self) -> Iterator[Completed]:
        """Each event once."""

    def __len__(self) -> int:
        """How many there are."""


class Replayed(msgspec.Struct, frozen=True):
    """What became of the runs."""

    runs: int
    acknowledged: int
    failed: int
    """Events that the broker did not take in time."""
    waiting: int
    """Events that still waited for the broker, or to be sent, when it was given up."""
    seconds: float


def in_order(runs: Iterable[PastRun]) -> list[Completed]:
    """The events of `runs`, in the order of (completed_at, attempt_id); about their JSON's size in memory."""
    return sorted(Completed(to_us(run.event.completed_at), run.event.attempt_id, encode(run.event)) for run in runs)


def replay(
    producer: CompletionProducer,
    runs: Runs,
    *,
    at_completion: bool,
    marked: bool = True,
    queue_wait_s: float = QUEUE_WAIT_S,
    flush_s: float = FLUSH_S,
    progress: Callable[[int], None] = lambda _done: None,
) -> Replayed:
    """Send `runs` through `producer` and wait until the broker has them.

    Args:
        at_completion: give each record the time of its completion, for a topic whose record times are the producers'.
        marked: let each record carry the replay header, so that it may be late.
        queue_wait_s: how long a full local queue may stay full before the broker is given up.
        flush_s: how long to wait at the end for what the broker has not acknowledged.
    """
    began = time.monotonic()
    given_up = False
    for completed_us, _, raw in runs:
        given_up = not _send(producer, raw, completed_us if at_completion else None, marked, queue_wait_s)
        if given_up:
            break
        progress(1)
    waiting = producer.flush(0 if given_up else flush_s)
    left = len(runs) - producer.sent - producer.failed
    return Replayed(len(runs), producer.sent, producer.failed, max(waiting, left), time.monotonic() - began)


def _send(
    producer: CompletionProducer, raw: bytes, timestamp_us: int | None, marked: bool, queue_wait_s: float
) -> bool:
    """Hand over one event; False if the local queue stays full for too long."""
    deadline = time.monotonic() + queue_wait_s
    while True:
        try:
            producer.send_encoded(raw, replay=marked, timestamp_us=timestamp_us)
        except QueueFull:
            if time.monotonic() >= deadline:
                return False
        else:
            return True

"""`leap replay`: past runs as completion events, in order of completion, through the topic.

Each event carries the replay header, so that the worker takes it however late it is. The worker counts an attempt once,
whether it comes again or the archive has it from an import.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

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


class Replayed(msgspec.Struct, frozen=True):
    """What became of the runs."""

    runs: int
    acknowledged: int
    failed: int
    """Events that the broker did not take in time."""
    waiting: int
    """Events that still waited for the broker when it was given up."""
    seconds: float


def in_order(runs: Iterable[PastRun]) -> list[Completed]:
    """The events of `runs`, in the order of (completed_at, attempt_id); about their JSON's size in memory."""
    return sorted(Completed(to_us(run.event.completed_at), run.event.attempt_id, encode(run.event)) for run in runs)


def replay(
    producer: CompletionProducer,
    runs: Iterable[Completed],
    *,
    at_completion: bool,
    queue_wait_s: float = QUEUE_WAIT_S,
    flush_s: float = FLUSH_S,
    progress: Callable[[int], None] = lambda _done: None,
) -> Replayed:
    """Send `runs` through `producer` and wait until the broker has them.

    Args:
        at_completion: give each record the time of its completion, for a topic whose record times are the producers'.
        queue_wait_s: how long a full local queue may stay full before the broker is given up.
        flush_s: how long to wait at the end for what the broker has not acknowledged.
    """
    began = time.monotonic()
    sent = 0
    given_up = False
    for completed_us, _, raw in runs:
        if not given_up:
            given_up = not _send(producer, raw, completed_us if at_completion else None, queue_wait_s)
        sent += 1
        progress(1)
    waiting = producer.flush(0 if given_up else flush_s)
    left = sent - producer.sent - producer.failed
    return Replayed(sent, producer.sent, producer.failed, max(waiting, left), time.monotonic() - began)


def _send(producer: CompletionProducer, raw: bytes, timestamp_us: int | None, queue_wait_s: float) -> bool:
    """Hand over one event; False if the local queue stays full for too long."""
    deadline = time.monotonic() + queue_wait_s
    while True:
        try:
            producer.send_encoded(raw, replay=True, timestamp_us=timestamp_us)
        except QueueFull:
            if time.monotonic() >= deadline:
                return False
        else:
            return True

"""What a list of events must come to, reckoned the slow and obvious way: a key's events, sorted and added up.

It knows the meaning of history and nothing of how the product keeps it: no fold, no row, no order of arrival.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from chaos.events import Attempt, Record

UNIT: Final = 2**32
"""Logarithms count in units of 2⁻³²."""
MOST_FAILURES: Final = 16

LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "family_history": ("job_family",),
    "family_hardware_history": ("job_family", "hardware_type"),
    "family_scale_history": ("job_family", "hardware_type", "trainer_count"),
    "model_scale_history": ("model_type", "hardware_type", "trainer_count"),
    "model_hardware_history": ("model_type", "hardware_type"),
    "model_history": ("model_type",),
}
"""View → its keys."""

Key = tuple[str, tuple[str | int, ...]]
"""View and values of its keys."""
Place = tuple[int, int]
"""Partition and offset."""


class Stored(NamedTuple):
    """A record as the topic has it."""

    partition: int
    offset: int
    recorded_at_us: int
    record: Record


class Expected(NamedTuple):
    """A history row in numbers."""

    state: list[Any]
    """n, Σx, Σx² as text, Σ of logarithms of trainers, runs with a batch size, Σ of its logarithms, the latest success
    and the failures after it, as a row's `state` has them."""
    version: str
    recorded_at_us: int


def rows_of(stored: Iterable[Stored], epoch: int) -> dict[Key, Expected]:
    """The rows of every level; `epoch` is the topic's."""
    of_key: dict[Key, list[tuple[Stored, Attempt]]] = defaultdict(list)
    for one in stored:
        attempt = one.record.attempt
        if attempt is not None and attempt.status in ("succeeded", "failed"):
            for view, names in LEVELS.items():
                of_key[view, tuple(getattr(attempt, name) for name in names)].append((one, attempt))
    return {key: _row(events, epoch) for key, events in of_key.items()}


def dead_letters_of(stored: Iterable[Stored]) -> dict[Place, str]:
    """Where the invalid records lie, and the rule that each of them breaks."""
    return {(one.partition, one.offset): one.record.rule for one in stored if one.record.rule}


def _row(events: list[tuple[Stored, Attempt]], epoch: int) -> Expected:
    ends: dict[int, int] = {}
    for one, _ in events:
        ends[one.partition] = max(ends.get(one.partition, 0), one.offset)
    # What an attempt reports is the same however often it was sent.
    attempts = {(attempt.status, attempt.attempt_id): attempt for _, attempt in events}.values()
    in_order = sorted(attempts, key=lambda attempt: (attempt.completed_at_us, attempt.attempt_id))
    successes = [attempt for attempt in in_order if attempt.status == "succeeded"]
    latest = successes[-1] if successes else None
    failures = [
        [attempt.completed_at_us, attempt.attempt_id]
        for attempt in in_order
        if attempt.status == "failed"
        and (
            latest is None
            or (attempt.completed_at_us, attempt.attempt_id) > (latest.completed_at_us, latest.attempt_id)
        )
    ]
    logs = [_log(attempt.throughput) for attempt in successes]
    batches = [_log(attempt.batch_size) for attempt in successes if attempt.batch_size > 0]
    state = [
        len(successes),
        sum(logs),
        str(sum(x * x for x in logs)),
        sum(_log(attempt.trainer_count) for attempt in successes),
        len(batches),
        sum(batches),
        latest
        and [
            latest.completed_at_us,
            latest.attempt_id,
            _log(latest.throughput),
            latest.hardware_type,
            latest.trainer_count,
            latest.batch_size,
        ],
        failures[-MOST_FAILURES:],
    ]
    version = ",".join(f"{epoch}:{partition}:{offset}" for partition, offset in sorted(ends.items()))
    return Expected(state, version, max(one.recorded_at_us for one, _ in events))


def _log(value: float | None) -> int:
    assert value is not None
    return round(math.log(value) * UNIT)

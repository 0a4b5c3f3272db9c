"""A topic's log as tests model it, and by definition, without a fold, what its records come to.

Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from leap_features.events import CompletionEvent, InvalidEvent, check_recorded, content_digest, decode, from_us
from leap_features.family import family_of_event
from leap_features.history import MAX_FAILURES, Latest, Position, Row, Run, run_of
from leap_features.levels import LEVELS
from leap_features.meta import Claim
from leap_streams.history_writer import Delivery, Subject
from oracle import Key

MINUTE_US: Final = 60_000_000
DAY_US: Final = 24 * 60 * MINUTE_US
HORIZON_US: Final = 7 * DAY_US

Identity = tuple[bool, str]
"""Of an attempt: whether it succeeded, and its id."""

Claims = Mapping[Identity, Claim]
"""Which record counts, per attempt."""


class Content(NamedTuple):
    """What a record says; of equal contents the later one is a duplicate."""

    attempt: str
    status: str
    completed_us: int
    variant: int = 0
    """Another one is another outcome of the same attempt: other throughput, and from 2 on other conditions."""


class Record(NamedTuple):
    """A record of the log, and what the rules say of it alone."""

    position: Position
    delivery: Delivery
    rule: str
    """That it breaks; empty where it breaks none."""
    event: CompletionEvent | None
    """None where it is none."""
    run: Run | None
    """None where it contributes nothing."""
    digest: str
    keys: tuple[Key, ...]
    """The rows that it concerns."""

    @property
    def identity(self) -> Identity:
        """Of its attempt; only of records with a run."""
        assert self.run is not None
        return self.run.succeeded, self.run.attempt_id


def value_of(content: Content) -> bytes:
    """`content` as the value of a record. The conditions follow from the attempt, so that keys collide."""
    number = sum(content.attempt.encode())
    return json.dumps(
        {
            "schema_version": 1,
            "attempt_id": content.attempt,
            "job_name": "x" if number % 3 else "y",
            "model_type": "m" if number % 4 else "n",
            "hardware_type": "A100-SXM-80" if content.variant > 1 else "H100-SXM-80",
            "submitted_at": from_us(content.completed_us - MINUTE_US).isoformat(),
            "started_at": from_us(content.completed_us - MINUTE_US).isoformat(),
            "completed_at": from_us(content.completed_us).isoformat(),
            "status": content.status,
            "throughput": 100.0 * number + content.variant if content.status == "succeeded" else None,
            "trainer_count": 1 + number % 2,
            "batch_size": number % 5,
        }
    ).encode()


def record_of(epoch: int, delivery: Delivery) -> Record:
    """`delivery` with what the rules say of it alone; the archive is there for replayed ones."""
    position = Position(epoch, delivery.partition, delivery.offset)
    event: CompletionEvent | None = None
    try:
        if delivery.value is None:
            raise InvalidEvent("empty", "")
        event = decode(delivery.value)
        check_recorded(event, delivery.recorded_at_us, HORIZON_US, delivery.replay)
    except InvalidEvent as error:
        return Record(position, delivery, error.rule, event, None, "", ())
    run = run_of(event)
    if run is None:
        return Record(position, delivery, "", event, None, "", ())
    subject = Subject(family_of_event(event), event.model_type, event.hardware_type, event.trainer_count)
    keys = tuple((level.view, level.key(subject)) for level in LEVELS)
    return Record(position, delivery, "", event, run, content_digest(event), keys)


def row_of(taken: Iterable[Record], claims: Claims) -> Row:
    """The row of a key that has taken in `taken`: of each attempt the first of those that its claim names counts."""
    records = sorted(taken)
    firsts: dict[Identity, Run] = {}
    for record in records:
        if record.run is not None and record.position in claims[record.identity].positions:
            firsts.setdefault(record.identity, record.run)
    counted = firsts.values()
    successes = [run for run in counted if run.succeeded]
    last = max(successes, key=lambda run: (run.completed_at_us, run.attempt_id), default=None)
    failures = sorted((run.completed_at_us, run.attempt_id) for run in counted if not run.succeeded)
    batches = [run.log_batch for run in successes if run.log_batch is not None]
    latest = None
    if last is not None:
        at = (last.completed_at_us, last.attempt_id)
        latest = Latest(*at, last.x, last.hardware_type, last.trainer_count, last.batch_size)
    highest: dict[tuple[int, int], Position] = {}
    for record in records:
        highest[record.position[:2]] = record.position
    return Row(
        n=len(successes),
        sum_x=sum(run.x for run in successes),
        sum_xx=sum(run.x**2 for run in successes),
        sum_log_trainers=sum(run.log_trainers for run in successes),
        n_batch=len(batches),
        sum_log_batch=sum(batches),
        latest=latest,
        failures=tuple(at for at in failures if latest is None or at > latest[:2])[-MAX_FAILURES:],
        version=tuple(sorted(highest.values())),
        recorded_at_us=max((record.delivery.recorded_at_us for record in records), default=0),
    )


def first_known(records: Iterable[Record]) -> dict[Identity, tuple[Position, str]]:
    """Position and digest of each attempt's first record in the archive's order: by epoch, by the time to which the
    partition's clock had come, by partition and offset."""
    clocks: dict[tuple[Identity, int, int], int] = {}
    known: list[tuple[int, int, Record]] = []
    for record in sorted(record for record in records if record.run is not None):
        lane = (record.identity, *record.position[:2])
        clocks[lane] = max(clocks.get(lane, 0), record.delivery.recorded_at_us)
        known.append((record.position.epoch, clocks[lane], record))
    firsts: dict[Identity, tuple[Position, str]] = {}
    for _, _, record in sorted(known):
        firsts.setdefault(record.identity, (record.position, record.digest))
    return firsts

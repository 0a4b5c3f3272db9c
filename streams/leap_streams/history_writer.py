"""From delivered records to rows in the online store: one batch, exactly once in effect.

The steps of a batch, in this order, all on one connection:

1. decode and check each record; what breaks a rule becomes a dead letter;
2. one pipelined exchange: claim each attempt (set if absent), read the rows concerned;
3. fold, in order of delivery; a claimed attempt at another position is a duplicate, or a conflict if its content
differs;
4. one conditional write per changed row; where another writer was first, read and fold again;
5. the caller gets the dead letters to the broker;
6. the checkpoints move. Only then may the caller acknowledge the records.

A crash after any step leaves a store from which the same batch, done again, gives the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from leap_features import family, layout, levels
from leap_features.conditional_write import CONFLICT, REFUSED
from leap_features.events import InvalidEvent, check_recorded, content_digest, decode
from leap_features.history import EMPTY, FEATURES, Position, Row, Run, features, fold, from_state, run_of, touch
from leap_features.meta import attempt_key, attempt_value, decode_attempt
from leap_features.settings import Settings
from leap_streams.faults import Refused, Unavailable
from leap_streams.store import Session, Store

MAX_CONFLICTS: Final = 100
"""Rounds in which other writers may be first before the batch is dropped and done again."""


class Delivery(NamedTuple):
    """A record as the broker delivered it."""

    partition: int
    offset: int
    recorded_at_us: int
    """The broker's append time, microseconds since 1970, UTC."""
    value: bytes | None
    replay: bool = False
    """Whether an operator sent it again: it may be late."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Rejected(NamedTuple):
    """A record that breaks a rule."""

    delivery: Delivery
    position: Position
    rule: str
    message: str


class Contribution(NamedTuple):
    """What one valid record does to the rows of its keys."""

    position: Position
    recorded_at_us: int
    run: Run | None
    """None for a duplicate, which advances versions only."""


class Subject(NamedTuple):
    """The keys of a run at every level."""

    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int


class _Candidate(NamedTuple):
    delivery: Delivery
    position: Position
    subject: Subject
    run: Run
    digest: str
    replay: bool
    """Sent again by an operator: Redis may have forgotten the attempt, the archive has not."""


OUTCOMES: Final = ("folded", "duplicate", "without_effect", "rejected")
"""What may become of a record; redeliveries count as what they are deliveries of."""


class Batch(NamedTuple):
    """What came of a batch whose rows are written."""

    rejected: list[Rejected]
    checkpoints: dict[int, int]
    """Partition → offset after the batch's last record."""
    counts: dict[str, int]
    """Records by outcome (`OUTCOMES`), `rows_written`, and `conflicts` with other writers of a row."""


FindAttempts = Callable[[Sequence[tuple[bool, str]]], Mapping[tuple[bool, str], tuple[Position, str]]]
"""First position and digest of attempts (succeeded, attempt_id) in the archive, for those that it has."""


class _View:
    """Names of one level in Redis, encoded once."""

    def __init__(self, level: levels.Level) -> None:
        self.level = level
        self.timestamp = layout.timestamp_field(level.view)
        self.state = layout.field(level.view, "state")
        self.version = layout.field(level.view, "version")
        self.fields = tuple((name, layout.field(level.view, name)) for name, _ in FEATURES)

    def stored(self, reply: Sequence[bytes | None]) -> tuple[Row, bytes]:
        """Row and raw version in the reply to HMGET of state, version and timestamp."""
        state, version, stamp = reply
        if not version or not state or not stamp:
            return EMPTY, version or b""
        return from_state(
            str(layout.decode_value(state)), str(layout.decode_value(version)), layout.decode_timestamp(stamp)
        ), version

    def write(self, row: Row) -> list[bytes]:
        """Fields and values of `row`, alternating."""
        values = features(row)
        flat = [self.timestamp, layout.encode_timestamp(row.recorded_at_us)]
        for name, field in self.fields:
            flat += (field, layout.encode_value(values[name]))
        return flat


_VIEWS: Final = tuple(_View(level) for level in levels.LEVELS)


class _Entry:
    """One row that a batch touches, with what the batch contributes to it."""

    __slots__ = ("contributions", "key", "row", "version", "view")

    def __init__(self, key: bytes, view: _View) -> None:
        self.key = key
        self.view = view
        self.row = EMPTY
        self.version = b""
        self.contributions: list[Contribution] = []

    def read_command(self) -> tuple[bytes, ...]:
        return (b"HMGET", self.key, self.view.state, self.view.version, self.view.timestamp)

    def folded(self) -> Row:
        row = self.row
        for position, recorded_at_us, run in self.contributions:
            row = touch(row, position, recorded_at_us) if run is None else fold(row, run, position, recorded_at_us)
        return row


class HistoryWriter:
    """Takes batches of one topic's records into the online store. Not thread-safe: one thread owns it.

    Args:
        find_attempts: looks attempts up in the archive, for replayed events, whose attempts Redis may no longer
            remember; None where there is no archive, in which case those older than the horizon are dead letters.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        find_attempts: FindAttempts | None,
        rules: family.Rules = family.DEFAULT_RULES,
    ) -> None:
        self._store = store
        self._project = settings.project
        self._horizon_us = settings.horizon_us
        self._memory_ms = str(settings.attempt_memory_ms).encode()
        self.find_attempts = find_attempts
        self._rules = rules

    def write(self, deliveries: Sequence[Delivery], session: Session, epoch: int) -> Batch:
        """Steps 1 to 4: bring the rows of `deliveries` (ascending within a partition) into the store.

        Raises:
            Unavailable: do the same batch again later.
            Refused: drop the batch, begin again at the store's checkpoints.
            Halt, CorruptState: waiting does not help.
        """
        counts = dict.fromkeys(OUTCOMES, 0)
        rejected: list[Rejected] = []

        def reject(delivery: Delivery, rule: str, message: str) -> None:
            counts["rejected"] += 1
            rejected.append(Rejected(delivery, Position(epoch, delivery.partition, delivery.offset), rule, message))

        candidates: list[_Candidate] = []
        for delivery in deliveries:
            try:
                candidate = self._checked(delivery, epoch)
            except InvalidEvent as error:
                reject(delivery, error.rule, str(error))
            else:
                if candidate is None:
                    counts["without_effect"] += 1
                else:
                    candidates.append(candidate)

        entries: dict[bytes, _Entry] = {}
        touched = [self._entries_of(candidate, entries) for candidate in candidates]
        claims = self._claim_and_read(candidates, entries.values())
        for candidate, rows, (first, digest) in zip(candidates, touched, claims, strict=True):
            run: Run | None = candidate.run
            if first != candidate.position:
                if digest != candidate.digest:
                    reject(candidate.delivery, "conflicting_attempt", _conflict(candidate, first))
                    continue
                run = None
            counts["folded" if run else "duplicate"] += 1
            for entry in rows:
                entry.contributions.append(Contribution(candidate.position, candidate.delivery.recorded_at_us, run))

        counts["rows_written"], counts["conflicts"] = self._write_rows(list(entries.values()), session)
        checkpoints: dict[int, int] = {}
        for delivery in deliveries:
            checkpoints[delivery.partition] = delivery.offset + 1
        return Batch(rejected, checkpoints, counts)

    def _checked(self, delivery: Delivery, epoch: int) -> _Candidate | None:
        """What the record may contribute, None if nothing.

        Raises:
            InvalidEvent: it breaks a rule.
        """
        if delivery.value is None:
            raise InvalidEvent("empty", "a record without a value is no event")
        event = decode(delivery.value)
        check_recorded(event, delivery.recorded_at_us, self._horizon_us, delivery.replay)
        run = run_of(event)
        if run is None:
            return None
        late = delivery.recorded_at_us - run.completed_at_us > self._horizon_us
        if late and self.find_attempts is None:
            raise InvalidEvent(
                "replay_without_archive",
                f"attempt {event.attempt_id} completed before the horizon, and without the archive nobody knows "
                "whether it was counted then: give the worker the archive (LEAP_ARCHIVE) and replay it again",
            )
        return _Candidate(
            delivery,
            Position(epoch, delivery.partition, delivery.offset),
            Subject(
                family.family_of_event(event, self._rules), event.model_type, event.hardware_type, event.trainer_count
            ),
            run,
            content_digest(event),
            delivery.replay,
        )

    def _entries_of(self, candidate: _Candidate, entries: dict[bytes, _Entry]) -> list[_Entry]:
        """The rows that `candidate` concerns, one per level; new ones are added to `entries`."""
        rows = []
        for view, key in zip(_VIEWS, _keys(self._project, candidate.subject), strict=True):
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = _Entry(key, view)
            rows.append(entry)
        return rows

    def _claim_and_read(
        self, candidates: Sequence[_Candidate], entries: Collection[_Entry]
    ) -> list[tuple[Position, str]]:
        """Claim the attempts and read the rows, in one exchange; who claimed each attempt first, and with what."""
        archived = self._archived([c for c in candidates if c.replay])
        own = [archived.get(_identity(c.run), (c.position, c.digest)) for c in candidates]
        commands: list[Sequence[bytes]] = [
            (
                b"SET",
                attempt_key(self._project, candidate.run.succeeded, candidate.run.attempt_id),
                attempt_value(*claim),
                b"NX",
                b"GET",
                b"PX",
                self._memory_ms,
            )
            for candidate, claim in zip(candidates, own, strict=True)
        ]
        commands += [entry.read_command() for entry in entries]
        replies = self._store.call(commands) if commands else []
        for entry, reply in zip(entries, replies[len(candidates) :], strict=True):
            entry.row, entry.version = entry.view.stored(reply)
        claims = [
            decode_attempt(before) if before is not None else claim
            for claim, before in zip(own, replies[: len(candidates)], strict=True)
        ]
        self._reclaim(candidates, claims)
        return claims

    def _reclaim(self, candidates: Sequence[_Candidate], claims: list[tuple[Position, str]]) -> None:
        """Give back to the earlier event of a partition what a later one claimed, in `claims` and in the store.

        A batch claims before the store can refuse it. Where the store had gone back in time, its claims lie ahead of
        events that are yet to be taken in again.
        """
        firsts: dict[tuple[bool, str], tuple[Position, str]] = {}
        for at, (candidate, (first, _)) in enumerate(zip(candidates, claims, strict=True)):
            if not firsts and first == candidate.position:
                continue  # nearly always
            identity = _identity(candidate.run)
            if identity in firsts:
                claims[at] = firsts[identity]
            elif first[:2] == candidate.position[:2] and first.offset > candidate.position.offset:
                claims[at] = firsts[identity] = (candidate.position, candidate.digest)
        if firsts:
            self._store.call(
                [
                    (
                        b"SET",
                        attempt_key(self._project, *identity),
                        attempt_value(*claim),
                        b"PX",
                        self._memory_ms,
                    )
                    for identity, claim in firsts.items()
                ]
            )

    def _archived(self, replayed: Sequence[_Candidate]) -> Mapping[tuple[bool, str], tuple[Position, str]]:
        if not replayed or self.find_attempts is None:
            return {}
        return self.find_attempts([_identity(candidate.run) for candidate in replayed])

    def _write_rows(self, entries: Sequence[_Entry], session: Session) -> tuple[int, int]:
        """Steps 3 and 4; rows written and conflicts met."""
        written = conflicts = 0
        pending = entries
        for _ in range(MAX_CONFLICTS):
            changed = [(entry, row) for entry in pending if (row := entry.folded()) is not entry.row]
            if not changed:
                return written, conflicts
            expected = cache(session.expected)
            replies = self._store.call([self._write_command(entry, row, expected) for entry, row in changed])
            if REFUSED in replies:
                raise Refused("another generation or checkpoint in the store")
            pending = [entry for (entry, _), reply in zip(changed, replies, strict=True) if reply == CONFLICT]
            written += len(changed) - len(pending)
            if not pending:
                return written, conflicts
            conflicts += len(pending)
            for entry, reply in zip(pending, self._store.call([e.read_command() for e in pending]), strict=True):
                entry.row, entry.version = entry.view.stored(reply)
        raise Unavailable(f"{len(pending)} rows were changed by another writer {MAX_CONFLICTS} times in a row")

    def _write_command(
        self, entry: _Entry, row: Row, expected: Callable[[frozenset[int]], list[bytes]]
    ) -> tuple[bytes, ...]:
        partitions = frozenset([contribution.position.partition for contribution in entry.contributions])
        return self._store.write_row_command(
            entry.key, expected(partitions), entry.view.version, entry.version, entry.view.write(row)
        )


@lru_cache(maxsize=16_384)
def _keys(project: str, subject: Subject) -> tuple[bytes, ...]:
    """Redis keys of `subject`, one per level; jobs run again and again under the same ones."""
    return tuple(layout.entity_key(project, view.level.join_keys, view.level.key(subject)) for view in _VIEWS)


def _identity(run: Run) -> tuple[bool, str]:
    return run.succeeded, run.attempt_id


def _conflict(candidate: _Candidate, first: Position) -> str:
    status = "succeeded" if candidate.run.succeeded else "failed"
    return (
        f"attempt {candidate.run.attempt_id} was reported as {status} before, with other content, at epoch "
        f"{first.epoch}, partition {first.partition}, offset {first.offset}: an attempt has one outcome; give another "
        "launch another attempt_id"
    )

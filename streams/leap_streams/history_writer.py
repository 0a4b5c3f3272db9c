"""From delivered records to rows in the online store: one batch, exactly once in effect.

The steps of a batch, in this order, all on one connection:

1. decode and check each record; what breaks a rule becomes a dead letter;
2. one pipelined exchange: claim each attempt (set if absent, in the store that the batch began from and in no other),
read the rows concerned;
3. fold, in order of delivery; an attempt that is claimed for another position is a duplicate, or a conflict if its
content differs;
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
from leap_features.events import CompletionEvent, InvalidEvent, check_recorded, content_digest, decode
from leap_features.history import EMPTY, Position, Row, Run, features, fold, from_state, has, run_of, touch
from leap_features.meta import FIRST_LIVE_EPOCH, Claim, attempt_key, attempt_value, decode_claim
from leap_features.row_fields import RowFields
from leap_features.settings import Settings
from leap_streams.faults import Refused, Unavailable
from leap_streams.partitioners import java_partition
from leap_streams.store import ANOTHER_STORE, Session, Store

CLAIMS_AT_ONCE: Final = 500
"""Attempts per call of the script that claims them: a server answers nobody else meanwhile."""

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
    earlier: tuple[Position, ...] = ()
    """Where the same attempt was taken in before, by rows that a batch came to before the topic's life ended."""


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
    """Records by outcome (`OUTCOMES`); `rows_written`, `conflicts` with other writers of a row, `new_families`; and
    events that are `misrouted`."""


FindAttempts = Callable[[Sequence[tuple[bool, str]]], Mapping[tuple[bool, str], tuple[Position, str]]]
"""First position and digest of attempts (succeeded, attempt_id) in the archive, for those that it has."""


class _View(RowFields):
    """One level, as rows of it are read and written."""

    def stored(self, state: bytes, version: bytes, stamp: bytes) -> Row:
        """The row of which these are stored.

        Raises:
            CorruptState: no writer of rows stored them.
        """
        if not version:
            return EMPTY
        return from_state(
            str(layout.decode_value(state)), str(layout.decode_value(version)), layout.decode_timestamp(stamp)
        )

    def write(self, row: Row) -> list[bytes]:
        """Fields and values of `row`, alternating."""
        return self.encode(features(row).values(), row.recorded_at_us)


_VIEWS: Final = tuple(_View(level) for level in levels.LEVELS)
_FAMILY: Final = next(view for view in _VIEWS if view.level.view == "family_history")


class _Entry:
    """One row that a batch touches, with what the batch contributes to it."""

    __slots__ = ("contributions", "key", "row", "state", "version", "view")

    def __init__(self, key: bytes, view: _View) -> None:
        self.key = key
        self.view = view
        self.row = EMPTY
        self.state = self.version = b""
        self.contributions: list[Contribution] = []

    def read_command(self) -> tuple[bytes, ...]:
        return (b"HMGET", self.key, self.view.state, self.view.version, self.view.timestamp)

    def read(self, reply: Sequence[bytes | None]) -> None:
        """Take the reply to `read_command`."""
        self.state, self.version, stamp = (value or b"" for value in reply)
        self.row = self.view.stored(self.state, self.version, stamp)

    @property
    def before(self) -> tuple[bytes, ...]:
        """Fields and values that the fold begins from, and that must still be there when its result is written."""
        return (self.view.version, self.version, self.view.state, self.state)

    def folded(self) -> Row:
        row = self.row
        for position, recorded_at_us, run, earlier in self.contributions:
            if run is None or (earlier and any(has(row, at) for at in earlier)):
                row = touch(row, position, recorded_at_us)
            else:
                row = fold(row, run, position, recorded_at_us)
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
        self.partitions = 0
        """How many the topic has, by which misrouted events are told; 0: unknown, none is counted."""
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
        claims = self._claim_and_read(candidates, entries.values(), session)
        self._take_over(candidates, touched, claims, session)
        for candidate, rows, (first, digest, earlier) in zip(candidates, touched, claims, strict=True):
            run: Run | None = candidate.run
            if first != candidate.position:
                if digest != candidate.digest:
                    reject(candidate.delivery, "conflicting_attempt", conflict_message(candidate.run, first))
                    continue
                run = None
            counts["folded" if run else "duplicate"] += 1
            for entry in rows:
                entry.contributions.append(
                    Contribution(candidate.position, candidate.delivery.recorded_at_us, run, earlier)
                )

        counts["misrouted"] = self._misrouted(candidates)
        counts |= self._write_rows(list(entries.values()), session)
        checkpoints: dict[int, int] = {}
        for delivery in deliveries:
            checkpoints[delivery.partition] = delivery.offset + 1
        return Batch(rejected, checkpoints, counts)

    def _checked(self, delivery: Delivery, epoch: int) -> _Candidate | None:
        """What the record may contribute, None if nothing.

        Raises:
            InvalidEvent: it breaks a rule.
        """
        event, run = check_delivery(delivery, self._horizon_us, archived=self.find_attempts is not None)
        if run is None:
            return None
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
        self, candidates: Sequence[_Candidate], entries: Collection[_Entry], session: Session
    ) -> list[Claim]:
        """Claim the attempts and read the rows, in one exchange; who claimed each attempt first, and with what."""
        archived = self._archived([c for c in candidates if c.replay])
        own = [Claim(*archived.get(attempt_of(c.run), (c.position, c.digest))) for c in candidates]
        claims = [
            (attempt_key(self._project, *attempt_of(candidate.run)), attempt_value(*claim))
            for candidate, claim in zip(candidates, own, strict=True)
        ]
        expected = session.expected({candidate.position.partition for candidate in candidates})
        commands: list[Sequence[bytes]] = [
            self._store.claim_command(expected, self._memory_ms, claims[at : at + CLAIMS_AT_ONCE])
            for at in range(0, len(claims), CLAIMS_AT_ONCE)
        ]
        pages = len(commands)
        commands += [entry.read_command() for entry in entries]
        replies = self._store.call(commands) if commands else []
        if REFUSED in replies[:pages]:
            raise Refused(ANOTHER_STORE)
        for entry, reply in zip(entries, replies[pages:], strict=True):
            entry.read(reply)
        before = [value for page in replies[:pages] for value in page]
        return [decode_claim(value) if value is not None else claim for claim, value in zip(own, before, strict=True)]

    def _take_over(
        self,
        candidates: Sequence[_Candidate],
        touched: Sequence[Sequence[_Entry]],
        claims: list[Claim],
        session: Session,
    ) -> None:
        """Claim anew, in `claims` and in the store, what was claimed in an earlier epoch and is not in every row.

        A batch that was under way when the topic's life ended has claimed its attempts and may have written a part of
        its rows. Nobody will write the others; the same events, reported or read again, do.
        """
        lost = [
            at
            for at, (candidate, rows, claim) in enumerate(zip(candidates, touched, claims, strict=True))
            if FIRST_LIVE_EPOCH <= claim.position.epoch < candidate.position.epoch
            and claim.digest == candidate.digest
            and not all(any(has(entry.row, position) for position in claim.positions) for entry in rows)
        ]
        if not lost:
            return  # nearly always
        commands = []
        for at in lost:
            candidate, claim = candidates[at], claims[at]
            key = attempt_key(self._project, *attempt_of(candidate.run))
            new = attempt_value(candidate.position, claim.digest, claim.positions)
            expected = session.expected([candidate.position.partition])
            commands.append(
                self._store.take_claim_over_command(expected, self._memory_ms, key, attempt_value(*claim), new)
            )
        replies = self._store.call(commands)
        if REFUSED in replies:
            raise Refused(ANOTHER_STORE)
        for at, reply in zip(lost, replies, strict=True):
            claims[at] = decode_claim(reply)

    def _archived(self, replayed: Sequence[_Candidate]) -> Mapping[tuple[bool, str], tuple[Position, str]]:
        if not replayed or self.find_attempts is None:
            return {}
        return self.find_attempts([attempt_of(candidate.run) for candidate in replayed])

    def _misrouted(self, candidates: Sequence[_Candidate]) -> int:
        """How many lie in another partition than Java's partitioner gives their model type, the key that they need."""
        count = self.partitions
        if not count:
            return 0
        return sum(c.position.partition != _partition(c.subject.model_type, count) for c in candidates)

    def _write_rows(self, entries: Sequence[_Entry], session: Session) -> dict[str, int]:
        """Steps 3 and 4; rows written, conflicts met, and families that the store had nothing of."""
        counts = {"rows_written": 0, "conflicts": 0, "new_families": 0}
        pending = entries
        for _ in range(MAX_CONFLICTS):
            changed = [(entry, row) for entry in pending if (row := entry.folded()) is not entry.row]
            if not changed:
                return counts
            expected = cache(session.expected)
            replies = self._store.call([self._write_command(entry, row, expected) for entry, row in changed])
            if REFUSED in replies:
                raise Refused(ANOTHER_STORE)
            done = [entry for (entry, _), reply in zip(changed, replies, strict=True) if reply != CONFLICT]
            pending = [entry for (entry, _), reply in zip(changed, replies, strict=True) if reply == CONFLICT]
            counts["rows_written"] += len(done)
            counts["new_families"] += sum(entry.view is _FAMILY and not entry.version for entry in done)
            if not pending:
                return counts
            counts["conflicts"] += len(pending)
            for entry, reply in zip(pending, self._store.call([e.read_command() for e in pending]), strict=True):
                entry.read(reply)
        raise Unavailable(f"{len(pending)} rows were changed by another writer {MAX_CONFLICTS} times in a row")

    def _write_command(
        self, entry: _Entry, row: Row, expected: Callable[[frozenset[int]], list[bytes]]
    ) -> tuple[bytes, ...]:
        partitions = frozenset([contribution.position.partition for contribution in entry.contributions])
        return self._store.write_row_command(entry.key, expected(partitions), entry.before, entry.view.write(row))


def check_delivery(delivery: Delivery, horizon_us: int, *, archived: bool) -> tuple[CompletionEvent, Run | None]:
    """The event that `delivery` holds, and what it may contribute to history: None if nothing.

    Args:
        horizon_us: an event recorded later than this after its completion must be a replayed one.
        archived: whether attempts from before the horizon can be looked up.

    Raises:
        InvalidEvent: it breaks a rule.
    """
    if delivery.value is None:
        raise InvalidEvent("empty", "a record without a value is no event")
    event = decode(delivery.value)
    check_recorded(event, delivery.recorded_at_us, horizon_us, delivery.replay)
    run = run_of(event)
    if run is not None and not archived and delivery.recorded_at_us - run.completed_at_us > horizon_us:
        raise InvalidEvent(
            "replay_without_archive",
            f"attempt {event.attempt_id} completed before the horizon, and without the archive nobody knows "
            "whether it was counted then: give the worker the archive (LEAP_ARCHIVE) and replay it again",
        )
    return event, run


@lru_cache(maxsize=16_384)
def _keys(project: str, subject: Subject) -> tuple[bytes, ...]:
    """Redis keys of `subject`, one per level; jobs run again and again under the same ones."""
    return tuple(layout.entity_key(project, view.level.join_keys, view.level.key(subject)) for view in _VIEWS)


@lru_cache(maxsize=16_384)
def _partition(model_type: str, partitions: int) -> int:
    return java_partition(model_type.encode(), partitions)


def attempt_of(run: Run) -> tuple[bool, str]:
    """What tells the attempt of `run` from others: whether it succeeded, and its id."""
    return run.succeeded, run.attempt_id


def conflict_message(run: Run, first: Position) -> str:
    """Why `run` is turned away, whose attempt was reported at `first` with other content."""
    status = "succeeded" if run.succeeded else "failed"
    return (
        f"attempt {run.attempt_id} was reported as {status} before, with other content, at epoch "
        f"{first.epoch}, partition {first.partition}, offset {first.offset}: an attempt has one outcome; give another "
        "launch another attempt_id"
    )

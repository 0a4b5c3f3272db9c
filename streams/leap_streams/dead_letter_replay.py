"""Dead letters sent again: mended, checked by the worker's own rules, and only if they would be taken in.

There is no ledger of what was replayed. An attempt counts once however often it is sent, and the online store and the
archive know which attempts they have: what they have with the same content is not sent again, what they have with other
content would be a conflict again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

import redis

from leap_features.events import CompletionEvent, InvalidEvent, content_digest
from leap_features.history import Position, Run
from leap_features.meta import attempt_key, decode_attempt
from leap_features.settings import Settings
from leap_streams.confirmed_producer import OutgoingRecord
from leap_streams.dead_letter import HEADER_PREFIX
from leap_streams.dead_letter_log import Letter
from leap_streams.dead_letter_transform import Transform
from leap_streams.faults import Unavailable
from leap_streams.history_writer import Delivery, FindAttempts, attempt_of, check_delivery, conflict_message
from leap_streams.kafka import REPLAY_HEADER
from leap_streams.spilled_map import SpilledMap

REPLAYED_FROM_HEADER: Final = "leap-replayed-from"
"""Header of a replayed record: the source position of the letter that it was, `epoch:partition:offset`."""

LETTERS_AT_ONCE: Final = 500

Verdict = Literal["send", "known", "rejected"]


class Judgement(NamedTuple):
    """What would become of a letter, and the record to send, if any."""

    letter: Letter
    verdict: Verdict
    rule: str = ""
    """The rule that it breaks, of a rejected one."""
    message: str = ""
    record: OutgoingRecord | None = None


class _Candidate(NamedTuple):
    letter: Letter
    record: OutgoingRecord
    event: CompletionEvent
    run: Run | None
    changed: bool


class Judge:
    """Says which letters can be replayed.

    Args:
        find_attempts: first position and digest of those attempts that store or archive have.
        archived: whether there is an archive.
        clock_us: microseconds since 1970, UTC.
    """

    def __init__(
        self,
        settings: Settings,
        transform: Transform | None,
        find_attempts: FindAttempts,
        *,
        archived: bool,
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._settings = settings
        self._transform = transform
        self._find_attempts = find_attempts
        self._archived = archived
        self._clock_us = clock_us

    def judge(self, letters: Iterable[Letter]) -> Iterator[Judgement]:
        """What would become of each of `letters`, in bounded memory.

        Raises:
            Unavailable: store or archive do not answer.
        """
        first_of_run = SpilledMap()
        remaining = iter(letters)
        try:
            while judged := [self._candidate(letter) for letter in islice(remaining, LETTERS_AT_ONCE)]:
                runs = [item.run for item in judged if isinstance(item, _Candidate) and item.run is not None]
                known = self._find_attempts([attempt_of(run) for run in runs])
                for item in judged:
                    yield self._compared(item, known, first_of_run) if isinstance(item, _Candidate) else item
        finally:
            first_of_run.close()

    def _candidate(self, letter: Letter) -> _Candidate | Judgement:
        """The record that the letter would become; its judgement where it breaks a rule by itself."""
        source = self._settings.topic
        if letter.topic not in ("", source):
            return _rejected(
                letter, "topic", f"the record came from topic {letter.topic}, LEAP_TOPIC is {source}: replay it there"
            )
        try:
            value = self._transform.apply(letter.rule, letter.value) if self._transform else letter.value
            delivery = Delivery(-1, -1, self._clock_us(), value, replay=True)
            event, run = check_delivery(delivery, self._settings.horizon_us, archived=self._archived)
        except InvalidEvent as error:
            return _rejected(letter, error.rule, str(error))
        record = OutgoingRecord(event.model_type.encode(), value, _headers(letter))
        return _Candidate(letter, record, event, run, value != letter.value)

    def _compared(
        self,
        candidate: _Candidate,
        known: Mapping[tuple[bool, str], tuple[Position, str]],
        first_of_run: SpilledMap,
    ) -> Judgement:
        """The judgement, once it is known which attempts have been taken in, and which were sent before this one."""
        letter, record, event, run, changed = candidate
        to_send = Judgement(letter, "send", record=record)
        if run is None:
            return to_send  # it changes no history, however often it comes
        digest = content_digest(event)
        first = known.get(attempt_of(run))
        if first is not None:
            position, first_digest = first
            if first_digest != digest:
                return _rejected(letter, "conflicting_attempt", conflict_message(run, position))
            if position == letter.position:  # so only where the archive came after the letter
                return _rejected(
                    letter,
                    letter.rule,
                    "the archive counts this very record, so that another would be its duplicate: "
                    "`leap audit --repair` brings it into the online store",
                )
            where = ":".join(map(str, position))
            return Judgement(letter, "known", message=f"attempt {run.attempt_id} was taken in at {where}")
        if letter.rule == "conflicting_attempt" and not changed:
            return _rejected(letter, letter.rule, f"unchanged, it conflicts again: {letter.message}")
        other = first_of_run.put(attempt_key("", *attempt_of(run)), digest.encode())
        if other is None:
            return to_send
        if other != digest.encode():
            return _rejected(
                letter,
                "conflicting_attempt",
                f"another letter of attempt {run.attempt_id} goes first, with other content: an attempt has one "
                "outcome; give another launch another attempt_id",
            )
        return Judgement(letter, "known", message=f"another letter of attempt {run.attempt_id} says the same")


class Replayed:
    """What came of the letters so far."""

    def __init__(self) -> None:
        self.sent = 0
        """Records that the broker has; without a sender those that would have been sent."""
        self.known = 0
        self.rejected: Counter[str] = Counter()
        """By the rule that they break."""


def replay(
    judgements: Iterable[Judgement],
    send: Callable[[Sequence[OutgoingRecord]], None],
    turned_away: Callable[[Judgement], None],
    so_far: Replayed,
) -> None:
    """Send what can be sent, and count in `so_far` what came of each letter, also where this fails halfway.

    Args:
        send: sends records and returns when the broker has them.
        turned_away: is told of each letter that is rejected.
    """
    records: list[OutgoingRecord] = []

    def flush() -> None:
        send(records)
        so_far.sent += len(records)
        records.clear()

    for judgement in judgements:
        if judgement.record is not None:
            records.append(judgement.record)
            if len(records) >= LETTERS_AT_ONCE:
                flush()
        elif judgement.verdict == "known":
            so_far.known += 1
        else:
            so_far.rejected[judgement.rule] += 1
            turned_away(judgement)
    flush()


def attempts_known(
    client: redis.Redis, project: str, find_archived: FindAttempts | None, shown_url: str
) -> FindAttempts:
    """What finds attempts in the online store, and in the archive those that the store has forgotten."""

    def find(attempts: Sequence[tuple[bool, str]]) -> Mapping[tuple[bool, str], tuple[Position, str]]:
        if not attempts:
            return {}
        try:
            stored: Any = client.mget([attempt_key(project, *attempt) for attempt in attempts])
        except redis.RedisError as error:
            raise Unavailable(
                f"Redis at {shown_url}: {error}; it knows which attempts have been counted, nothing is sent without it"
            ) from None
        found = {a: decode_attempt(value) for a, value in zip(attempts, stored, strict=True) if value is not None}
        forgotten = [attempt for attempt in attempts if attempt not in found]
        if forgotten and find_archived is not None:
            found |= find_archived(forgotten)
        return found

    return find


def _headers(letter: Letter) -> tuple[tuple[str, bytes | None], ...]:
    """The record's own headers, and those that make it a replayed one."""
    own = [
        (name, value)
        for name, value in letter.headers
        if not name.startswith(HEADER_PREFIX) and name not in (REPLAY_HEADER, REPLAYED_FROM_HEADER)
    ]
    return (*own, (REPLAY_HEADER, b"1"), (REPLAYED_FROM_HEADER, letter.source.encode()))


def _rejected(letter: Letter, rule: str, message: str) -> Judgement:
    return Judgement(letter, "rejected", rule, message)

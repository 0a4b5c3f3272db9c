"""Which letters would be taken in, and what is sent of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from events_strategies import BASE, raw_event
from leap_features.events import content_digest, decode, to_us
from leap_features.history import Position
from leap_features.settings import Settings
from leap_streams.confirmed_producer import OutgoingRecord
from leap_streams.dead_letter_log import Letter
from leap_streams.dead_letter_replay import LETTERS_AT_ONCE, Judge, Judgement, Replayed, replay
from leap_streams.faults import Unavailable

DAY_US = 86_400_000_000
RECORDED_US = to_us(BASE)
ELSEWHERE = Position(1_000_000, 5, 9)

Known = Mapping[tuple[bool, str], tuple[Position, str]]


def letter(value: bytes | None, rule: str = "too_late", offset: int = 0) -> Letter:
    position = Position(1_000_000, 0, offset)
    return Letter(
        0, offset, "leap.completions", position, rule, "why", RECORDED_US, RECORDED_US, b"k", value, (("trace", b"1"),)
    )


def judged(*letters: Letter, known: Known | None = None, archived: bool = True, days: float = 1) -> list[Judgement]:
    judge = Judge(
        Settings(),
        None,
        lambda _attempts: known or {},
        archived=archived,
        clock_us=lambda: RECORDED_US + round(days * DAY_US),
    )
    return list(judge.judge(letters))


def test_an_attempt_that_is_known_with_the_same_content_is_not_sent() -> None:
    raw = raw_event()
    known = {(True, "attempt-1"): (ELSEWHERE, content_digest(decode(raw)))}
    (judgement,) = judged(letter(raw), known=known)
    assert (judgement.verdict, judgement.record) == ("known", None)
    assert "attempt-1 was taken in at 1000000:5:9" in judgement.message


def test_an_attempt_that_is_known_with_other_content_would_conflict() -> None:
    (judgement,) = judged(letter(raw_event()), known={(True, "attempt-1"): (ELSEWHERE, "0" * 32)})
    assert (judgement.verdict, judgement.rule) == ("rejected", "conflicting_attempt")
    assert "partition 5, offset 9" in judgement.message


def test_of_letters_of_one_attempt_the_first_goes_and_the_others_are_judged_by_it() -> None:
    first, same, other = (letter(raw_event(throughput=rate), offset=at) for at, rate in enumerate((1.0, 1.0, 2.0)))
    failed = letter(raw_event(status="failed"), offset=3)
    verdicts = [(judgement.verdict, judgement.rule) for judgement in judged(first, same, other, failed)]
    assert verdicts == [("send", ""), ("known", ""), ("rejected", "conflicting_attempt"), ("send", "")]


def test_a_conflict_is_never_sent_unchanged_even_where_nobody_knows_the_attempt_any_more() -> None:
    (judgement,) = judged(letter(raw_event(), rule="conflicting_attempt"))
    assert (judgement.verdict, judgement.rule) == ("rejected", "conflicting_attempt")
    assert judgement.message.startswith("unchanged, it conflicts again: why")


def test_what_changes_no_history_is_sent_however_often() -> None:
    cancelled = letter(raw_event(status="cancelled"))
    assert [judgement.verdict for judgement in judged(cancelled, cancelled)] == ["send", "send"]


@pytest.mark.parametrize(("archived", "rule"), [(True, ""), (False, "replay_without_archive")])
def test_a_late_letter_needs_the_archive(archived: bool, rule: str) -> None:
    (judgement,) = judged(letter(raw_event()), archived=archived, days=8)
    assert judgement.rule == rule
    (judgement,) = judged(letter(raw_event()), archived=archived, days=6)
    assert judgement.verdict == "send"


def test_a_letter_from_the_future_is_sent_when_its_time_has_come() -> None:
    assert judged(letter(raw_event()), days=-0.01)[0].rule == "from_the_future"
    assert judged(letter(raw_event()), days=0)[0].verdict == "send"


def test_each_rule_holds_for_a_replayed_record_too() -> None:
    letters = [letter(None), letter(b"["), letter(raw_event(throughput="1"))]
    assert [judgement.rule for judgement in judged(*letters)] == ["empty", "json", "throughput"]


def test_letters_are_judged_and_sent_a_few_at_a_time() -> None:
    looked: list[int] = []
    sent: list[int] = []

    def find(attempts: Sequence[tuple[bool, str]]) -> Known:
        looked.append(len(attempts))
        return {}

    count = 2 * LETTERS_AT_ONCE + 1
    letters = (letter(raw_event(attempt_id=f"a{i}"), offset=i) for i in range(count))
    judge = Judge(Settings(), None, find, archived=True, clock_us=lambda: RECORDED_US)
    done = Replayed()
    replay(judge.judge(letters), lambda records: sent.append(len(records)), lambda _judgement: None, done)
    assert looked == sent == [LETTERS_AT_ONCE, LETTERS_AT_ONCE, 1]
    assert done.sent == count


def test_a_replay_that_fails_halfway_knows_what_the_broker_has() -> None:
    calls = iter([None, Unavailable("down")])

    def send(_records: Sequence[OutgoingRecord]) -> None:
        problem = next(calls)
        if problem is not None:
            raise problem

    letters = [letter(raw_event(attempt_id=f"a{i}"), offset=i) for i in range(2 * LETTERS_AT_ONCE)]
    judge = Judge(Settings(), None, lambda _attempts: {}, archived=True, clock_us=lambda: RECORDED_US)
    done = Replayed()
    with pytest.raises(Unavailable):
        replay(judge.judge(letters), send, lambda _judgement: None, done)
    assert done.sent == LETTERS_AT_ONCE

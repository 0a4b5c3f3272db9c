"""A decision as a line of JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leap_predictor.decisions.decision import MAX_DECISION_BYTES, Decision, InvalidDecision, decode, encode
from leap_predictor.explanation import Choice
from made_decisions import choice, decision

finite = st.floats(allow_nan=False, allow_infinity=False)
# Any character but halves of surrogate pairs, which UTF-8 cannot hold.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
choices = st.builds(Choice, texts, finite, finite, finite, finite, texts | st.none(), finite, st.booleans())
decisions = st.builds(
    Decision,
    decision_id=texts,
    decided_at=st.datetimes(timezones=st.just(UTC)),
    job_name=texts,
    attempt_id=texts | st.none(),
    job_family=texts | st.none(),
    model_type=texts,
    trainer_count=st.integers(0, 2**31 - 1),
    candidates=st.lists(texts, max_size=5).map(tuple),
    choices=st.lists(choices, max_size=5).map(tuple),
    reason=texts | st.none(),
    control=st.booleans(),
    bundle_id=texts | st.none(),
    history=st.sampled_from(["live", "snapshot", None]),
    took_ms=finite,
)


@given(decisions)
def test_a_decision_survives_its_line(made: Decision) -> None:
    line = encode(made)
    assert b"\n" not in line
    assert decode(line) == made


def test_times_are_read_in_utc() -> None:
    there = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert decode(encode(decision(decided_at=there))).decided_at.isoformat() == "2026-03-01T10:00:00+00:00"


def test_half_a_surrogate_pair_costs_the_character_not_the_decision() -> None:
    made = decision(
        job_name="a\ud800", attempt_id="\udfff", job_family="f\ud800", model_type="\ud800m", candidates=("A", "\udc00")
    )
    read = decode(encode(made))
    assert (read.job_name, read.attempt_id, read.job_family, read.model_type) == (
        "a\ufffd",
        "\ufffd",
        "f\ufffd",
        "\ufffdm",
    )
    assert read.candidates == ("A", "\ufffd")
    assert read.choices == made.choices


def test_fields_of_a_later_release_are_passed_over() -> None:
    line = msgspec.json.encode(msgspec.json.decode(encode(decision())) | {"invented_later": [1]})
    assert decode(line) == decision()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        encode(decision())[:-20],
        encode(decision()).replace(b'"trainer_count":8', b'"trainer_count":"x"'),
        encode(decision()).replace(b"12:00:00Z", b"12:00:00"),
        encode(decision()).replace(b"2026-03-01T12:00:00Z", b"0001-01-01T00:00:00+14:00"),
    ],
)
def test_a_line_that_is_no_decision_is_named(line: bytes) -> None:
    with pytest.raises(InvalidDecision, match="one decision as JSON"):
        decode(line)


def test_a_decision_too_long_for_a_topic_is_refused() -> None:
    most = decision(candidates=("\x01" * 128,) * 256, choices=(choice("x" * 128),) * 256)
    assert len(encode(most)) < MAX_DECISION_BYTES
    with pytest.raises(InvalidDecision, match=f"at most {MAX_DECISION_BYTES} bytes, got .*: ask about fewer"):
        encode(decision(candidates=("x" * 128,) * 10_000))

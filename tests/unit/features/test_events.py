from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from events_strategies import BASE, BROKEN, event_fields, nested, raw_event
from leap_features.events import (
    MAX_EVENT_BYTES,
    InvalidEvent,
    check_recorded,
    content_digest,
    decode,
    encode,
    fixed_log,
    from_us,
    json_schema,
    to_us,
)

DAY_US = 86_400_000_000


@pytest.mark.parametrize(("changes", "rule", "named"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_named_with_the_value(changes: dict[str, object], rule: str, named: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode(raw_event(**changes))
    assert caught.value.rule == rule
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b'"event"', b"null", b"\xff\xfe", b"[" * 60_000, raw_event().replace(b"1000.0", b"NaN")],
    ids=["nothing", "truncated", "array", "string", "null", "not UTF-8", "deeply nested", "NaN"],
)
def test_what_is_no_json_object_is_named_so(raw: bytes) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode(raw)
    assert caught.value.rule == "json"


def test_a_ranking_may_be_nested_and_what_is_decoded_can_be_encoded() -> None:
    event = decode(raw_event(ranking=nested(32)))
    assert decode(encode(event)) == event
    # Just below what the decoder can follow, an encoder further down the stack could not.
    for levels in (900, 990, 995, 1000):
        deep = raw_event(ranking={"a": 1}).replace(b'"a": 1', b'"a": ' + b"[" * levels + b"]" * levels)
        with pytest.raises(InvalidEvent):
            decode(deep)


def test_a_number_out_of_range_is_named() -> None:
    with pytest.raises(InvalidEvent, match="1e999") as caught:
        decode(raw_event().replace(b"1000.0", b"1e999"))
    assert caught.value.rule == "throughput"


def test_an_event_above_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    at_limit = raw_event()
    at_limit += b" " * (MAX_EVENT_BYTES - len(at_limit))
    assert decode(at_limit).attempt_id == "attempt-1"
    with pytest.raises(InvalidEvent) as caught:
        decode(at_limit + b" ")
    assert caught.value.rule == "size"


@pytest.mark.parametrize("status", ["failed", "cancelled", "preempted"])
def test_an_attempt_that_did_not_succeed_needs_no_throughput(status: str) -> None:
    assert decode(raw_event(status=status, throughput=...)).throughput is None


def test_times_come_out_in_utc_with_microseconds() -> None:
    event = decode(raw_event(completed_at="2026-03-01T05:30:00.123456+05:30"))
    assert event.completed_at == datetime(2026, 3, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert event.completed_at.utcoffset() == timedelta(0)


def test_encoding_and_decoding_give_the_same_event() -> None:
    event = decode(raw_event(job_family="ranker", ranking={"decision": "d1", "predictions": [1.5]}))
    assert decode(encode(event)) == event


def test_optional_fields_have_defaults() -> None:
    names = ("reader_count", "batch_size", "device_hours", "eligible_hardware", "config")
    event = decode(raw_event(**dict.fromkeys(names, ...)))
    assert (event.reader_count, event.batch_size, event.device_hours) == (0, 0, 0)
    assert event.eligible_hardware == ()
    assert event.config == {}


def test_the_digest_tells_contents_apart_and_nothing_else() -> None:
    event = decode(raw_event())
    same = dict(reversed(event_fields(completed_at=BASE.astimezone().isoformat()).items()))
    assert content_digest(decode(json.dumps(same).encode())) == content_digest(event)
    assert content_digest(decode(raw_event(throughput=1000.0000001))) != content_digest(event)
    assert len(content_digest(event)) == 32


def test_an_event_is_too_late_after_the_horizon_unless_it_is_replayed() -> None:
    event = decode(raw_event())
    completed = to_us(event.completed_at)
    check_recorded(event, completed + 7 * DAY_US, 7 * DAY_US, replay=False)
    check_recorded(event, completed + 700 * DAY_US, 7 * DAY_US, replay=True)
    with pytest.raises(InvalidEvent) as caught:
        check_recorded(event, completed + 7 * DAY_US + 1, 7 * DAY_US, replay=False)
    assert caught.value.rule == "too_late"


@pytest.mark.parametrize("replay", [False, True])
def test_an_event_may_complete_five_minutes_after_it_was_recorded_and_no_later(replay: bool) -> None:
    event = decode(raw_event())
    completed = to_us(event.completed_at)
    check_recorded(event, completed - 300_000_000, 7 * DAY_US, replay)
    with pytest.raises(InvalidEvent) as caught:
        check_recorded(event, completed - 300_000_001, 7 * DAY_US, replay)
    assert caught.value.rule == "from_the_future"


def test_microseconds_survive_both_ways() -> None:
    for us in (0, 1, 999_999, 1_772_323_200_000_001, -1, -1_000_001):
        assert to_us(from_us(us)) == us


def test_a_logarithm_is_an_integer_in_units_of_two_to_the_minus_32() -> None:
    assert fixed_log(1.0) == 0
    assert fixed_log(2.718281828459045) == 2**32
    assert fixed_log(0.5) == -fixed_log(2.0)


def test_the_schema_names_every_field() -> None:
    schema = json_schema()
    (definition,) = schema["$defs"].values()
    assert set(definition["properties"]) >= set(event_fields())
    assert definition["additionalProperties"] is False


def test_the_published_schema_is_the_one_of_the_struct() -> None:
    published = Path(__file__).parents[3] / "docs" / "events.schema.json"
    renewed = json.loads(json.dumps(json_schema()))
    assert json.loads(published.read_text()) == renewed, "renew it: leap schema > docs/events.schema.json"

"""No byte of a record is lost, whatever it is: as a letter, in what `show` prints, and in what is sent again."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from events_strategies import event_fields
from leap_features.events import from_us
from leap_features.history import Position
from leap_features.settings import Settings
from leap_streams.dead_letter import HEADER_PREFIX, headers_of
from leap_streams.dead_letter_log import Letter, Summary, distinct, letter_of
from leap_streams.dead_letter_replay import Judge
from leap_streams.dead_letter_rules import RULES
from leap_streams.dead_letter_transform import Transform
from leap_streams.dead_letter_view import list_lines, list_objects, show_lines, shown
from leap_streams.history_writer import Delivery, Rejected

NOW_US = 1_772_323_200_000_000
SETTINGS = Settings()

nullable = st.none() | st.binary(max_size=40)
header_names = st.text(max_size=8) | st.sampled_from(
    [HEADER_PREFIX + name for name in ("topic", "epoch", "partition", "offset", "rule", "message", "at", "other")]
)
headers = st.lists(st.tuples(header_names, nullable | st.sampled_from([b"1", b"json"])), max_size=6).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
values = st.one_of(
    nullable,
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    json_values.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    json_values.map(lambda value: json.dumps(value).encode()),
)


@st.composite
def rejected(draw: st.DrawFn) -> Rejected:
    partition, offset = draw(st.integers(0, 99)), draw(st.integers(0, 2**62))
    delivery = Delivery(partition, offset, NOW_US, draw(values), key=draw(nullable), headers=draw(headers))
    position = Position(draw(st.integers(1_000_000, 1_000_009)), partition, offset)
    return Rejected(delivery, position, draw(st.sampled_from(list(RULES))), draw(st.text(max_size=30)))


def letter_in(rejected: Rejected) -> Letter:
    """What the reader makes of what the worker writes."""
    written = headers_of(rejected, SETTINGS.topic, NOW_US)
    return letter_of(0, 7, NOW_US, rejected.delivery.key, rejected.delivery.value, written)


def read_back(lines: list[str]) -> Any:
    """The value that the lines of `show` print: bytes, or of JSON its meaning with every number as it is written."""
    (at,) = (number for number, line in enumerate(lines) if line.startswith("value "))
    body = lines[at + 1 :]
    if lines[at].endswith("null"):
        return None
    if lines[at].endswith("JSON:"):
        return meaning("\n".join(body))
    if lines[at].endswith("text:"):
        return "\n".join(body).encode()
    return b"".join(bytes.fromhex(line[10:57]) for line in body)


def meaning(text: str) -> Any:
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=lambda pairs: ["object", *pairs])


@given(rejected())
def test_a_letter_is_its_record_byte_for_byte(record: Rejected) -> None:
    letter = letter_in(record)
    delivery = record.delivery
    assert (letter.key, letter.value, letter.headers) == (delivery.key, delivery.value, delivery.headers)
    assert (letter.position, letter.rule, letter.message) == (record.position, record.rule, record.message)
    assert (letter.topic, letter.recorded_at_us, letter.at_us) == (SETTINGS.topic, NOW_US, NOW_US)


@given(nullable, values, headers)
def test_any_record_of_the_topic_is_a_letter_and_loses_nothing(
    key: bytes | None, value: bytes | None, given_headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    letter = letter_of(3, 5, NOW_US, key, value, given_headers)
    assert (letter.key, letter.value) == (key, value)
    if letter.position is None:
        assert (letter.headers, letter.rule, letter.source) == (given_headers, "unknown", "@3:5")
    assert list(show_lines(letter, 1))


@given(rejected())
def test_what_show_prints_holds_the_whole_record_and_nothing_that_a_terminal_obeys(record: Rejected) -> None:
    letter = letter_in(record)
    lines = list(show_lines(letter, 1))
    assert all(line.replace("\t", "").isprintable() for line in lines)
    found, value = read_back(lines), letter.value
    assert found == value or found == meaning((value or b"").decode())
    for name, text in letter.headers:
        assert f"header       {shown(name.encode())}: {shown(text)}" in lines


@given(nullable, nullable)
def test_no_two_values_are_shown_alike(left: bytes | None, right: bytes | None) -> None:
    assert (shown(left) == shown(right)) == (left == right)


@given(st.lists(rejected(), max_size=6), st.integers(0, 4))
def test_a_list_counts_every_source_once_and_shows_each_letter_on_lines_of_its_own(
    records: list[Rejected], limit: int
) -> None:
    summary = Summary(limit)
    letters = [letter_in(record)._replace(offset=at) for at, record in enumerate([*records, *records])]
    for letter in distinct(letters):
        summary.add(letter)
    sources = {record.position for record in records}
    assert sum(count.records for count in summary.counts.values()) == len(sources)
    assert len(summary.latest) == min(limit, len(sources))
    lines = list(list_lines(summary.counts, summary.latest, SETTINGS.topic))
    assert all(line.isprintable() for line in lines)
    objects = list(list_objects(summary.counts, summary.latest))
    assert [item["message"] for item in objects if item["kind"] == "letter"] == [le.message for le in summary.latest]


@given(rejected(), st.booleans())
def test_a_replayed_record_is_the_letter_s_own_byte_for_byte(record: Rejected, through_a_transform: bool) -> None:
    value = json.dumps(event_fields(completed=from_us(NOW_US))).replace(", ", " ,\t").encode()
    letter = letter_in(record)._replace(value=value, rule="throughput")
    transform = Transform({"mend": [{"event": {"ranking": {"drop": True}, "throughput": {"type": "number"}}}]})
    judge = Judge(
        SETTINGS,
        transform if through_a_transform else None,
        lambda _attempts: {},
        archived=True,
        clock_us=lambda: NOW_US,
    )
    (judgement,) = judge.judge([letter])
    assert judgement.record is not None
    key, sent, sent_headers = judgement.record
    assert sent is value
    assert key == b"ranker"
    own = tuple(pair for pair in letter.headers if not pair[0].startswith(HEADER_PREFIX))
    assert sent_headers == (*own, ("leap-replay", b"1"), ("leap-replayed-from", letter.source.encode()))

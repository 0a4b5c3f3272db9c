"""Letters as records of the topic, whoever wrote them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Message

from leap_features.history import Position
from leap_streams.dead_letter_address import parse
from leap_streams.dead_letter_log import LAST_MS, Letter, _letter, letter_of
from leap_streams.spilled_map import SpilledMap

WRITTEN = {
    "leap-dead-letter-topic": b"t",
    "leap-dead-letter-epoch": b"1000001",
    "leap-dead-letter-partition": b"3",
    "leap-dead-letter-offset": b"17",
    "leap-dead-letter-rule": b"json",
}


class Record:
    """A record as the client gives it, whose headers it may fail to read."""

    def __init__(self, milliseconds: int = 5, headers: list[tuple[str, bytes]] | None = None) -> None:
        self._milliseconds = milliseconds
        self._headers = headers

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 9

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, self._milliseconds

    def headers(self) -> list[tuple[str, bytes]]:
        if self._headers is None:
            raise SystemError("headers returned a result with an exception set")
        return self._headers


def read(record: Record) -> Letter:
    return _letter(cast(Message, record))


def test_a_record_whose_headers_the_client_cannot_read_is_a_foreign_letter() -> None:
    letter = read(Record())
    assert (letter.rule, letter.key, letter.value, letter.source) == ("unknown", b"k", b"v", "@0:9")
    assert "not UTF-8" in letter.message


@pytest.mark.parametrize(("stamp", "us"), [(-1, 0), (2**62, LAST_MS * 1000), (7, 7000)])
def test_any_stamp_of_a_foreign_record_is_a_time(stamp: int, us: int) -> None:
    assert read(Record(stamp, [])).at_us == us


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in WRITTEN),
        {"leap-dead-letter-offset": b"seventeen"},
        {"leap-dead-letter-epoch": b"9" * 5000},
        {"leap-dead-letter-partition": b"\xff"},
    ],
)
def test_a_letter_that_lacks_what_tells_its_source_is_unknown(change: dict[str, Any]) -> None:
    headers = tuple((WRITTEN | change).items())
    letter = letter_of(2, 4, 1_000, None, None, headers)
    assert (letter.rule, letter.position, letter.headers, letter.source) == ("unknown", None, headers, "@2:4")


def test_times_that_cannot_be_read_are_those_of_the_letter_itself() -> None:
    times = {"leap-dead-letter-at": b"noon", "leap-dead-letter-recorded-at": b"2026-03-01T00:00:00"}
    letter = letter_of(2, 4, 1_000, None, None, tuple((WRITTEN | times).items()))
    assert (letter.rule, letter.position) == ("json", Position(1_000_001, 3, 17))
    assert (letter.at_us, letter.recorded_at_us) == (1_000, None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("3:17", True),
        ("1000001:3:17", True),
        ("1000000:3:17", False),
        ("3:18", False),
        ("17:3", False),
        ("@2:4", True),
        ("@3:17", False),
    ],
)
def test_an_address_names_a_letter_by_its_source_or_its_own_place(text: str, names: bool) -> None:
    letter = letter_of(2, 4, 1_000, None, None, tuple(WRITTEN.items()))
    assert parse(text).names(letter) is names


def test_a_foreign_letter_has_no_source_to_be_named_by() -> None:
    letter = letter_of(2, 4, 1_000, None, None, ())
    assert parse("@2:4").names(letter)
    assert not parse("2:4").names(letter)


@pytest.mark.parametrize(
    "text", ["", "3", "3:", ":3", "a:b", "1:2:3:4", "@1:2:3", "-1:2", "1:-2", "1 :2", "²:1", "9" * 20 + ":1"]
)
def test_an_address_of_no_known_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be partition:offset or epoch:partition:offset"):
        parse(text)


def test_a_map_keeps_the_first_value_of_a_key() -> None:
    kept = SpilledMap()
    assert kept.put(b"a", b"1") is None
    assert kept.put(b"a", b"2") == b"1"
    assert kept.put(b"") is None
    assert kept.put(b"", b"2") == b""
    kept.close()

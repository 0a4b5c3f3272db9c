from __future__ import annotations

import contextlib
import itertools
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection

from leap_predictor.errors import StoreError
from leap_predictor.history.hmget_replies import MAX_REPLY_BYTES, MAX_VALUE_BYTES, Replies

_VALUES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    # What a parser might take for its own: line ends, and beginnings of values and replies.
    st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"$3", b"$-1\r\n", b"*2\r\n", b"x"]), max_size=6).map(b"".join),
    st.integers(200, 400).map(lambda size: b"v" * size),
)
_REPLIES = st.lists(st.lists(_VALUES, max_size=5), min_size=1, max_size=5)


def _sent(replies: list[list[bytes | None]], null: bytes = b"$-1\r\n") -> bytes:
    def bulk(value: bytes | None) -> bytes:
        return null if value is None else b"$%d\r\n%s\r\n" % (len(value), value)

    return b"".join(b"*%d\r\n%s" % (len(reply), b"".join(map(bulk, reply))) for reply in replies)


def _parts(data: bytes, cuts: list[float]) -> list[bytes]:
    places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@settings(max_examples=300, deadline=None)
@given(
    replies=_REPLIES,
    cuts=st.lists(st.floats(0, 1), max_size=8),
    null=st.sampled_from([b"$-1\r\n", b"_\r\n"]),
)
def test_replies_come_out_as_they_went_in_however_they_are_cut(
    replies: list[list[bytes | None]], cuts: list[float], null: bytes
) -> None:
    parser = Replies(len(replies))
    parts = _parts(_sent(replies, null), cuts)
    assert [parser.feed(part) for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parser.read == replies


@settings(max_examples=100, deadline=None)
@given(replies=_REPLIES)
def test_replies_are_what_redis_py_reads(replies: list[list[bytes | None]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(_sent(replies))
        connection = Connection()
        connection._sock = ours
        connection._parser.on_connect(connection)
        wanted: list[Any] = [connection.read_response(disable_decoding=True) for _ in replies]
    parser = Replies(len(replies))
    assert parser.feed(_sent(replies))
    assert parser.read == wanted


@settings(max_examples=300, deadline=None)
@given(
    replies=_REPLIES,
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_damaged_replies_are_refused_or_read_to_the_number_asked_for_and_nothing_else_is_raised(
    replies: list[list[bytes | None]], damage: list[tuple[float, int]], cuts: list[float]
) -> None:
    data = bytearray(_sent(replies))
    for place, mask in damage:
        data[int(place * len(data))] ^= mask
    parser = Replies(len(replies))
    with contextlib.suppress(StoreError):
        complete = [parser.feed(part) for part in _parts(bytes(data), cuts)]
        assert complete[-1] == (len(parser.read) == len(replies))


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=60))
def test_garbage_is_no_reply(data: bytes) -> None:
    parser = Replies(50)
    with contextlib.suppress(StoreError):
        assert not parser.feed(data)


def test_bytes_after_the_last_reply_are_an_error() -> None:
    # They may as well be the last reply, and the first one that of another command.
    parser = Replies(1)
    with pytest.raises(StoreError, match="more than it was asked"):
        parser.feed(_sent([[b"a"], [b"b"]]))


@pytest.mark.parametrize("error", [b"-LOADING Redis is loading", b"-WRONGTYPE Operation", b"!5"])
def test_an_error_of_the_server_is_told(error: bytes) -> None:
    parser = Replies(2)
    parser.feed(_sent([[b"a"]]))
    with pytest.raises(StoreError, match=error[1:].decode()):
        parser.feed(error + b"\r\n")


@pytest.mark.parametrize(
    "beginning",
    [
        b"*1\r\n$16777216\r\n",
        b"*1\r\n$%d\r\n" % (MAX_VALUE_BYTES + 1),
        b"*16777216\r\n",
        b"$3\r\nabc\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"*-1\r\n",
        b"*1\r\n$ 3\r\n",
        b"*1\r\n$+3\r\n",
        b"*1\r\n$3\r\nabcd\r\n",
        b"*1\r\n*1\r\n",
        b"HTTP/1.1 400 Bad Request",
        b"*" + b"1" * 2000,
    ],
)
def test_what_cannot_become_a_reply_is_refused_without_waiting_for_more(beginning: bytes) -> None:
    with pytest.raises(StoreError, match="the store"):
        Replies(1).feed(beginning)


def test_no_more_is_kept_than_one_reply_may_have() -> None:
    parser = Replies(1)
    parser.feed(b"*1024\r\n")
    value = b"$%d\r\n%s\r\n" % (MAX_VALUE_BYTES, b"v" * MAX_VALUE_BYTES)
    for _ in range(MAX_REPLY_BYTES // len(value)):
        parser.feed(value)
    with pytest.raises(StoreError, match="replies of more than"):
        parser.feed(value)

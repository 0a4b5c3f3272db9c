from __future__ import annotations

import contextlib
import itertools
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection

from leap_predictor.errors import StoreError
from leap_predictor.history.hmget_replies import MAX_REPLY_BYTES, MAX_VALUE_BYTES, Replies, Values

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


@settings(max_examples=300)
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


@settings(max_examples=100)
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


@settings(max_examples=300)
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


def _outcome(count: int, parts: list[bytes]) -> tuple[Sequence[Values], bool]:
    """What is read of the parts, and whether they are refused."""
    parser = Replies(count)
    try:
        for part in parts:
            parser.feed(part)
    except StoreError:
        return parser.read, True
    return parser.read, False


@settings(max_examples=300)
@given(
    replies=_REPLIES,
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=2),
    cuts=st.lists(st.floats(0, 1), max_size=8),
)
def test_however_an_answer_is_cut_the_same_is_read_of_it_and_it_is_refused_or_not(
    replies: list[list[bytes | None]], damage: list[tuple[float, int]], cuts: list[float]
) -> None:
    data = bytearray(_sent(replies))
    for place, mask in damage:
        data[int(place * len(data))] ^= mask
    sent = bytes(data) + b"*"  # of a reply that nobody asked for
    whole = _outcome(len(replies), [sent])
    assert whole == _outcome(len(replies), _parts(sent, cuts))
    assert whole == _outcome(len(replies), [sent[at : at + 1] for at in range(len(sent))])


@settings(max_examples=300)
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


class _Work:
    """What a parser did: how often it called something built in, and how many bytes that looked through or copied."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _note(self, frame: object, event: str, called: Any) -> None:
        if event == "c_call":
            self.calls += 1
            searched = getattr(called, "__self__", None)
            if isinstance(searched, bytes):
                self.bytes += len(searched)


def _work(replies: list[list[bytes | None]], piece_bytes: int) -> _Work:
    sent = _sent(replies)
    work = _Work()
    parser = Replies(len(replies))
    with work.counted():
        for at in range(0, len(sent), piece_bytes):
            parser.feed(sent[at : at + piece_bytes])
    assert parser.read == replies
    return work


def test_line_ends_in_a_value_cost_nothing() -> None:
    with_few, with_many = (_work([[b"\r\n" * count]], 1 << 20).calls for count in (200, 2_000))
    assert with_few == with_many


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param(lambda count: [[b"v" * count]], id="one value"),
        pytest.param(lambda count: [[b"\r\n" * (count // 2)]], id="one value of line ends"),
        pytest.param(lambda count: [[b"value"] * (count // 4)], id="one reply of many values"),
        pytest.param(lambda count: [[None] * (count // 4)], id="one reply without values"),
        pytest.param(lambda count: [[b"value", None]] * (count // 4), id="many replies"),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 7])
def test_work_on_an_answer_in_small_pieces_is_in_proportion_to_its_size(repeated: Any, piece_bytes: int) -> None:
    half, whole = (_work(repeated(count), piece_bytes) for count in (2_000, 4_000))
    assert whole.calls <= 2.1 * half.calls
    assert whole.bytes <= 2.1 * half.bytes

"""Reads what a Redis server answers to a pipeline of HMGETs, as its bytes arrive. Pure.

Each reply is an array of values, in RESP2 (`*2 $3 abc $-1`) or RESP3, whose null is `_`. A parser of our own, because a
reply must be readable in parts under one deadline and must not be believed when it is of another shape or size than
what was asked for, and because redis-py's own, where hiredis is not installed, takes longer than the whole ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leap_predictor.errors import StoreError

Values = Sequence[bytes | None]
"""One reply: a value per field asked for, None where it is absent."""

MAX_VALUES: Final = 1024
"""In one reply."""
MAX_VALUE_BYTES: Final = 4 * 1024
"""Of one value; the longest that is ever stored is the name of a hardware type, at most 128 characters."""
MAX_REPLY_BYTES: Final = 1024 * 1024
"""Of one reply, on average. Like the others far above what is ever stored: what is longer would take the deadline, or
the memory, only to be refused."""

_END: Final = b"\r\n"
_ABSENT: Final = -1
_SIZES: Final = {b"$%d" % size: size for size in range(-1, 256)} | {b"_": _ABSENT}
"""What a value begins with, and how long the value is; longer ones are looked at more closely."""
_WIDTHS: Final = {b"*%d" % width: width for width in range(MAX_VALUES + 1)}
_USUAL_BYTES: Final = 32
"""Of a value with what it begins with."""
_LONGEST_LINE: Final = 1024
"""That is waited for; an error's."""


class Replies:
    """The replies to `count` HMGETs.

    The work is in proportion to the bytes, whatever the values hold and however small the pieces are: what was read is
    not read again, and a value is put together once.

    Args:
        count: how many are expected, ≥ 1.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._room = count * MAX_REPLY_BYTES
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._needed = 0
        """So many unread bytes complete the value that is under way, where its size is known."""
        self._width: int | None = None
        """Of the reply that is under way; None: none is."""
        self._values: list[bytes | None] = []
        self.read: list[Values] = []
        """The complete ones so far, in order."""

    def feed(self, data: bytes) -> bool:
        """Take in more bytes; whether all replies are complete.

        Raises:
            StoreError: the server answers with an error, or something else than replies to HMGET, or more than asked.
        """
        self._room -= len(data)
        if self._room < 0:
            raise StoreError(f"the store's answer must not have replies of more than {MAX_REPLY_BYTES} bytes")
        self._unread.append(data)
        self._unread_bytes += len(data)
        if self._unread_bytes < self._needed:
            return False
        self._needed = 0
        buffer = b"".join(self._unread)
        at = self._read_replies(buffer)
        self._unread = [buffer[at:]]
        self._unread_bytes = len(buffer) - at
        if len(self.read) < self._count:
            return False
        if self._unread_bytes:
            raise StoreError(f"the store answered more than it was asked: {_shown(buffer, at)}")
        return True

    def _read_replies(self, buffer: bytes) -> int:
        """Read what is complete; where the rest begins."""
        at = 0
        absent, absent_width = b"*0\r\n", 0  # a reply without a value, as this server writes it
        while len(self.read) < self._count:
            begin = at
            if self._width is None:
                if buffer.startswith(absent, at):  # most candidates have no history at most levels
                    self.read.append([None] * absent_width)
                    at += len(absent)
                    continue
                end = _end_of_line(buffer, at, b"*-!")
                if end is None:
                    return at
                width = _WIDTHS.get(buffer[at:end])
                if width is None:
                    raise _no_width(buffer, at, end)
                at = end + len(_END)
                usual = _usual_values(buffer, at, width)
                if usual is not None:
                    values, at = usual
                    self.read.append(values)
                    continue
                self._width, self._values = width, []
            at = self._read_values(buffer, at, self._width)
            if len(self._values) < self._width:
                return at
            if buffer.startswith(b"*", begin) and self._values.count(None) == self._width:
                absent, absent_width = buffer[begin:at], self._width
            self.read.append(self._values)
            self._width = None
        return at

    def _read_values(self, buffer: bytes, at: int, width: int) -> int:
        """Read what is complete of the reply under way; where the rest begins."""
        while len(self._values) < width:
            end = _end_of_line(buffer, at, b"$_")
            if end is None:
                return at
            size = _SIZES.get(buffer[at:end])
            if size is None:
                size = _size(buffer, at, end)
            begin = end + len(_END)
            if size == _ABSENT:
                self._values.append(None)
                at = begin
                continue
            end = begin + size
            if end + len(_END) > len(buffer):
                self._needed = end + len(_END) - at
                return at
            if buffer[end : end + len(_END)] != _END:
                raise _nonsense(buffer, at)
            self._values.append(buffer[begin:end])
            at = end + len(_END)
        return at


def _usual_values(buffer: bytes, at: int, width: int) -> tuple[Values, int] | None:
    """The values of a reply, and where they end, if all have come and none is absent, long or of several lines.

    Else None: they must be read one by one, which finds the same and takes longer.
    """
    part = buffer[at : at + width * _USUAL_BYTES]
    lines = part.split(_END, 2 * width)
    values = lines[1:-1:2]
    if len(values) < width or list(map(_SIZES.get, lines[:-1:2])) != list(map(len, values)):
        return None
    return values, at + len(part) - len(lines[-1])


def _end_of_line(buffer: bytes, at: int, beginnings: bytes) -> int | None:
    """Where the line ends that must begin with one of `beginnings`; None: it has not come yet.

    What can no longer become such a line is refused at once.
    """
    end = buffer.find(_END, at)
    if end >= 0:
        return end
    if at < len(buffer) and (buffer[at] not in beginnings or len(buffer) - at > _LONGEST_LINE):
        raise _nonsense(buffer, at)
    return None


def _no_width(buffer: bytes, at: int, end: int) -> StoreError:
    if buffer[at] in b"-!":
        return StoreError(f"the store cannot be read: {buffer[at + 1 : end].decode(errors='replace')}")
    return _nonsense(buffer, at)


def _size(buffer: bytes, at: int, end: int) -> int:
    """Length of a value that is none of the common ones."""
    digits = buffer[at + 1 : end]
    # Unlike int(), isdigit() takes neither blanks nor signs.
    if buffer[at : at + 1] != b"$" or not digits.isdigit() or len(digits) > 8:
        raise _nonsense(buffer, at)
    size = int(digits)
    if size > MAX_VALUE_BYTES:
        raise StoreError(f"the store's answer must have no value of more than {MAX_VALUE_BYTES} bytes, got {size}")
    return size


def _nonsense(buffer: bytes, at: int) -> StoreError:
    return StoreError(f"the store answered what is no reply to HMGET: {_shown(buffer, at)}")


def _shown(buffer: bytes, at: int) -> str:
    return repr(buffer[at : at + 64])

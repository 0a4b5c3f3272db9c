"""Reads what a Redis server answers to a pipeline of HMGETs, as its bytes arrive. Pure.

Each reply is an array of values, in RESP2 (`*2 $3 abc $-1`) or RESP3, whose null is `_`. A parser of our own, because a
reply must be readable in parts under one deadline and must not be believed when it is of another shape or size than
what was asked for, and because redis-py's own, where hiredis is not installed, takes longer than the whole ranking.
"""

from __future__ import annotations

from typing import Final

from leap_predictor.errors import StoreError

Values = list[bytes | None]
"""One reply: a value per field asked for, None where it is absent."""

MAX_VALUES: Final = 1024
"""In one reply."""
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_REPLY_BYTES: Final = 1024 * 1024
"""Both far above what is ever stored: what is longer would take the deadline, or the memory, only to be refused."""

_END: Final = b"\r\n"
_ABSENT: Final = -1
_SIZES: Final = {b"$%d" % size: size for size in range(-1, 256)} | {b"_": _ABSENT}
"""What a value begins with, and how long the value is; longer ones are looked at more closely."""
_WIDTHS: Final = {b"*%d" % width: width for width in range(MAX_VALUES + 1)}
_NOTHING: Final = [b"$-1"] * MAX_VALUES


class Replies:
    """The replies to `count` HMGETs.

    Args:
        count: how many are expected, ≥ 1.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._rest = b""
        self.read: list[Values] = []
        """The complete ones so far, in order."""

    def feed(self, data: bytes) -> bool:
        """Take in more bytes; whether all replies are complete.

        Raises:
            StoreError: the server answers with an error, or something else than replies to HMGET, or more than asked.
        """
        # A value may hold line ends too; its parts are then put together again.
        lines = (self._rest + data).split(_END)
        at = 0
        while len(self.read) < self._count:
            found = _reply(lines, at)
            if found is None:
                self._rest = _END.join(lines[at:])
                if len(self._rest) > MAX_REPLY_BYTES:
                    raise StoreError(f"the store's answer must not have replies of more than {MAX_REPLY_BYTES} bytes")
                return False
            values, at = found
            self.read.append(values)
        if lines[at:] != [b""]:
            raise StoreError(f"the store answered more than it was asked: {_shown(lines, at)}")
        return True


def _reply(lines: list[bytes], at: int) -> tuple[Values, int] | None:
    """The reply that begins with line `at`, and where the next one does; None: it is not complete yet.

    The last line is one of which the end has not come.
    """
    last = len(lines) - 1
    if at == last:
        _check_beginning(lines, at)
        return None
    width = _WIDTHS.get(lines[at])
    if width is None:
        if lines[at][:1] in (b"-", b"!"):
            raise StoreError(f"the store cannot be read: {lines[at][1:].decode(errors='replace')}")
        raise _nonsense(lines, at)
    at += 1
    if lines[at : at + width] == _NOTHING[:width]:  # most candidates have no history at most levels
        return ([None] * width, at + width) if at + width <= last else None
    values: Values = []
    for _ in range(width):
        if at == last:
            _check_beginning(lines, at)
            return None
        size = _SIZES.get(lines[at])
        if size is None:
            size = _size(lines, at)
        at += 1
        if size == _ABSENT:
            values.append(None)
            continue
        if at == last:
            return None
        value = lines[at]
        at += 1
        while len(value) < size:
            if at == last:
                return None
            value += _END + lines[at]
            at += 1
        if len(value) != size:
            raise _nonsense(lines, at - 1)
        values.append(value)
    return values, at


def _size(lines: list[bytes], at: int) -> int:
    """Length of a value that is none of the common ones."""
    digits = lines[at][1:]
    # Unlike int(), isdigit() takes neither blanks nor signs.
    if lines[at][:1] != b"$" or not digits.isdigit() or len(digits) > 8:
        raise _nonsense(lines, at)
    if int(digits) > MAX_VALUE_BYTES:
        raise StoreError(f"the store's answer must have no value of more than {MAX_VALUE_BYTES} bytes: {lines[at]!r}")
    return int(digits)


def _check_beginning(lines: list[bytes], at: int) -> None:
    """Refuse at once what can no longer become the line that a reply or a value begins with, an error's among them."""
    if lines[at] and (lines[at][:1] not in b"*$_-!" or len(lines[at]) > 1024):
        raise _nonsense(lines, at)


def _nonsense(lines: list[bytes], at: int) -> StoreError:
    return StoreError(f"the store answered what is no reply to HMGET: {_shown(lines, at)}")


def _shown(lines: list[bytes], at: int) -> str:
    return repr(_END.join(lines[at : at + 8])[:64])

"""Which delivered offset comes next: no record of a partition is skipped, whatever the consumer delivers.

Kafka clients prefetch. After a rewind, records fetched before it may still be on their way, and taking one of them in
would move history past the records in between. A cursor therefore takes the next offset and nothing else. Where the log
itself has a hole (transaction markers, compaction) the record after it looks the same as a record lost on the way: the
caller then probes the log, and tells the cursor which records follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """What to do with a delivered record."""

    TAKE = "take"
    DROP = "drop"
    """Already taken in, or not yet: it will come again in its turn."""
    GAP = "gap"
    """Records between `Cursor.next` and this one are missing: probe the log at `Cursor.next`, then judge it again."""


class Cursor:
    """Where one partition stands."""

    __slots__ = ("_known", "next")

    def __init__(self, start: int) -> None:
        self.next = start
        """The offset that comes next."""
        self._known: dict[int, int] = {}
        """Offset → first record of the log at or after it, as far as probed."""

    def take(self, offset: int) -> Verdict:
        """Judge a record at `offset`; taking it moves the cursor behind it."""
        if offset < self.next:
            return Verdict.DROP
        if offset > self.next:
            following = self._known.get(self.next)
            if following is None:
                return Verdict.GAP
            if following != offset:
                return Verdict.DROP
        self.next = offset + 1
        return Verdict.TAKE

    def learn(self, offsets: Iterable[int]) -> bool:
        """Note `offsets`, the records that the log has from `next` on; whether `next` itself is among them."""
        self._known = {}
        at = self.next
        for offset in offsets:
            self._known[at] = offset
            at = offset + 1
        return self._known.get(self.next) == self.next

    def rewind(self, to: int) -> None:
        """Begin again at `to`; the caller seeks there."""
        self.next = to
        self._known = {}

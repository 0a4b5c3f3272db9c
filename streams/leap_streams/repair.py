"""Rows and attempts of the online store mended from the archive, each only while it is what was compared.

A row is replaced, or removed, if it still has the very bytes that were compared and the store is still in the same
generation; so what a worker has written meanwhile is never overwritten with something older. The archive has everything
up to where the store was when the comparison began: a row that shows nothing later is complete in the archive, and one
that does is left to the next audit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from leap_features.conditional_write import REFUSED, WRITTEN
from leap_features.meta import attempt_key
from leap_streams.attempt_compare import AttemptDifference
from leap_streams.faults import Refused
from leap_streams.row_compare import Pair
from leap_streams.row_restore import FIELDS
from leap_streams.store import ANOTHER_STORE, Store

MENDABLE = frozenset({"different", "only_online", "only_archive"})
"""Verdicts on rows that are not a matter of time."""


class Mended(msgspec.Struct, frozen=True):
    """What was done."""

    written: dict[str, int]
    """Rows written from the archive, per view."""
    removed: dict[str, int]
    """Rows that no archived event gives, per view."""
    attempts: int
    """Attempts that are remembered rightly again, or no longer wrongly."""
    left: int
    """Rows and attempts that a worker changed meanwhile."""


class Repair:
    """Mends `store`, which is in the generation `generation`.

    Every method raises `Refused` once the store is in another generation, `Unavailable` or `Halt` as the store does.
    """

    def __init__(self, store: Store, generation: str, memory_ms: int) -> None:
        self._store = store
        self._generation = generation.encode()
        self._memory_ms = str(memory_ms).encode()
        self._written: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._attempts = 0
        self._left = 0

    def rows(self, pairs: Sequence[Pair]) -> None:
        """Mend those of `pairs` that are mendable."""
        mendable = [pair for pair in pairs if pair.verdict in MENDABLE]
        for pair, reply in zip(mendable, self._call([self._row_command(pair) for pair in mendable]), strict=True):
            if reply != WRITTEN:
                self._left += 1
            elif pair.archived is None:
                self._removed[pair.level.view] += 1
            else:
                self._written[pair.level.view] += 1

    def _row_command(self, pair: Pair) -> tuple[bytes, ...]:
        fields = FIELDS[pair.level]
        before = pair.stored or (b"",) * len(fields.all)
        after: Sequence[bytes] = ()
        if pair.archived is not None:
            flat = fields.encode(pair.archived.values, pair.archived.recorded_at_us)
            value_of = dict(zip(flat[::2], flat[1::2], strict=True))
            after = [value_of[field] for field in fields.all]
        return self._store.mend_row_command(self._generation, pair.raw_key, fields.all, before, after)

    def attempts(self, differences: Sequence[AttemptDifference]) -> None:
        """Mend what the store remembers of attempts."""
        replies = self._call(
            [
                self._store.mend_attempt_command(
                    self._generation,
                    attempt_key(self._store.project, difference.succeeded, difference.attempt_id),
                    difference.stored,
                    difference.archived,
                    self._memory_ms,
                )
                for difference in differences
            ]
        )
        mended = replies.count(WRITTEN)
        self._attempts += mended
        self._left += len(replies) - mended

    def result(self) -> Mended:
        """What has been done so far."""
        return Mended(dict(self._written), dict(self._removed), self._attempts, self._left)

    def _call(self, commands: Sequence[Sequence[bytes]]) -> list[int]:
        replies: list[int] = self._store.call(commands) if commands else []
        if REFUSED in replies:
            raise Refused(ANOTHER_STORE)
        return replies

"""Where a predictor reads history from: the online store itself, Feast's SDK, or a frozen file.

    HistoryReader    Redis in Feast's layout, directly: one round trip (the default)
    FeastReader      any online store that Feast's SDK reads
    SnapshotReader   a file that `leap snapshot` wrote: the fallback while the store is down

All three give the same `Reading` of the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leap_features.levels import Subject
from leap_predictor.history.request import Reading
from leap_predictor.manifest import View


class HistorySource(Protocol):
    """Reads history rows and what the store says about them. Safe across threads and after a fork."""

    def warm_up(self) -> None:
        """Begin what the first read needs, without waiting for it."""

    def read(self, views: Sequence[View], subjects: Sequence[Subject], *, within_s: float) -> Reading:
        """The history of `subjects` in `views`, and the store's meta.

        Raises:
            StoreTimeout: no answer within `within_s` seconds.
            StoreError: it cannot be read now; the message says why.
        """

    def close(self) -> None:
        """End threads and connections. Later reads raise `StoreError`."""

"""What one predictor has done so far, as numbers: how many calls, what came of them, how long they took.

Safe across threads. A forked child counts anew from zero: what its parent did is its parent's to report.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from typing import Final

from leap_predictor.explanation import Reason
from leap_predictor.forking import remake_in_children

BUCKETS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Upper bounds of the histogram of latency, inclusive, in milliseconds; a last bucket has no bound."""


class Counters:
    """Counts calls of `rank`."""

    def __init__(self) -> None:
        self._start_over()
        remake_in_children(self)

    def _start_over(self) -> None:
        self._lock = threading.RLock()  # a signal handler may rank in the middle of counting
        self._ranked = 0
        self._from_snapshot = 0
        self._empty: Counter[Reason] = Counter()
        self._buckets = [0] * (len(BUCKETS_MS) + 1)
        self._sum_ms = 0.0

    def after_fork_in_child(self) -> None:
        """Begin again, with a lock that no thread of the parent can have held."""
        self._start_over()

    def count(self, reason: Reason | None, took_ms: float, *, from_snapshot: bool) -> None:
        """Count one call.

        Args:
            reason: why it was answered []; None: it was ranked.
            took_ms: milliseconds.
            from_snapshot: whether a snapshot stood in for the online store.
        """
        bucket = bisect_left(BUCKETS_MS, took_ms)
        with self._lock:
            if reason is None:
                self._ranked += 1
            else:
                self._empty[reason] += 1
            self._from_snapshot += from_snapshot
            self._buckets[bucket] += 1
            self._sum_ms += took_ms

    def read(self) -> dict[str, object]:
        """`asked` = `ranked` + all of `empty` (by reason); `latency_ms` is a cumulative histogram.

        >>> counters = Counters()
        >>> counters.count(None, 1.7, from_snapshot=False)
        >>> counters.count(Reason.STORE_SLOW, 40.2, from_snapshot=False)
        >>> found = counters.read()
        >>> found["asked"], found["ranked"], found["empty"]
        (2, 1, {'store_slow': 1})
        >>> found["latency_ms"]["at_most"]["2"], found["latency_ms"]["sum"]
        (1, 41.9)
        """
        with self._lock:
            ranked, from_snapshot, empty = self._ranked, self._from_snapshot, dict(self._empty)
            buckets, sum_ms = list(self._buckets), self._sum_ms
        at_most: dict[str, int] = {}
        total = 0
        for bound, inside in zip((*(f"{bound:g}" for bound in BUCKETS_MS), "inf"), buckets, strict=True):
            total += inside
            at_most[bound] = total
        return {
            "asked": total,
            "ranked": ranked,
            "from_snapshot": from_snapshot,
            "empty": {reason.value: count for reason, count in sorted(empty.items())},
            "latency_ms": {"at_most": at_most, "sum": round(sum_ms, 3)},
        }

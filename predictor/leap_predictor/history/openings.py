"""Stores that threads are opening, for which a fork waits."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

from leap_predictor.forking import remake_in_children


class Openings:
    """The stores that threads are opening, for which a fork waits.

    A child would inherit modules that are half imported, and the import locks of threads that it does not have, and
    could never import them.

    Args:
        longest_wait_s: how long after its beginning an opening is not waited for any more; seconds.
    """

    def __init__(self, longest_wait_s: float = 30.0) -> None:
        self._longest_wait_s = longest_wait_s
        self.lock = threading.RLock()
        """Held from `before_fork` on: whoever calls that releases it after the fork."""
        self._ended = threading.Condition(self.lock)
        self._began: dict[int, float] = {}
        """By thread; monotonic seconds."""

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """For as long as this thread opens a store."""
        thread = threading.get_ident()
        with self.lock:
            self._began[thread] = time.monotonic()
        try:
            yield
        finally:
            with self.lock:
                self._began.pop(thread, None)
                self._ended.notify_all()

    def before_fork(self) -> None:
        """Wait until no other thread opens a store, and let none begin."""
        self.lock.acquire()
        while (left := self._left_s()) > 0:
            self._ended.wait(left)

    def after_fork_in_child(self) -> None:
        """Forget the threads that the child does not have."""
        self._began.clear()

    def _left_s(self) -> float:
        others = [began for thread, began in self._began.items() if thread != threading.get_ident()]
        return max(others) + self._longest_wait_s - time.monotonic() if others else 0.0


OPENINGS: Final = Openings()
"""Of this process."""
# The lock's own method releases it, before which no exception of a signal handler can come. What is registered last is
# called first: this waits before `logging` and `concurrent.futures`, which redis has imported, take locks for the fork
# that an opening may need.
os.register_at_fork(
    before=OPENINGS.before_fork, after_in_parent=OPENINGS.lock.release, after_in_child=OPENINGS.lock.release
)
remake_in_children(OPENINGS)

"""Lets a few calls of a process in at a time, so that of many at once some are in time, instead of all being late.

Rankings compete for one interpreter: of twenty begun together each would take twenty times as long.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Final

from leap_predictor.bell import Bell
from leap_predictor.forking import remake_in_children

AT_ONCE: Final = 4
"""Calls at a time: one computes while others wait for the store."""


class NotAdmitted(Exception):
    """Others were in all the time."""


class Admission:
    """Lets `at_once` callers in, in the order in which they came. Safe across threads and after a fork.

    Who waits and who is in is known by an object that the caller holds. So a place is free again however the caller
    left it, even by an exception of a signal handler in the midst of this. (A handler that itself ranks, right in one
    of the few steps under the lock, may wait there in vain, and is answered when its time is over.)

    Args:
        at_once: how many may be in, ≥ 1.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._start_over()
        remake_in_children(self)

    def _start_over(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may rank in the midst of a locked section
        self._waiting: deque[weakref.ref[Bell]] = deque()
        self._inside: weakref.WeakSet[Bell] = weakref.WeakSet()

    def after_fork_in_child(self) -> None:
        """Forget the parent's other threads."""
        self._start_over()

    @contextlib.contextmanager
    def admitted(self, until: float) -> Iterator[None]:
        """Be in, once there is a place.

        Args:
            until: how long to wait for it, as `time.monotonic` counts.

        Raises:
            NotAdmitted: there was none until then.
        """
        place = Bell()
        try:
            with self._lock:
                self._waiting.append(weakref.ref(place))
                self._let_in()
            if not place.wait(until - time.monotonic()):
                raise NotAdmitted
            yield
        finally:
            with self._lock:
                self._inside.discard(place)
                with contextlib.suppress(ValueError):
                    self._waiting.remove(weakref.ref(place))
                self._let_in()

    def _let_in(self) -> None:
        while self._waiting and len(self._inside) < self._at_once:
            place = self._waiting[0]()
            if place is not None:
                self._inside.add(place)
                place.ring()
            self._waiting.popleft()  # last: who was interrupted before that is let in by the next

"""A circuit breaker: after failures in a row the store is left alone for a while, and callers do not wait for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from leap_predictor.errors import StoreError

T = TypeVar("T")

FAILURES: Final = 3
"""Failures in a row that open the circuit: one lost packet must not, and three deadlines are still no time."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 16.0


class BreakerState(NamedTuple):
    """What a circuit breaker is up to."""

    name: str
    """`closed`: calls go through; `open`: none does; `trying`: the next one is a trial, or one is under way."""
    failures: int
    """In a row."""
    retry_in_s: float
    """Seconds until the next trial; 0 unless open."""
    last_error: str
    """Empty: the last call went well, or there was none."""


class CircuitBreaker:
    """Closed: everyone may call. Open: nobody, until the pause is over. Then one call tries; the others wait for it.

    Each failed trial doubles the pause, up to `LONGEST_PAUSE_S`; a success closes the circuit. A trial of which nothing
    was heard for that long is none: its caller was interrupted. Safe across threads.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Reentrant: a signal handler, or an object that is collected, may rank in the middle of a locked section.
        self._lock = threading.RLock()
        self._failures = 0
        self._pause_s = 0.0
        self._open_until = -math.inf
        self._trial_until = -math.inf
        self._last_error = ""

    def allow(self) -> str | None:
        """None if the caller may go ahead, and must report `succeeded` or `failed`; otherwise why it may not."""
        with self._lock:
            if self._failures < FAILURES:
                return None
            now = self._clock()
            left = self._open_until - now
            if left <= 0 and now >= self._trial_until:
                self._trial_until = now + LONGEST_PAUSE_S
                return None
            return f"not asked for another {max(left, 0.0):.1f} s after {self._failures} failures: {self._last_error}"

    def guard(self, read: Callable[[], T]) -> T:
        """What `read` returns, if the circuit lets it be called; how it went is reported.

        Raises:
            StoreError: the store is left alone; or what `read` raises.
        """
        if (closed_door := self.allow()) is not None:
            raise StoreError(f"the store is {closed_door}")
        try:
            result = read()
        except StoreError as error:
            self.failed(str(error))
            raise
        except BaseException:
            self.interrupted()
            raise
        self.succeeded()
        return result

    @property
    def state(self) -> BreakerState:
        """What it is up to."""
        with self._lock:
            if self._failures < FAILURES:
                name, left = ("closed", 0.0)
            else:
                left = max(0.0, self._open_until - self._clock())
                name = "open" if left else "trying"
            return BreakerState(name, self._failures, left, self._last_error if self._failures else "")

    def succeeded(self) -> None:
        """Report that a call went well."""
        with self._lock:
            self._failures = 0
            self._pause_s = 0.0
            self._open_until = self._trial_until = -math.inf

    def interrupted(self) -> None:
        """Report that a call ended without telling anything of the store."""
        with self._lock:
            self._trial_until = -math.inf

    def failed(self, error: str) -> None:
        """Report that a call failed, and why."""
        with self._lock:
            self._failures += 1
            self._last_error = error
            now = self._clock()
            if self._failures < FAILURES or self._open_until > now:
                return  # a straggler that was let through before the circuit opened must not prolong the pause
            self._trial_until = -math.inf
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S) if self._pause_s else FIRST_PAUSE_S
            self._open_until = now + self._pause_s

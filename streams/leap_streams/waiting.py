"""A wait for something that does not answer: what for, how often tried, and when it is due to be said again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

FIRST_SILENCE_S: Final = 5.0
LONGEST_SILENCE_S: Final = 300.0
"""A wait is said at once, again after `FIRST_SILENCE_S`, then after twice as long each time, up to this; and at once
where something else is waited for than before."""


class Waited(NamedTuple):
    """A wait that is over."""

    seconds: float
    tries: int


class Waiting:
    """Whether one is waiting, and why. Written by one thread; `why` may be read by others.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.why: str | None = None
        """Why the latest try failed; None while nothing is waited for."""
        self._what = ""
        self._clock = clock
        self._tries = 0
        self._since = self._due = 0.0
        self._silence_s = FIRST_SILENCE_S

    def failed(self, what: str, why: str) -> bool:
        """Note a try at `what` that failed; whether it is due to be said."""
        now = self._clock()
        if self.why is None:
            self._tries, self._since, self._due, self._silence_s = 0, now, now, FIRST_SILENCE_S
        self.why = why
        self._tries += 1
        if now < self._due and what == self._what:
            return False
        self._what = what
        self._due = now + self._silence_s
        self._silence_s = min(2 * self._silence_s, LONGEST_SILENCE_S)
        return True

    def succeeded(self) -> Waited | None:
        """Note a try that succeeded; the wait that it ended, if there was one."""
        if self.why is None:
            return None
        self.why = None
        return Waited(self._clock() - self._since, self._tries)

"""How far a long step has come, said every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 5.0


class Progress:
    """Counts what is done of `total` and tells `say`, at most every `EVERY_S`.

    Args:
        what: names the step and what is counted: `what: 3 of 9`.
        clock: monotonic seconds.
    """

    def __init__(
        self, say: Callable[[str], None], what: str, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.done = 0
        self._say = say
        self._what = what
        self._total = total
        self._clock = clock
        self._due = clock() + EVERY_S

    def add(self, count: int) -> None:
        """Count `count` more."""
        self.done += count
        now = self._clock()
        if now >= self._due:
            self._due = now + EVERY_S
            self._say(f"{self._what}: {self.done:,} of {self._total:,}")

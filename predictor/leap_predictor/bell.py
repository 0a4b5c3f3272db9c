"""What a thread waits for: a bell, rung by another.

Unlike `threading.Condition` and `Event` it is a single lock of the interpreter's own, and whoever waits holds no other.
So an exception of a signal handler, which may strike between any two steps of Python code, leaves nothing locked.
"""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung once, heard once."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Let `wait` return."""
        with contextlib.suppress(RuntimeError):  # it was rung before
            self._silent.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was rung, now or within these seconds; once it was heard it is silent again."""
        return self._silent.acquire(timeout=max(seconds, 0.0))

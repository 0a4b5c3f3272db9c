"""A clock for tests, that stands still until it is set."""

from __future__ import annotations


class ManualClock:
    """Seconds, as `time.monotonic` gives them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

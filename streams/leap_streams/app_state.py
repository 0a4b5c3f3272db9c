"""Whether an app of the stream lives, and whether it is at work: what it says of itself to whoever asks over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from leap_streams.waiting import Waiting

STUCK_AFTER_S: Final = 15.0
"""An event loop that has not turned for so long has lost its place in the group: above Kafka's session timeout."""

State = Literal["starting", "unassigned", "waiting", "running", "halted"]
STATES: Final[tuple[State, ...]] = ("starting", "unassigned", "waiting", "running", "halted")

NO_PARTITION: Final = "no partition assigned: more workers than partitions?"


class AppState:
    """Written by the app, read by any thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.halted: str | None = None
        """Why the app halted."""
        self.begun = False
        """Whether the consumer has been sent to where the sink is, since the latest rebalance."""
        self.assigned = 0
        """Partitions that the group has given to this process."""
        self.sink = Waiting(clock)
        """For the store or the archive's file system, and for what the broker says of the log."""
        self.topic = Waiting(clock)
        """For the broker to say that the topic is still the same."""
        self._clock = clock
        self._ticked_at: float | None = None

    def tick(self) -> None:
        """Note that the event loop turns."""
        self._ticked_at = self._clock()

    def name(self) -> State:
        """The state in one word."""
        if self.halted is not None:
            return "halted"
        if self.sink.why or self.topic.why:
            return "waiting"
        if not self.begun:
            return "starting"
        return "running" if self.assigned else "unassigned"

    def why_dead(self) -> str | None:
        """Why the process should be restarted; None if it lives. One that waits for a store or a broker lives."""
        if self.halted is not None:
            return f"halted: {self.halted}"
        if self._ticked_at is not None and (still := self._clock() - self._ticked_at) > STUCK_AFTER_S:
            return f"the event loop has stood still for {still:.0f} s"
        return None

    def why_not_ready(self) -> str | None:
        """Why the app takes nothing in; None if it does."""
        dead = self.why_dead()
        if dead is not None:
            return dead
        waits_for = self.sink.why or self.topic.why
        if waits_for:
            return f"waits: {waits_for}"
        if not self.begun:
            return "starting: has not joined the consumer group yet"
        return None if self.assigned else NO_PARTITION

"""Says in the log which records became dead letters: a few one by one, a flood of them in sums."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from leap_streams.history_writer import Rejected

log = logging.getLogger("leap.dead_letters")

PERIOD_S: Final = 10.0
SINGLY: Final = 10
"""Lines of their own in each period; what comes beyond is summed up by rule at its end."""


class RejectionLog:
    """The log of one app's dead letters.

    Args:
        app: its name.
        clock: monotonic seconds.
    """

    def __init__(self, app: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._began = clock()
        self._said = 0
        self._more: Counter[str] = Counter()
        self._ranges: dict[str, dict[int, tuple[int, int]]] = {}
        """Rule → partition → first and last offset of those in `_more`."""

    def say(self, rejected: Sequence[Rejected]) -> None:
        """Say that `rejected` are dead letters now, singly or later in a sum."""
        self.sum_up()
        for letter in rejected:
            if self._said < SINGLY:
                self._said += 1
                self._say(letter)
            else:
                self._more[letter.rule] += 1
                of_rule = self._ranges.setdefault(letter.rule, {})
                partition, offset = letter.position.partition, letter.position.offset
                first, last = of_rule.get(partition, (offset, offset))
                of_rule[partition] = min(first, offset), max(last, offset)

    def sum_up(self, *, now: bool = False) -> None:
        """Say what has not been said singly, if the period is over, or in any case."""
        if not now and self._clock() - self._began < PERIOD_S:
            return
        for rule, count in sorted(self._more.items()):
            ranges = {partition: f"{first}–{last}" for partition, (first, last) in sorted(self._ranges[rule].items())}
            log.warning(
                "%s: %d more dead letters by rule %s, within these offsets of the partitions: %s",
                self._app,
                count,
                rule,
                ranges,
                extra={"app": self._app, "rule": rule, "count": count, "offsets": ranges},
            )
        self._began, self._said = self._clock(), 0
        self._more.clear()
        self._ranges.clear()

    def _say(self, letter: Rejected) -> None:
        epoch, partition, offset = letter.position
        log.warning(
            "%s: dead letter by rule %s at epoch %d, partition %d, offset %d: %s",
            self._app,
            letter.rule,
            epoch,
            partition,
            offset,
            letter.message,
            extra={
                "app": self._app,
                "rule": letter.rule,
                "epoch": epoch,
                "partition": partition,
                "offset": offset,
                "error": letter.message,
            },
        )

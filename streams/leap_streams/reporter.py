"""What an app of the stream says of itself: in its log, in its metrics, and over HTTP."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from leap_streams.app_state import NO_PARTITION, AppState
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.history_writer import Delivery
from leap_streams.http_endpoints import HttpEndpoints
from leap_streams.metrics import Metrics
from leap_streams.waiting import Waiting

log = logging.getLogger("leap.intake")

UNASSIGNED_FOR_S: Final = 30.0
"""How long an app may be without a partition before it says so: a rebalance takes a moment."""


class Reporter:
    """The voice of one app.

    Args:
        name: the app's.
        metrics: what is counted and measured.
        listen: `host:port` for HTTP; empty: nowhere.
        clock: monotonic seconds.
    """

    def __init__(self, name: str, metrics: Metrics, listen: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = AppState(clock)
        self._name = name
        self._metrics = metrics
        self._listen = listen
        self._clock = clock
        self._endpoints: HttpEndpoints | None = None
        self._counts: Counter[str] = Counter()
        self._unassigned_since: float | None = None
        self._told_unassigned = False

    def serve(self) -> None:
        """Answer over HTTP from now on, if anywhere; harmless to repeat.

        Raises:
            ListenError: nothing can listen there.
        """
        if self._listen and self._endpoints is None:
            self._endpoints = HttpEndpoints(self._listen, self._metrics.registry, self.state)
            port = self._endpoints.port
            self._say(logging.INFO, "%s: /metrics, /health and /ready at port %d", port, port=port)

    def begins(self, offsets: Mapping[int, int]) -> None:
        """The consumer has been sent to `offsets`, by partition."""
        self.state.begun, self.state.assigned = True, len(offsets)
        self._say(logging.INFO, "%s: begins at %s", offsets, offsets=offsets)

    def waits(self, waiting: Waiting, waits_to: str, error: Unavailable, next_try_s: float) -> None:
        """A try to `waits_to` has failed."""
        self._metrics.retried(waits_to)
        if waiting.failed(waits_to, str(error)):
            self._say(
                logging.WARNING,
                "%s waits to %s (next try in %.1f s): %s",
                waits_to,
                next_try_s,
                error,
                waiting=waits_to,
                next_try_s=next_try_s,
                error=str(error),
            )

    def goes_on(self, waiting: Waiting, waits_to: str) -> None:
        """A try to `waits_to` has succeeded, perhaps after others that had not."""
        waited = waiting.succeeded()
        if waited is not None:
            self._say(
                logging.WARNING,
                "%s can %s now, after %.1f s and %d tries",
                waits_to,
                waited.seconds,
                waited.tries,
                waited_s=waited.seconds,
                tries=waited.tries,
            )

    def stored(self, deliveries: Sequence[Delivery], counts: Mapping[str, int], took_s: float) -> None:
        """A batch is stored, checkpoint included."""
        self._metrics.stored([delivery.recorded_at_us for delivery in deliveries], counts, took_s)
        self._counts.update(counts)

    def refused(self, deliveries: Sequence[Delivery], error: Refused) -> None:
        """The store has refused a batch."""
        self._metrics.refused()
        firsts = dict(sorted({delivery.partition: delivery.offset for delivery in reversed(deliveries)}.items()))
        self._say(
            logging.WARNING,
            "%s: %s; drops %d records from %s on and begins again where the store is",
            error,
            len(deliveries),
            firsts,
            offsets=firsts,
            error=str(error),
        )

    def goes(self, partition: int, offset: int, to: int) -> None:
        """A partition goes back, or forward, to where the sink is."""
        self._say(
            logging.WARNING,
            "%s: partition %d goes from offset %d to %d",
            partition,
            offset,
            to,
            partition=partition,
            offset=offset,
            to=to,
        )

    def fetches_again(self, offsets: Mapping[int, int]) -> None:
        """Partitions that stood still are fetched again from `offsets`."""
        self._say(logging.INFO, "%s: fetches again from %s", offsets, offsets=offsets)

    def stands(self, assigned: int, lag: Mapping[int, int]) -> None:
        """The event loop turns: with so many partitions, so far behind in each, where known."""
        self.state.tick()
        self.state.assigned = assigned
        self._metrics.stands(self.state.name(), assigned, lag)
        if self.state.name() != "unassigned":
            self._unassigned_since, self._told_unassigned = None, False
        elif self._unassigned_since is None:
            self._unassigned_since = self._clock()
        elif not self._told_unassigned and self._clock() - self._unassigned_since > UNASSIGNED_FOR_S:
            self._told_unassigned = True
            self._say(logging.WARNING, "%s: %s", NO_PARTITION)

    def halts(self, error: BaseException) -> None:
        """The app halts. The last line but for what comes unexpected."""
        self.state.halted = str(error) or repr(error)
        self.report()
        if isinstance(error, Halt):
            self._say(logging.CRITICAL, "%s halts: %s", error, error=str(error))
        else:
            log.critical(
                "%s halts, nothing of the batch is acknowledged", self._name, exc_info=error, extra={"app": self._name}
            )

    def report(self) -> None:
        """Say what has been counted since the last time."""
        counts = {name: count for name, count in sorted(self._counts.items()) if count}
        self._counts.clear()
        if counts:
            self._say(logging.INFO, "%s: %s", ", ".join(f"{name} {count}" for name, count in counts.items()), **counts)

    def close(self) -> None:
        """Say what is left to say, and answer no longer."""
        self.report()
        if self._endpoints is not None:
            self._endpoints.close()

    def _say(self, level: int, template: str, *values: object, **fields: Any) -> None:
        """Log a line that begins with the app's name; `fields` are what it says in JSON beside its message."""
        log.log(level, template, self._name, *values, extra={"app": self._name, **fields})

"""Reads history from the online store within the caller's deadline, and leaves a store alone that keeps failing.

After a fork the child has no right to use the parent's connections; it makes its own.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_features import redis_address
from leap_features.levels import Subject
from leap_features.redis_connection import connector
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.forking import remake_in_children
from leap_predictor.history.circuit_breaker import BreakerState, CircuitBreaker
from leap_predictor.history.request import HistoryRequest, Reading
from leap_predictor.history.store_connections import StoreConnections
from leap_predictor.manifest import View

CONNECT_TIMEOUT_S: Final = 2.0
"""For connecting and for each step of the handshake. Longer than a caller waits; the connection serves the next one."""


class HistoryReader:
    """Reads history rows and meta in one round trip. Safe across threads and after a fork.

    Args:
        redis_url: in one of the forms of `redis_address`.
        project: Feast project whose rows are read.
        clock: monotonic seconds, for the circuit breaker.

    Raises:
        ValueError: `redis_url` is in none of them.
    """

    def __init__(self, redis_url: str, project: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._project = project
        self._clock = clock
        self._closed = False
        # No retries: redis-py's own would take seconds, and the circuit breaker does better.
        self._new_connection = connector(
            redis_address.parse(redis_url),
            retry=Retry(NoBackoff(), 0),
            socket_timeout=CONNECT_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            decode_responses=False,
        )
        self._start_over()
        remake_in_children(self)

    def _start_over(self) -> None:
        self._breaker = CircuitBreaker(self._clock)
        self._connections = StoreConnections(self._new_connection)
        self._finalizer = weakref.finalize(self, self._connections.stop)

    def after_fork_in_child(self) -> None:
        """Forget the parent's connections and locks, which another thread of the parent may have held."""
        self._finalizer.detach()
        self._connections.forget()
        self._start_over()

    def warm_up(self) -> None:
        """Begin to connect, without waiting, so that the first read finds a connection."""
        if not self._closed:
            with contextlib.suppress(StoreError):  # the first read says so, if it still is so
                self._connections.begin()

    def read(self, views: Sequence[View], subjects: Sequence[Subject], *, within_s: float) -> Reading:
        """The history of `subjects` in `views`, and the store's meta.

        Raises:
            StoreTimeout: no answer within `within_s` seconds.
            StoreError: the store is down, refuses, answers nonsense, or is left alone after failures; or the reader is
                closed.
        """
        if self._closed:
            raise StoreError("the reader is closed")
        until = time.monotonic() + within_s
        asked = HistoryRequest(self._project, views, subjects)
        if time.monotonic() >= until:  # the store is not to blame
            raise StoreTimeout("no time was left to ask the store")
        replies = self._breaker.guard(
            lambda: self._connections.exchange(asked.packed, len(asked.commands), until - time.monotonic())
        )
        return asked.decode(replies)

    @property
    def breaker(self) -> BreakerState:
        """Whether the store is asked at all, and if not, since which error and until when."""
        return self._breaker.state

    def close(self) -> None:
        """End the connections. Later reads raise `StoreError`."""
        self._closed = True
        self._finalizer()

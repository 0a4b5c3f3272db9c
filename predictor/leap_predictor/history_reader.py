"""Reads history from the online store off the caller's thread, within the caller's deadline.

redis-py's timeouts are per read and name resolution has none, so a slow or dripping server can hold a read far longer
than any of them. Therefore one worker thread owns the one connection, and callers wait for it no longer than they want
to. Whoever stops waiting abandons its request: the connection is shut down, so that a late reply can never be taken for
the answer to the next request (redis/redis-py#2624).

After a fork the child has neither the parent's thread nor the right to use its connection; both are made anew.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_features import redis_address
from leap_features.levels import Subject
from leap_features.redis_connection import connector
from leap_predictor.circuit_breaker import CircuitBreaker
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history_request import Command, HistoryRequest, Reading
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
        _READERS.add(self)

    def _start_over(self) -> None:
        self._breaker = CircuitBreaker(self._clock)
        self._channel = _Channel(self._new_connection)
        self._finalizer = weakref.finalize(self, self._channel.stop)

    def after_fork_in_child(self) -> None:
        """Forget the parent's thread, connection and locks, which another thread of the parent may have held."""
        self._finalizer.detach()
        self._channel.forget()
        self._start_over()

    def warm_up(self) -> None:
        """Begin to connect, without waiting, so that the first read finds a connection."""
        if not self._closed:
            self._channel.submit(_Request([]))

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
        breaker = self._breaker
        if (closed_door := breaker.allow()) is not None:
            raise StoreError(f"the store is {closed_door}")
        try:
            replies = self._channel.exchange(asked.commands, until - time.monotonic())
        except StoreError as error:
            breaker.failed(str(error))
            raise
        except BaseException:
            breaker.failed("a read was interrupted")
            raise
        breaker.succeeded()
        return asked.decode(replies)

    def close(self) -> None:
        """End the thread and the connection. Later reads raise `StoreError`."""
        self._closed = True
        self._finalizer()


class _Request:
    """One pipeline on its way; an empty one only connects."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.done = threading.Event()
        self.abandoned = False
        self.replies: list[Any] = []
        self.error: StoreError | None = None


class _Channel:
    """One thread with one connection, serving requests in order.

    Interrupting a read needs a descriptor of one's own: redis-py may close the connection's at any time, and a number
    that another thread has just been given must not be shut down.
    """

    def __init__(self, new_connection: Callable[[], Any]) -> None:
        self._new_connection = new_connection
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        # Reentrant, since a reader may be collected, and stopped, in the middle of its own thread's locked section.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._connection: Any = None
        self._interrupt: socket.socket | None = None
        self._on_the_wire: _Request | None = None

    def submit(self, request: _Request) -> None:
        with self._lock:
            if self._stopped:
                raise StoreError("the reader is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="leap-history", daemon=True)
                self._thread.start()
        self._requests.put(request)

    def exchange(self, commands: Sequence[Command], within_s: float) -> list[Any]:
        request = _Request(commands)
        answered = False
        try:
            self.submit(request)
            answered = request.done.wait(max(within_s, 0.0))
        finally:
            if not answered:  # out of time, or interrupted
                self._abandon(request)
        if not answered:
            raise StoreTimeout(f"the store gave no answer within {within_s * 1e3:.0f} ms")
        if request.error is not None:
            raise request.error
        return request.replies

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._shut_down()
            thread = self._thread
        self._requests.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)  # longer only while it resolves a name; it ends by itself afterwards

    def _abandon(self, request: _Request) -> None:
        with self._lock:
            request.abandoned = True
            if self._on_the_wire is request:
                self._shut_down()

    def _shut_down(self) -> None:
        """Wake the worker out of a read; the lock must be held."""
        if self._interrupt is not None:
            with contextlib.suppress(OSError):
                self._interrupt.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Close this process's copies of a parent's descriptors, which leaves the parent's connection alone."""
        with contextlib.suppress(Exception):  # the parent's thread may have been anywhere
            if self._interrupt is not None:
                self._interrupt.close()
            if self._connection is not None:
                self._connection.disconnect()

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._answer(request)
            except redis.TimeoutError as error:
                request.error = StoreTimeout(f"the store is slow: {error}")
            except (redis.RedisError, OSError) as error:
                request.error = StoreError(f"the store cannot be read: {error}")
            except Exception as error:  # the thread must live on; a parser that lost its socket raises anything
                request.error = StoreError(f"the store cannot be read: {type(error).__name__}: {error}")
            if request.error is not None:
                self._drop()
            request.done.set()
        self._drop()

    def _answer(self, request: _Request) -> None:
        connection = self._connected()
        if not self._put_on_the_wire(request):
            return
        try:
            packed = b"".join(connection.pack_commands(request.commands))
            connection.send_packed_command([packed], check_health=False)
            request.replies = [connection.read_response(disable_decoding=True) for _ in request.commands]
        finally:
            if self._took_too_long(request):
                self._drop()

    def _took_too_long(self, request: _Request) -> bool:
        with self._lock:
            self._on_the_wire = None
            return request.abandoned

    def _put_on_the_wire(self, request: _Request) -> bool:
        with self._lock:
            # The caller may have given up while others were served or the connection was made.
            if request.abandoned or self._stopped or not request.commands:
                return False
            self._on_the_wire = request
            return True

    def _connected(self) -> Any:
        connection = self._connection
        if connection is not None:
            try:
                stale = connection.can_read(timeout=0)  # nothing was asked, so data or the end of it is a fault
            except redis.RedisError:
                stale = True
            if not stale:
                return connection
            self._drop()
        connection = self._new_connection()
        connection.connect()
        with self._lock:
            self._connection = connection
            self._interrupt = socket.socket(fileno=os.dup(connection._sock.fileno()))
        return connection

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            interrupt.close()
        if connection is not None:
            connection.disconnect()


_READERS: Final[weakref.WeakSet[HistoryReader]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for reader in list(_READERS):
        reader.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)

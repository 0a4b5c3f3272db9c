"""A reader's connections to Redis: made off the caller's thread, used on it, under one deadline.

redis-py's timeouts are per read and name resolution has none, so a slow or dripping server can hold a caller far longer
than any of them. Therefore connecting, with name resolution and handshake, is redis-py's part and happens in a thread
of its own, for which callers wait no longer than they want to; what it leaves behind serves the next one. An exchange
on a connection is the caller's own: it sends, and waits for every byte no longer than what is left of its time. No
other thread takes part, which would have to be woken, and the caller again, by a machine with other things to do.

A connection is lent to one caller and kept only if its exchange ended well. Whatever else happens to the caller, an
exception of a signal handler's included, it is gone, so that a late reply can never be taken for the answer to the next
request (redis/redis-py#2624), and there is no lock that could stay held.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

import redis

from leap_predictor.bell import Bell
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.hmget_replies import Replies, Values

MOST_IDLE: Final = 4
"""Connections that are kept while nobody uses them."""

_CHUNK: Final = 65536


class StoreConnections:
    """Connects when it must, and exchanges pipelines of HMGETs, each on a connection of its own. Safe across threads.

    After a fork the child must `forget` them and make others.

    Args:
        new_connection: makes a connection of redis-py that is not connected yet.
    """

    def __init__(self, new_connection: Callable[[], Any]) -> None:
        self._new_connection = new_connection
        # Reentrant, since a reader may be collected, and stopped, in the middle of its own locked section.
        self._lock = threading.RLock()
        self._waiting: weakref.WeakSet[Bell] = weakref.WeakSet()
        """Rung at every change."""
        self._idle: list[_Line] = []
        self._lent: weakref.WeakSet[_Line] = weakref.WeakSet()
        """Weakly: one that was lost on the way is closed by being collected."""
        self._attempt: _Attempt | None = None
        self._not_connected: StoreError | None = None
        """Why the last attempt to connect failed, which may have been long after those who asked for it were gone."""
        self._stopped = False

    def begin(self) -> None:
        """Begin to connect, without waiting, unless that is under way or done.

        Raises:
            StoreError: stopped, or this process may have no more threads.
        """
        with self._lock:
            if not self._idle and not self._lent:
                self._under_way()

    def exchange(self, packed: bytes, count: int, within_s: float) -> list[Values]:
        """Send `packed`, a pipeline of `count` HMGETs, and return the replies.

        Raises:
            StoreTimeout: they have not come within `within_s` seconds.
            StoreError: the store is down, refuses or answers nonsense; or this is stopped.
        """
        until = time.monotonic() + within_s
        try:
            line = self._borrowed(until)
            answered = False
            try:
                replies = line.exchange(packed, count, until)
                answered = True
            finally:
                self._give_back(line, answered)
            return replies
        except _OutOfTime:
            before = "" if self._not_connected is None else f"; when connecting last: {self._not_connected}"
            raise StoreTimeout(f"the store gave no answer within {within_s * 1e3:.0f} ms{before}") from None

    def stop(self) -> None:
        """Close all; whoever waits on one is woken, and gets a `StoreError`."""
        with self._lock:
            self._stopped = True
            while self._idle:
                self._idle.pop().close()
            for line in self._lent:
                line.shut_down()  # who has it closes it
            self._ring()

    def forget(self) -> None:
        """Close this process's copies of a parent's connections, which leaves those alone."""
        for line in [*self._idle, *self._lent]:  # without the lock, which another thread of the parent may have held
            line.close()

    def _borrowed(self, until: float) -> _Line:
        attempt: _Attempt | None = None
        pid = os.getpid()  # of a child that was not told to `forget`, for whatever reason
        while True:
            bell = Bell()
            with self._lock:
                if self._stopped:
                    raise StoreError("the reader is closed")
                _left(until)
                while self._idle:
                    line = self._idle.pop()
                    if line.pid == pid and not line.is_stale():
                        self._lent.add(line)
                        return line
                    line.close()
                if attempt is not None and attempt.error is not None:
                    raise attempt.error
                if attempt is None or attempt.ended:  # where it ended well, another caller was faster
                    attempt = self._under_way()
                self._waiting.add(bell)
            bell.wait(_left(until))

    def _give_back(self, line: _Line, answered: bool) -> None:
        # Closed under the lock: `stop` must not shut down a descriptor that has become another file's.
        with self._lock:
            self._lent.discard(line)
            if answered and not self._stopped and len(self._idle) < MOST_IDLE:
                self._idle.append(line)
                self._ring()
            else:
                line.close()

    def _under_way(self) -> _Attempt:
        """The attempt to connect, begun now if there is none; the lock must be held."""
        if self._stopped:
            raise StoreError("the reader is closed")
        if self._attempt is None:
            attempt = _Attempt()
            thread = threading.Thread(target=self._connect, args=(attempt,), name="leap-connect", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the limit of threads, or an interpreter that ends
                raise StoreError(f"the store cannot be connected to: {error}") from error
            self._attempt = attempt
        return self._attempt

    def _connect(self, attempt: _Attempt) -> None:
        line, attempt.error = _connected_line(self._new_connection)
        with self._lock:
            attempt.ended = True
            self._attempt = None
            self._not_connected = attempt.error
            if line is not None:
                self._give_back(line, answered=True)
            self._ring()

    def _ring(self) -> None:
        for bell in self._waiting:
            bell.ring()
        self._waiting.clear()


class _OutOfTime(Exception):
    pass


class _Attempt:
    """One attempt to connect; everyone who waits for it learns how it ended."""

    def __init__(self) -> None:
        self.ended = False
        self.error: StoreError | None = None


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise _OutOfTime
    return left


def _connected_line(new_connection: Callable[[], Any]) -> tuple[_Line | None, StoreError | None]:
    try:
        connection = new_connection()
        connection.connect()
        return _Line(connection), None
    except redis.TimeoutError as error:
        return None, StoreTimeout(f"the store is slow: {error}")
    except Exception as error:  # besides redis-py's own whatever a resolver or a parser of garbage raises
        said = str(error) if isinstance(error, redis.RedisError | OSError) else f"{type(error).__name__}: {error}"
        return None, StoreError(f"the store cannot be read: {said}")


class _Line:
    """A connection after its handshake, on which nothing is asked."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection  # it closes its socket when it is collected
        self._socket: socket.socket = connection._sock
        self.pid = os.getpid()

    def is_stale(self) -> bool:
        """Whether something came though nothing was asked: data, or the end."""
        try:
            self._socket.settimeout(0.0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            pass
        return True

    def exchange(self, packed: bytes, count: int, until: float) -> list[Values]:
        waiting = memoryview(packed)
        while waiting:
            _left(until)
            waiting = waiting[self._within(until, self._socket.send, waiting) :]
        replies = Replies(count)
        in_time = True
        while in_time:
            # A last look once no time is left: the answer may be there, and this thread was kept from taking it.
            in_time = time.monotonic() < until
            data: bytes = self._within(until, self._socket.recv, _CHUNK)
            if not data:
                raise StoreError("the store cannot be read: it closed the connection")
            if replies.feed(data):
                return replies.read
        raise _OutOfTime

    def _within(self, until: float, call: Callable[[Any], Any], argument: object) -> Any:
        try:
            self._socket.settimeout(max(until - time.monotonic(), 0.0))
            return call(argument)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            if time.monotonic() < until:  # another's, of an alarm of the launcher, say
                raise
            raise _OutOfTime from None
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}") from error

    def shut_down(self) -> None:
        """Wake who waits for it, without closing it; TLS or not, as the socket that it is."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.disconnect()

"""The one connection of a reader to Redis: made off the caller's thread, used on it, under one deadline.

redis-py's timeouts are per read and name resolution has none, so a slow or dripping server can hold a caller far longer
than any of them. Therefore connecting, with name resolution and handshake, is redis-py's part and happens in a thread
of its own, for which callers wait no longer than they want to; what it leaves behind serves the next one. An exchange
on the connection is the caller's own: it sends, and waits for every byte no longer than what is left of its time. No
other thread takes part, which would have to be woken, and the caller again, by a machine with other things to do.

A connection whose exchange did not end well is closed, so that a late reply can never be taken for the answer to the
next request (redis/redis-py#2624).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import redis

from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.hmget_replies import Replies, Values

_CHUNK: Final = 65536


class StoreConnection:
    """Connects when it must, and exchanges pipelines of HMGETs, one at a time. Safe across threads.

    After a fork the child must `forget` it and make one of its own.

    Args:
        new_connection: makes a connection of redis-py that is not connected yet.
    """

    def __init__(self, new_connection: Callable[[], Any]) -> None:
        self._new_connection = new_connection
        self._turn = threading.Lock()
        """Who holds it may use the connection."""
        # Of a reentrant lock, since a reader may be collected, and stopped, in the middle of its own locked section.
        self._changed = threading.Condition()
        self._line: _Line | None = None
        self._attempt: _Attempt | None = None
        self._stopped = False

    def begin(self) -> None:
        """Begin to connect, without waiting, unless that is under way or done.

        Raises:
            StoreError: stopped, or this process may have no more threads.
        """
        with self._changed:
            if self._line is None:
                self._under_way()

    def exchange(self, packed: bytes, count: int, within_s: float) -> list[Values]:
        """Send `packed`, a pipeline of `count` HMGETs, and return the replies.

        Raises:
            StoreTimeout: they have not come within `within_s` seconds.
            StoreError: the store is down, refuses or answers nonsense; or this is stopped.
        """
        until = time.monotonic() + within_s
        try:
            if not self._turn.acquire(timeout=max(within_s, 0.0)):
                raise _OutOfTime
            try:
                return self._answered(packed, count, until)
            finally:
                self._turn.release()
        except (_OutOfTime, TimeoutError):
            raise StoreTimeout(f"the store gave no answer within {within_s * 1e3:.0f} ms") from None
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}") from error

    def stop(self) -> None:
        """Close the connection; whoever uses it is woken, and gets a `StoreError`."""
        with self._changed:
            self._stopped = True
            if self._line is not None:
                self._line.shut_down()
            self._changed.notify_all()
        if self._turn.acquire(blocking=False):  # else who has it closes the connection
            try:
                self._drop()
            finally:
                self._turn.release()

    def forget(self) -> None:
        """Close this process's copy of a parent's connection, which leaves that alone."""
        line = self._line  # without the lock, which another thread of the parent may have held
        if line is not None:
            line.close()

    def _answered(self, packed: bytes, count: int, until: float) -> list[Values]:
        line = self._connected(until)
        answered = False
        try:
            replies = line.exchange(packed, count, until)
            answered = True
        finally:
            if not answered or self._stopped:
                self._drop()
        return replies

    def _connected(self, until: float) -> _Line:
        line = self._line
        if line is not None:
            if not line.is_stale():
                return line
            self._drop()
        with self._changed:
            attempt = self._under_way() if self._line is None else None
            while self._line is None:
                if attempt is not None and attempt.error is not None:
                    raise attempt.error
                if self._stopped:
                    raise StoreError("the reader is closed")
                self._changed.wait(_left(until))
            return self._line

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
        line, error = _connected_line(self._new_connection)
        with self._changed:
            attempt.error = error
            self._attempt = None
            if line is not None and not self._stopped:
                self._line = line
                line = None
            self._changed.notify_all()
        if line is not None:
            line.close()

    def _drop(self) -> None:
        # Closed under the lock: `stop` must not shut down a descriptor that has become another file's.
        with self._changed:
            line, self._line = self._line, None
            if line is not None:
                line.close()


class _OutOfTime(Exception):
    pass


class _Attempt:
    """One attempt to connect; everyone who waits for it learns how it ended."""

    def __init__(self) -> None:
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
            self._socket.settimeout(_left(until))
            waiting = waiting[self._socket.send(waiting) :]
        replies = Replies(count)
        complete = False
        while not complete:
            self._socket.settimeout(_left(until))
            data = self._socket.recv(_CHUNK)
            if not data:
                raise StoreError("the store cannot be read: it closed the connection")
            complete = replies.feed(data)
        return replies.read

    def shut_down(self) -> None:
        """Wake who waits for it, without closing it; TLS or not, as the socket that it is."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.disconnect()

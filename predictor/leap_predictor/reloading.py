"""Values read from files that are replaced while the process runs: the current bundle, the policy.

A background thread looks for changes, so that no caller ever waits for a file system. A new value that cannot be read
does not displace the one that serves; the error is kept beside it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from leap_predictor.errors import PredictorError
from leap_predictor.forking import remake_in_children

T = TypeVar("T")


class Loaded(NamedTuple, Generic[T]):
    """What is served, and what went wrong since."""

    value: T | None
    """None: nothing could ever be read."""
    stamp: Hashable
    """Of `value`; None: there is none."""
    error: PredictorError | None
    """Why the newest version is not served; None: it is."""


class Reloading(Generic[T]):
    """One value that is read anew when its stamp changes.

    Args:
        stamp: tells versions apart, cheaply.
        load: reads the version of a stamp.

    Both may raise `PredictorError`; anything else is a fault of the program and is kept as one.
    """

    def __init__(self, stamp: Callable[[], Hashable], load: Callable[[Any], T]) -> None:
        self._stamp = stamp
        self._load = load
        self._now: Loaded[T] = Loaded(None, None, None)

    @property
    def now(self) -> Loaded[T]:
        """What was last read."""
        return self._now

    def refresh(self) -> None:
        """Read again if there is another version; never raises."""
        before = self._now
        try:
            stamp = self._stamp()
            if before.stamp != stamp or before.value is None:
                self._now = Loaded(self._load(stamp), stamp, None)
            elif before.error is not None:
                self._now = Loaded(before.value, before.stamp, None)
        except PredictorError as error:
            self._now = Loaded(before.value, before.stamp, error)
        except Exception as error:  # a launcher must not fall over a fault of ours
            self._now = Loaded(before.value, before.stamp, PredictorError(f"{type(error).__name__}: {error}"))


class Reloader:
    """A thread that refreshes some values every `every_s` seconds; it is started anew after a fork.

    Args:
        at_once: the thread begins with a refresh, for values that take too long to read before.
    """

    def __init__(self, values: Sequence[Reloading[Any]], every_s: float, *, at_once: bool = False) -> None:
        self._values = values
        self._every_s = every_s
        self._at_once = at_once
        self._start_over()
        remake_in_children(self)

    def _start_over(self) -> None:
        self._lock = threading.RLock()  # a signal handler may rank while the thread is started
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._finalizer = weakref.finalize(self, self._stop.set)

    def after_fork_in_child(self) -> None:
        """Forget the parent's thread."""
        self._finalizer.detach()
        stopped = self._stop.is_set()
        self._start_over()
        if stopped:
            self._stop.set()

    def ensure_running(self) -> None:
        """Start the thread if this process has none."""
        if self._thread is not None or self._stop.is_set():
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(
                    target=_poll,
                    args=(self._values, self._stop, self._every_s, self._at_once),
                    name="leap-reload",
                    daemon=True,
                )
                # Where there can be no more threads, or the interpreter ends, what was read last goes on serving.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def close(self) -> None:
        """End the thread."""
        self._finalizer()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)  # longer only while it reads a bundle; it ends by itself afterwards


def _poll(values: Sequence[Reloading[Any]], stop: threading.Event, every_s: float, at_once: bool) -> None:
    while not stop.wait(0.0 if at_once else every_s):
        at_once = False
        for value in values:
            value.refresh()

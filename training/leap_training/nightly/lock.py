"""The lock of the nightly run: one at a time in a state directory, released by the system however a run ends."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

LOCK: Final = "lock"


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock."""

    pid: int
    host: str
    started: datetime
    """Aware."""


class Locked(RuntimeError):
    """Another run is at work; the message says which."""


@contextmanager
def alone(directory: Path, now: datetime) -> Iterator[None]:
    """Hold the lock of `directory`; the file stays, what counts is the system's lock on it.

    Args:
        directory: the state directory; it is there.
        now: aware time, for whoever finds the lock held.

    Raises:
        Locked: another run holds it.
        OSError: the file system has no locks.
    """
    path = directory / LOCK
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(
                f"another nightly run is at work in {directory}: {_holder(path)}; wait for it to end"
            ) from None
        file.truncate(0)
        file.write(msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), now)) + b"\n")
        file.flush()
        yield


def _holder(path: Path) -> str:
    """What the lock file says; a run that has just taken the lock may not have written it yet."""
    try:
        held = msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return "it has just begun"
    return f"process {held.pid} on {held.host}, started {held.started:%Y-%m-%d %H:%M:%S} UTC"

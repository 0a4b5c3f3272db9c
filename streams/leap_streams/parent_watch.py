"""A program of its own: stops one process when whoever holds this program's standard input is gone.

An embedded server is a child of the process that tries it out. When that process is killed outright it cannot stop its
child; this program, at the other end of a pipe that the kernel closes in every case, can. It is run as a file by an
isolated interpreter, so it imports the standard library alone.

Usage: python parent_watch.py PID < PIPE
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys


def watch(pid: int, pipe: int) -> None:
    """Block until `pipe` is closed at its other end, then ask the process `pid` to stop (SIGTERM).

    Ends without a signal where the process is gone first. On Linux the process is held by a descriptor, so another that
    takes over its number is never signalled; other systems have none.
    """
    if not hasattr(os, "pidfd_open"):
        while os.read(pipe, 1):
            pass
        os.kill(pid, signal.SIGTERM)
        return
    process = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([process, pipe], [], [])
        if process in ready:
            return
        if not os.read(pipe, 1):
            signal.pidfd_send_signal(process, signal.SIGTERM)
            return


if __name__ == "__main__":
    with contextlib.suppress(ProcessLookupError):  # gone already, which is what was wanted
        watch(int(sys.argv[1]), sys.stdin.fileno())

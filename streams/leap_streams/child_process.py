"""A server as a child process, which stops whatever becomes of its parent."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """Return a TCP port on the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class ChildProcess:
    """A server as a child process that also stops when this process is killed outright.

    It runs in a session of its own: Ctrl-C in the terminal reaches this process alone, which then stops it in order.
    """

    def __init__(self, command: list[str], *, directory: Path, log: Path) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        watcher = Path(__file__).with_name("parent_watch.py")
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", str(watcher), str(self.pid)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def running(self) -> bool:
        """Return whether the server still runs."""
        return self._process.poll() is None

    def stop(self, timeout_s: float) -> None:
        """Stop the server with SIGTERM, after `timeout_s` seconds with SIGKILL, and wait for its end."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Stop the server with SIGKILL, as a crash would, and wait for its end."""
        self._process.kill()
        self._reap()

    def _reap(self) -> None:
        self._process.wait()
        self._watcher.kill()
        self._watcher.wait()
        if self._watcher.stdin is not None:
            self._watcher.stdin.close()

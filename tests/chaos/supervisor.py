"""Starts the product's processes, and starts them again whenever they end, as systemd would on a production machine."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from leap_streams.run import EXIT_HALTED
from stream_process import LeapProcess

RESTART_S: Final = 1.0
"""Pause before a process that ended is started again."""
LOOK_EVERY_S: Final = 0.1
KILLED: Final = -9
STOP_S: Final = 90.0


class Unit:
    """One process that is to run."""

    def __init__(self, name: str, arguments: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.halted = False
        self._arguments = arguments
        self._env = env
        self._process: LeapProcess | None = None
        self._ended_at: float | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def last_words(self) -> str:
        """The last line of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def start(self) -> None:
        self._process, self._ended_at, self.halted = LeapProcess(self._arguments, self._env, self.log), None, False

    def kill(self) -> bool:
        """kill −9; whether there was something to kill."""
        if self._process is None or not self._process.running:
            return False
        self._process.kill()
        return True

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        return self._process.terminate(STOP_S) if self._process is not None else 0

    def ended(self) -> int | None:
        """The exit status, the first time that it is asked for after the process has ended."""
        if self._process is None or self._process.running or self._ended_at is not None:
            return None
        self._ended_at = time.monotonic()
        return self._process.wait()

    @property
    def due(self) -> bool:
        """Whether it is to be started again now."""
        return self._ended_at is not None and not self.halted and time.monotonic() >= self._ended_at + RESTART_S


class Supervisor:
    """Looks after units in a thread of its own, until it is left.

    One that ended with the exit status of a halt is not started again before `mend`: a person must have done what its
    last words say.

    Args:
        say: is told, in a line, of every end that nobody here brought about.
    """

    def __init__(self, env: Mapping[str, str], directory: Path, say: Callable[[str], None]) -> None:
        self.crashes: list[str] = []
        """Units that ended by themselves and did not halt, each with its exit status and last words."""
        self._env = env
        self._directory = directory
        self._say = say
        self._units: dict[str, Unit] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="supervisor")

    def start(self, name: str, command: str) -> None:
        """`leap COMMAND` from now on."""
        with self._lock:
            unit = Unit(name, [command], self._env, self._directory / f"{name}.log")
            self._units[name] = unit
            unit.start()

    def kill(self, name: str) -> bool:
        """kill −9, as a crash would; it is started again. Whether it ran."""
        with self._lock:
            return self._units[name].kill()

    def stop(self, name: str) -> int:
        """SIGTERM, and it is not started again; the exit status, that of a kill if it did not end in time."""
        with self._lock:
            unit = self._units.pop(name)
        try:
            return unit.terminate()
        except subprocess.TimeoutExpired:
            unit.kill()
            return KILLED

    def remove(self, name: str) -> None:
        """kill −9, and it is not started again."""
        with self._lock:
            self._units.pop(name).kill()

    def names(self, prefix: str = "") -> list[str]:
        """The units that are to run."""
        with self._lock:
            return sorted(name for name in self._units if name.startswith(prefix))

    def halted(self) -> dict[str, str]:
        """The units that halted, with their last words."""
        with self._lock:
            return {name: unit.last_words for name, unit in self._units.items() if unit.halted}

    def mend(self) -> None:
        """Start what halted."""
        with self._lock:
            for unit in self._units.values():
                if unit.halted:
                    unit.start()

    def tails(self, characters: int = 2500) -> str:
        """The ends of all logs."""
        logs = sorted(self._directory.glob("*.log"))
        return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-characters:]}" for log in logs)

    def _look_after(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            with self._lock:
                for unit in self._units.values():
                    status = unit.ended()
                    if status is not None and status != KILLED:
                        unit.halted = status == EXIT_HALTED
                        end = f"{unit.name} ended with status {status}: {unit.last_words}"
                        self._say(end)
                        if not unit.halted:
                            self.crashes.append(end)
                    if unit.due:
                        unit.start()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        for unit in self._units.values():
            unit.kill()

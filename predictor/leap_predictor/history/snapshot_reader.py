"""Reads history from a snapshot, the file that `leap snapshot` writes: a fallback while the online store is down.

The file is opened and checked in the background, and again whenever another takes its place; a damaged one does not
displace the one that serves. What is read needs no connection, no thread and a few microseconds per key.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from leap_features.levels import Subject
from leap_predictor.errors import StoreError
from leap_predictor.history.request import Reading
from leap_predictor.history.snapshot_file import SnapshotFile, SnapshotRefused, stamp_of
from leap_predictor.manifest import View
from leap_predictor.reloading import Reloader, Reloading

RELOAD_EVERY_S: Final = 2.0
"""How often the file is looked at."""


class SnapshotReader:
    """Reads history rows and meta from a snapshot file. Safe across threads and after a fork.

    A file that is not there yet is no error here: reads fail until it is.

    Args:
        path: of the file. Keep it on a local disk: what is no longer in memory is read while the caller waits.
        project: Feast project that it must be of.
        reload_every_s: seconds between looks at the file.
    """

    def __init__(self, path: str | Path, project: str, *, reload_every_s: float = RELOAD_EVERY_S) -> None:
        self._path = Path(path)
        source = _Source(self._path, project)
        self._served: Reloading[SnapshotFile] = Reloading(source.stamp, source.load)
        self._reloader = Reloader((self._served,), reload_every_s, at_once=True)
        self._closed = False

    def warm_up(self) -> None:
        """Begin to check the file, in the background."""
        if not self._closed:
            self._reloader.ensure_running()

    def refresh(self) -> None:
        """Look for another file now, in the caller's thread, which takes as long as reading it; never raises."""
        self._served.refresh()

    def read(self, views: Sequence[View], subjects: Sequence[Subject], *, within_s: float) -> Reading:
        """The history of `subjects` in `views` as of the snapshot, and the meta of the store that it was made from.

        Raises:
            StoreTimeout: not done within `within_s` seconds.
            StoreError: there is no usable snapshot, it is not checked yet, or it lacks these views; or the reader is
                closed.
        """
        until = time.monotonic() + within_s
        if self._closed:
            raise StoreError("the reader is closed")
        self._reloader.ensure_running()
        served = self._served.now
        if served.value is None:
            raise StoreError(str(served.error or f"snapshot {self._path} is still being checked"))
        return served.value.read(views, subjects, until=until)

    @property
    def as_of(self) -> datetime | None:
        """Time of the snapshot that is served; None: there is none."""
        served = self._served.now.value
        return None if served is None else served.footer.as_of

    @property
    def error(self) -> str | None:
        """Why the file that lies there is not served; None: it is, or it is still being checked."""
        error = self._served.now.error
        return None if error is None else str(error)

    def close(self) -> None:
        """End the thread. Later reads raise `StoreError`."""
        self._closed = True
        self._reloader.close()


class _Source:
    """Opens the file's versions; knows none of its readers, so that the thread keeps none alive."""

    def __init__(self, path: Path, project: str) -> None:
        self._path = path
        self._project = project
        self._refused: tuple[Hashable, str] | None = None

    def stamp(self) -> Hashable:
        return stamp_of(self._path)

    def load(self, stamp: Hashable) -> SnapshotFile:
        if self._refused is not None and self._refused[0] == stamp:  # checking it again would cost as much again
            raise SnapshotRefused(self._refused[1])
        try:
            return self._load()
        except SnapshotRefused as error:
            self._refused = (stamp, str(error))
            raise

    def _load(self) -> SnapshotFile:
        opened = SnapshotFile(self._path)
        if opened.footer.project != self._project:
            raise SnapshotRefused(
                f"snapshot {self._path} is of project {opened.footer.project!r}, this predictor reads the history of "
                f"{self._project!r}: write it with `leap snapshot --project {self._project}`"
            )
        return opened

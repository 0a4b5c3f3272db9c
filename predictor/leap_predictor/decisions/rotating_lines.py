"""A file of lines that several processes append to and rotate, without losing or tearing a line.

`decisions.jsonl` is the file that is written to. Once it would grow beyond its limit it is renamed to
`decisions.jsonl.000001`, the next time to `….000002`, and so on: the greatest number is the newest, and the oldest
files are removed. The numbers are no times, since clocks step back.

Whoever writes holds a lock on the file (`flock`), and only while the path still names that file: another process may
have rotated it in between. So no line goes to a file that is about to be removed, and whatever a failed write left
behind is cut off before anybody else appends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path


class RotatingLines:
    """Appends to one path. One thread at a time; each process has one of its own.

    Args:
        path: of the file; its directory is made where it is missing. On a file system that has locks.
        max_bytes: a file that would grow beyond this is rotated first.
        keep: how many rotated files stay.

    Raises:
        ValueError: a limit is out of range.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes!r}")
        if keep < 1:
            raise ValueError(f"keep must be at least 1 rotated file, got {keep!r}")
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: int | None = None

    def append(self, lines: Sequence[bytes]) -> int:
        """Append `lines`, each without its end; how many of them are in the file, the first ones.

        Fewer than given where the disk filled up meanwhile.

        Raises:
            OSError: none is.
        """
        written = 0
        try:
            while written < len(lines):
                written += self._append_some(lines[written:])
        except OSError:
            if not written:
                raise
        return written

    def _append_some(self, lines: Sequence[bytes]) -> int:
        """Append those of `lines` that the file has room for, or rotate it where it has none; how many it took.

        Raises:
            OSError: it took none.
        """
        with self._locked() as file:
            size = os.fstat(file).st_size
            # A process that was killed in the middle of a write leaves a line without an end.
            mend = b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
            fitting = _fitting(lines, self._max_bytes - size - len(mend))
            if size and not fitting and self._rotate():
                return 0
            # A line longer than a file may be has one of its own. What cannot be rotated grows.
            some = lines[: fitting or (len(lines) if size else 1)]
            return _append(file, b"".join((mend, *(line + b"\n" for line in some))), size) - len(mend)

    def close(self) -> None:
        """Let go of the file; `append` opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file that the path names, locked."""
        while True:
            if self._file is None:
                self._file = self._open()
            file = self._file
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if self._is_named(file):
                    yield file
                    return
            finally:
                # Closing would not do it while a child that was forked meanwhile has the file open too.
                fcntl.flock(file, fcntl.LOCK_UN)
            self.close()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o644)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, 0o644)

    def _is_named(self, file: int) -> bool:
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        own = os.fstat(file)
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def _rotate(self) -> bool:
        """Rename the file, which is locked; whether that worked. Where it did not, the file grows on."""
        try:
            rotated = rotated_files(self._path)
            number = int(rotated[-1].suffix[1:]) + 1 if rotated else 1
            self._path.rename(self._path.with_name(f"{self._path.name}.{number:06d}"))
        except OSError:
            return False
        for path in rotated[: len(rotated) + 1 - self._keep]:
            with contextlib.suppress(OSError):  # the next rotation tries again
                path.unlink()
        return True


def _fitting(lines: Sequence[bytes], room: int) -> int:
    """How many of `lines`, the first ones, fit into so many bytes."""
    for place, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return place
    return len(lines)


def _append(file: int, data: bytes, size: int) -> int:
    """Append lines to a file of `size` bytes; how many lines it took, and nothing of the others.

    Raises:
        OSError: it took none.
    """
    done = 0
    try:
        while done < len(data):
            done += os.write(file, data[done:])
    except OSError:
        whole = data.rfind(b"\n", 0, done) + 1
        if done > whole:
            os.ftruncate(file, size + whole)
        if not whole:
            raise
        return data.count(b"\n", 0, whole)
    return data.count(b"\n")


def rotated_files(path: Path) -> list[Path]:
    """The rotated files of `path` that are there, the oldest first."""
    pattern = re.compile(rf"{re.escape(path.name)}\.([0-9]{{6,18}})")
    found = [other for other in path.parent.iterdir() if pattern.fullmatch(other.name)]
    return sorted(found, key=lambda other: int(other.suffix[1:]))

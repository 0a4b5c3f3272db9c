"""Files that appear whole, and outlive a power failure once they are there."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

LEFTOVER_AFTER_S: Final = 86_400.0
"""A temporary file that is older than this is nobody's: it is needed for moments."""
_TEMPORARY: Final = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


class NotReplaceable(OSError):
    """No file can take this path; the message says why, and the mend."""


def replaceable(path: Path) -> Path:
    """Where the file that is to appear at `path` goes: that path, or the one that its links lead to.

    A rename replaces whatever it meets. Where a person names the path, that must be a regular file, or nothing.

    Raises:
        NotReplaceable: something else is there, or no directory to hold it.
        OSError: it cannot be told.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        kind = stat.S_IFMT(path.stat().st_mode)
        if kind != stat.S_IFREG:
            raise NotReplaceable(
                f"{path} is {_KINDS.get(kind, 'no file')}, which no file may replace: name a file, new or old"
            )
    target = path.resolve()
    for directory in (path.parent, target.parent):
        if not directory.is_dir():
            raise NotReplaceable(f"{directory} is no directory: make it first, or write {path.name} elsewhere")
    return target


def sync(path: Path) -> None:
    """Wait until the content of a file, or the entries of a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def durable_directory(root: Path, *parts: str) -> Path:
    """The directory `parts` under `root`, with its entry in its parent synced."""
    directory = root
    for part in parts:
        parent, directory = directory, directory / part
        if not directory.is_dir():
            try:
                directory.mkdir(exist_ok=True)
            except FileExistsError:  # which would say that the segment is there
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None
            sync(parent)
    return directory


def usable_directory(path: Path) -> None:
    """Make the directory `path` if need be, and find out, before the work for it, whether it takes files.

    Raises:
        OSError: it does not.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        why = os.strerror(errno.ENOTDIR) if isinstance(error, FileExistsError) else error.strerror
        raise OSError(f"{path} is no directory that takes files ({why}): mend that, or name another") from None


def temporary_path(directory: Path, name: str) -> Path:
    """A path that nobody else has, to write the file `name` of `directory` to before it gets its name."""
    return directory / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def publish(directory: Path, name: str, content: Any, *, replace: bool) -> Path:
    """Write the file `name` so that it appears whole or not at all, and stays; where it is.

    Raises:
        FileExistsError: it is there already, and is not to be replaced.
        NotReplaceable: it is to be replaced, and is no regular file.
    """
    target = replaceable(directory / name) if replace else directory / name
    temporary = temporary_path(target.parent, target.name)
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(target)
        else:
            # Unlike a rename, a link never replaces what is there; it is atomic on NFS too.
            os.link(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync(target.parent)
    return target


def remove_leftovers(root: Path, now: float) -> list[Path]:
    """Remove files at a `temporary_path`, anywhere under `root`, that were left by writers that were killed.

    Args:
        now: seconds since 1970. Files of the last day stay: a writer may be at work on them.
    """
    left = [
        path
        for path in root.rglob(".*.tmp")
        if _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime < now - LEFTOVER_AFTER_S
    ]
    for path in left:
        path.unlink(missing_ok=True)
    return left

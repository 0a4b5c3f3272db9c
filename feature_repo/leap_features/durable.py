"""Files that appear whole, and outlive a power failure once they are there."""

from __future__ import annotations

import errno
import os
import re
import secrets
from pathlib import Path
from typing import Any, Final

LEFTOVER_AFTER_S: Final = 86_400.0
"""A temporary file that is older than this is nobody's: it is needed for moments."""
_TEMPORARY: Final = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")


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


def temporary_path(directory: Path, name: str) -> Path:
    """A path that nobody else has, to write the file `name` of `directory` to before it gets its name."""
    return directory / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"


def publish(directory: Path, name: str, content: Any, *, replace: bool) -> Path:
    """Write the file `name` so that it appears whole or not at all, and stays.

    Raises:
        FileExistsError: it is there already, and is not to be replaced.
    """
    target = directory / name
    temporary = temporary_path(directory, name)
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
    sync(directory)
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

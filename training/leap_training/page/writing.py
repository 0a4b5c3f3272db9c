"""A page on its way to its file."""

from __future__ import annotations

from pathlib import Path

from leap_features.durable import publish, replaceable


def check_page(path: Path) -> None:
    """Find out whether a page can be written to `path`, before there is one.

    Raises:
        OSError: it cannot.
    """
    if not _is_stream(path):
        replaceable(path)


def write_page(path: Path, page: str) -> None:
    """Write `page`: into a pipe or a device as it is, else to a file. A full disk leaves the one of before whole.

    Raises:
        OSError: it cannot be written.
    """
    if _is_stream(path):
        path.write_bytes(page.encode())
    else:
        publish(path.parent, path.name, page.encode(), replace=True)


def _is_stream(path: Path) -> bool:
    """Whether it takes bytes as they come, as /dev/stdout may."""
    return path.is_fifo() or path.is_char_device()

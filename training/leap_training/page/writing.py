"""A page on its way to its file."""

from __future__ import annotations

from pathlib import Path

from leap_features.durable import publish


def write_page(path: Path, page: str) -> None:
    """Write `page`. A full disk leaves the one of before whole.

    Raises:
        OSError: it cannot be written.
    """
    if path.is_file() or not path.exists():
        target = path.resolve()  # a link, such as /dev/stdout may be, stays one
        publish(target.parent, target.name, page.encode(), replace=True)
    else:
        path.write_bytes(page.encode())  # a device or a pipe

"""The progress bar of commands that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress_bar(length: int, label: str, *, show_pos: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on standard error; what it yields is told how much more of `length` is done."""
    with click.progressbar(length=length, label=label, show_pos=show_pos, file=click.get_text_stream("stderr")) as bar:
        yield bar.update

"""How a command ends on an error that its user can mend: with the message alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def explained(*mendable: type[Exception]) -> Iterator[None]:
    """End the command with the message of an error of the types `mendable`."""
    try:
        yield
    except mendable as error:
        raise click.ClickException(str(error)) from None

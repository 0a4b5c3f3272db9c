"""A table of past runs as a command reads it for a report: with a progress bar, and what was left out in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from leap_features.family_file import RulesError
from leap_features.hardware import CatalogueError
from leap_features.settings import SettingsError
from leap_training.mapping import MappingError
from leap_training.past_runs import Rejects
from leap_training.progress import progress_bar
from leap_training.tables import Table, TableError

MENDABLE: Final = (MappingError, TableError, SettingsError, RulesError, CatalogueError, OSError)
"""What can go wrong with what such a command is given, and has a message for whoever gave it."""


@contextmanager
def table_of_runs(path: Path) -> Iterator[tuple[Table, Rejects, Callable[[int], None]]]:
    """The table, what takes its rows that are no events, and what is told of progress.

    Raises:
        TableError: the file is no table.
    """
    with Table(path) as table, Rejects(None) as rejects, progress_bar(table.length, f"reading {path.name}") as progress:
        yield table, rejects, progress
    if rejects.total:
        click.echo(f"{rejects.total:,} rows are no events and are left out:", err=True)
        for line in rejects.first:
            click.echo(f"  {line}", err=True)

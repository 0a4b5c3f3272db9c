"""What is judged: a training set, or a table of past runs that becomes one in a temporary directory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leap_features import family
from leap_features.columns import history_column
from leap_features.levels import FAMILY
from leap_features.settings import Settings
from leap_training.dataset import write_dataset
from leap_training.imports import import_runs
from leap_training.past_runs import Rejects, past_runs, reading_of
from leap_training.tables import Table, TableError
from leap_training.training_set import TrainingSet, read_training_set

MARK: Final = history_column(FAMILY.view, "last")
"""A column that every training set has, and no table of runs."""


def read(path: Path, mapping: Path | None, settings: Settings, say: Callable[[str], None]) -> TrainingSet:
    """The training set in `path`; a table of past runs is imported, its history built and joined first.

    Args:
        path: what `leap dataset` wrote, or what `leap import` takes.
        mapping: TOML file that says which column of a table is what; None: they are a completion event's fields.
        settings: of the deployment; its archive and history are left alone.
        say: is told what is done.

    Raises:
        TrainingSetError, MappingError, TableError, DatasetError: it cannot be read.
        ArchiveError, HistoryError, FeatureRepoError: nothing can be made of it here.
    """
    if mapping is None and _is_training_set(path):
        found = read_training_set(path)
        if found.set_aside:
            say(
                f"set aside {found.set_aside:,} rows without a usable throughput, trainer count, hardware or model "
                "type, or without the name of the attempt or its family"
            )
        return found.rows
    with tempfile.TemporaryDirectory(prefix="leap-judge-") as directory:
        return _from_table(path, mapping, settings, Path(directory), say)


def _from_table(
    path: Path, mapping: Path | None, settings: Settings, directory: Path, say: Callable[[str], None]
) -> TrainingSet:
    own = msgspec.structs.replace(settings, archive=str(directory / "archive"), history=str(directory / "history"))
    rules = family.load_rules(settings.family_rules)
    say(f"importing {path.name}")
    reading = reading_of(mapping)
    with Table(path) as table, Rejects(None) as rejects:
        made = import_runs(
            directory / "archive", past_runs(table, reading, rejects), rejects, horizon_us=own.horizon_us, rules=rules
        )
    if rejects.total:
        say(f"{rejects.total:,} rows set aside, the first: {rejects.first[0]}")
    if not made.added:
        aside = f"{rejects.total:,} rows were set aside" if rejects.total else "it has no rows"
        raise TableError(
            f"{path} holds no run to judge by, {aside}: "
            + ("check the mapping" if mapping else "say by --mapping which column is what, or see docs/events.md")
        )
    say(f"{made.added:,} runs; building history")
    written = write_dataset(own, directory / "training.parquet", rules=rules, say=say)
    say(f"{written.rows:,} attempts succeeded and have a history as of their submission")
    return read_training_set(directory / "training.parquet").rows


def _is_training_set(path: Path) -> bool:
    try:
        return MARK in pq.read_schema(path).names
    except (pa.ArrowException, OSError):
        return False

"""Attempts looked up in the archive, for replayed events, whose attempts the online store may have forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from leap_features import archive
from leap_features.history import Position
from leap_features.settings import Settings
from leap_streams.faults import Unavailable
from leap_streams.history_writer import FindAttempts


def attempt_lookup(settings: Settings) -> FindAttempts | None:
    """What finds attempts in the archive of `settings`; None where there is no archive.

    It raises Unavailable where the archive's file system does not answer.
    """
    root = Path(settings.archive)
    try:
        archive.check_format(root)
    except archive.ArchiveError:
        return None

    def find(attempts: Sequence[tuple[bool, str]]) -> Mapping[tuple[bool, str], tuple[Position, str]]:
        try:
            return archive.find_attempts(root, attempts, horizon_us=settings.horizon_us)
        except (OSError, duckdb.IOException) as error:
            raise Unavailable(f"archive {root}: {error}") from error

    return find

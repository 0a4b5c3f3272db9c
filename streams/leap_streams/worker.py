"""The history worker: completion events from Kafka into the online store. `faust -A leap_streams.worker worker`.

The app is built from the `LEAP_*` environment when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from leap_features import archive
from leap_features.family import load_rules
from leap_features.history import Position
from leap_features.settings import Settings
from leap_streams.dead_letter import DeadLetterTopic
from leap_streams.faults import Halt, Unavailable
from leap_streams.followed_topic import followed_meta
from leap_streams.history_writer import Delivery, FindAttempts, HistoryWriter
from leap_streams.intake import Intake
from leap_streams.store import Session, Store, session_of


class HistorySink:
    """Where the worker's batches go: rows and attempts to the online store, dead letters to their topic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rules = load_rules(settings.family_rules)
        self._store = Store(settings)
        self._dead_letters = DeadLetterTopic(settings)
        self._writer = HistoryWriter(settings, self._store, None, self._rules)
        self._session = Session(b"", {})
        self._epoch = 0

    def begin(self) -> Mapping[int, int]:
        """Read the store's meta: checkpoints, and the generation that every write must name."""
        meta = followed_meta(self._store, self._settings)
        if meta.family_rule != self._rules.version:
            raise Halt(
                f"the online store was made under family rule {meta.family_rule!r}, this worker has "
                f"{self._rules.version!r}: use the same rules (LEAP_FAMILY_RULES), or run `leap rebuild`"
            )
        if meta.state != "ready":
            raise Unavailable("the online store is being rebuilt")
        self._writer.find_attempts = _archive_lookup(self._settings)  # the archive may have come meanwhile
        self._session, self._epoch = session_of(meta), meta.epoch
        return meta.checkpoints

    def take(self, deliveries: Sequence[Delivery]) -> Mapping[str, int]:
        """Write the rows, then the dead letters, then the checkpoints."""
        batch = self._writer.write(deliveries, self._session, self._epoch)
        if batch.rejected:
            self._dead_letters.send(batch.rejected)
        self._session = self._store.move_checkpoints(self._session, batch.checkpoints)
        return batch.counts

    def close(self) -> None:
        """Close the connection to Redis."""
        self._store.close()


def _archive_lookup(settings: Settings) -> FindAttempts | None:
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


def build(settings: Settings) -> Intake:
    """The history worker of `settings`, not yet running."""
    return Intake(
        f"{settings.project}-history",
        settings,
        lambda: HistorySink(settings),
        batch_max=settings.batch_max,
        batch_within_s=settings.batch_within_s,
    )


def __getattr__(name: str) -> Any:
    # Built when Faust asks for it: importing this module must not need an environment.
    if name == "app":
        return build(Settings.from_env()).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

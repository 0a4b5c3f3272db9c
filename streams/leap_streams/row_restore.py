"""Rows and attempts of a project removed from the online store and written anew, in one generation of it and no other.

What another rebuild, or `leap epoch new`, has taken over meanwhile is left alone: every step names the generation, and
is refused in another one. Steps are pipelined on one connection; if that breaks, the whole is to be begun again: a
server that comes back may lack what it had acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from leap_features import latest_rows, layout
from leap_features.conditional_write import CONFLICT, REFUSED
from leap_features.first_events import FirstEvent
from leap_features.latest_rows import LatestRow
from leap_features.levels import LEVELS
from leap_features.meta import attempt_key, attempt_value
from leap_features.row_fields import RowFields
from leap_streams.faults import Refused
from leap_streams.progress import Progress
from leap_streams.store import ANOTHER_STORE, Store
from leap_streams.store_scan import scan

Say = Callable[[str], None]

CLAIMS_AT_ONCE: Final = 500
"""Attempts per call of the script that writes them: a server answers nobody else meanwhile."""

FIELDS: Final = {level: RowFields(level) for level in LEVELS}


class RowRestore:
    """Writes to `store`, a store in the generation `generation`.

    Every method raises `Refused` once the store is in another generation, `Unavailable` or `Halt` as the store does.
    """

    def __init__(self, store: Store, generation: str, say: Say) -> None:
        self._store = store
        self._generation = generation.encode()
        self._expected = [self._generation, b"0"]  # and no checkpoint: there is none in this generation
        self._say = say

    def clear(self) -> None:
        """Remove every history row and every attempt."""
        for page in scan(self._store, self._say):
            commands = [
                self._store.remove_command(self._generation, [raw for raw, _ in rows], FIELDS[level].all)
                for level, rows in page.rows.items()
                if rows
            ]
            if page.attempts:
                commands.append(self._store.remove_command(self._generation, page.attempts))
            self._call(commands)

    def write_rows(self, build: Path) -> dict[str, int]:
        """Write the latest row of every key in the history rows of `build`; how many per view."""
        counts = {}
        for level in LEVELS:
            with latest_rows.opened(build, level) as latest:
                progress = Progress(self._say, f"online store: rows of {level.view}", latest.count)
                for rows in latest.batches():
                    self._write(FIELDS[level], rows)
                    progress.add(len(rows))
                counts[level.view] = progress.done
        return counts

    def _write(self, fields: RowFields, rows: Sequence[LatestRow]) -> None:
        project = self._store.project
        pending = [
            (layout.entity_key(project, fields.level.join_keys, row.key), fields.encode(row.values, row.recorded_at_us))
            for row in rows
        ]
        versions = [b""] * len(pending)
        while pending:
            replies = self._call(
                [
                    self._store.write_row_command(key, self._expected, (fields.version, version), values)
                    for (key, values), version in zip(pending, versions, strict=True)
                ]
            )
            # Feast's own writes know nothing of a rebuild; what they brought in between is written over.
            pending = [row for row, reply in zip(pending, replies, strict=True) if reply == CONFLICT]
            versions = [v or b"" for v in self._call([(b"HGET", key, fields.version) for key, _ in pending])]

    def write_attempts(self, count: int, batches: Iterator[list[FirstEvent]], memory_ms: int) -> None:
        """Remember `count` attempts, in `batches`, for `memory_ms` milliseconds."""
        progress = Progress(self._say, "online store: attempts", count)
        memory, project = str(memory_ms).encode(), self._store.project
        for batch in batches:
            claims = [
                (attempt_key(project, first.succeeded, first.attempt_id), attempt_value(first.position, first.digest))
                for first in batch
            ]
            self._call(
                [
                    self._store.claim_command(self._expected, memory, claims[at : at + CLAIMS_AT_ONCE])
                    for at in range(0, len(claims), CLAIMS_AT_ONCE)
                ]
            )
            progress.add(len(batch))

    def _call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        replies = self._store.call(commands) if commands else []
        if REFUSED in replies:
            raise Refused(ANOTHER_STORE)
        return replies

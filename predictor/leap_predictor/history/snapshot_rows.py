"""All history rows of the online store, for a snapshot of it.

Redis names keys while a worker goes on writing, so a snapshot is no cut at one instant: each row is one that the store
had between the beginning and the end, whole, and none that was there all the time is missing. That is what a launcher
that reads one row after the other finds, too. Every page of rows is read between two readings of the meta: a rebuild
that begins or ends meanwhile is noticed, and nothing is written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import redis

from leap_features.layout import LayoutError, decode_entity_key, key_prefix
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.errors import StoreError
from leap_predictor.history.client_replies import client_replies
from leap_predictor.history.request import HistoryRequest, MetaReading
from leap_predictor.history.snapshot_writer import SnapshotRow
from leap_predictor.manifest import View

KEYS_AT_ONCE: Final = 1_000

Say = Callable[[str], None]


class OnlineRows:
    """The rows of one project in a Redis.

    Args:
        client: bytes in, bytes out.
        views: the views to read.
        say: is told, in a line, how it goes.

    Raises:
        StoreError: the store has no history, is being rebuilt, or is of another schema than this release's.
        redis.RedisError: it does not answer.
    """

    def __init__(
        self, client: redis.Redis, project: str, views: tuple[View, ...], say: Say = lambda _line: None
    ) -> None:
        self._client = client
        self._project = project
        self._views = views
        self._say = say
        self.meta = self._ready_meta()

    def __iter__(self) -> Iterator[SnapshotRow]:
        """The rows that are there from now to the end; a key may come more than once.

        Raises:
            StoreError: a row cannot be read, or the store was rebuilt meanwhile.
            redis.RedisError: it does not answer any more.
        """
        by_join_keys: dict[tuple[str, ...], list[View]] = {}
        for view in self._views:
            by_join_keys.setdefault(tuple(sorted(view.join_keys)), []).append(view)
        prefixes = tuple(key_prefix(names) for names in by_join_keys)
        total: Any = self._client.dbsize()
        looked_at = 0
        for page in _pages(self._client.scan_iter(count=KEYS_AT_ONCE)):
            for names, subjects in self._subjects(raw for raw in page if raw.startswith(prefixes)).items():
                for view in by_join_keys.get(names, ()):
                    yield from self._rows(view, subjects)
            looked_at += len(page)
            if looked_at // 100_000 != (looked_at - len(page)) // 100_000:
                self._say(f"{looked_at:,} of {total:,} keys looked through")
        self._still_the_same(self._ready_meta())

    def _subjects(self, keys: Iterable[bytes]) -> dict[tuple[str, ...], list[Any]]:
        """Whose keys these are, by the sorted names of the join keys."""
        found: dict[tuple[str, ...], list[Any]] = {}
        for raw in keys:
            try:
                names, values = decode_entity_key(raw, self._project)
            except LayoutError:  # of another project
                continue
            found.setdefault(names, []).append(SimpleNamespace(**dict(zip(names, values, strict=True))))
        return found

    def _rows(self, view: View, subjects: Sequence[Any]) -> Iterator[SnapshotRow]:
        request = HistoryRequest(self._project, [view], subjects)
        reading = request.decode(client_replies(self._client, request))
        self._still_the_same(reading.meta)
        for subject, rows in zip(subjects, reading.rows, strict=True):
            row = rows[view.view]
            if row is not None:  # another view has the same join keys, or the key has gone
                key = tuple(getattr(subject, name) for name in view.join_keys)
                yield SnapshotRow(view, key, tuple(row.features.values()), row.recorded_at_us)

    def _ready_meta(self) -> MetaReading:
        request = HistoryRequest(self._project, [], [])
        meta = request.decode(client_replies(self._client, request)).meta
        if meta is None:
            raise StoreError(f"the online store has no history of project {self._project!r}: run `leap init`")
        if meta.schema != SCHEMA_VERSION:
            raise StoreError(
                f"the online store has schema version {meta.schema!r}, this release reads {SCHEMA_VERSION!r}: run "
                "`leap rebuild`"
            )
        if meta.state != "ready":
            raise StoreError(f"the online store is {meta.state or 'in no state'}, not ready: wait for `leap rebuild`")
        return meta

    def _still_the_same(self, meta: MetaReading | None) -> None:
        if meta != self.meta:
            raise StoreError("the online store was rebuilt while it was read: run `leap snapshot` again")


def _pages(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    keys = iter(keys)
    while page := list(itertools.islice(keys, KEYS_AT_ONCE)):
        yield page

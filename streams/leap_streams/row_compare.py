"""Every history row of the online store beside the one that the archive gives for its key."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

from leap_features import latest_rows, layout
from leap_features.history import CorruptState, decode_version
from leap_features.history_build import Ends
from leap_features.latest_rows import ROWS_AT_ONCE, LatestRow
from leap_features.layout import LayoutError, Value
from leap_features.levels import LEVELS, Level
from leap_features.meta import Meta
from leap_features.row_fields import FEATURE_NAMES
from leap_streams.progress import Progress
from leap_streams.row_restore import FIELDS, Say
from leap_streams.store import Store
from leap_streams.store_scan import Key, scan

STAMP: Final = "event_timestamp"
NAMES: Final = (*FEATURE_NAMES, STAMP)

Verdict = Literal["equal", "ahead", "behind", "never_archived", "different", "only_online", "only_archive"]

Item = TypeVar("Item")


class Pair(NamedTuple):
    """The rows of one key."""

    level: Level
    key: Key
    raw_key: bytes
    stored: tuple[bytes, ...]
    """What the store has in each field of the view, in the order of `RowFields.all`; empty where it has none."""
    archived: LatestRow | None
    verdict: Verdict
    differing: dict[str, tuple[Value, Value]]
    """Values online and of the archive, for the fields that differ."""


def compare(store: Store, build: Path, meta: Meta, ends: Ends, say: Say) -> Iterator[list[Pair]]:
    """Every key of either side, with what its rows are.

    Args:
        build: history rows of the archive.
        meta: what the store said about itself before.
        ends: how far the archive was when `build` was made.
    """
    judge = _Judge(meta, ends)
    seen: set[bytes] = set()
    for level in LEVELS:
        with latest_rows.opened(build, level) as latest:
            progress = Progress(say, f"compared rows of {level.view}", latest.count)
            for batch in latest.batches():
                keys = [layout.entity_key(store.project, level.join_keys, row.key) for row in batch]
                seen.update(keys)
                yield [
                    judge.pair(level, row.key, key, stored, row)
                    for key, row, stored in zip(keys, batch, _stored(store, level, keys), strict=True)
                ]
                progress.add(len(batch))
    for page in scan(store, say):
        for level, rows in page.rows.items():
            for batch_ in _batches([(raw, key) for raw, key in rows if raw not in seen]):
                seen.update(raw for raw, _ in batch_)
                yield [
                    judge.pair(level, key, raw, stored, None)
                    for (raw, key), stored in zip(batch_, _stored(store, level, [r for r, _ in batch_]), strict=True)
                    if stored  # else a row of another view that shares the key
                ]


class _Judge:
    """Tells a difference from a delay, by how far store and archive are."""

    def __init__(self, meta: Meta, ends: Ends) -> None:
        self._meta = meta
        self._ends = {tuple(map(int, lane.split(":"))): end for lane, end in ends.items()}

    def pair(
        self, level: Level, key: Key, raw_key: bytes, stored: tuple[bytes, ...], archived: LatestRow | None
    ) -> Pair:
        online = _decoded(stored) if stored else None
        own = _values(archived) if archived else None
        differing = {
            name: (left, right)
            for name in NAMES
            if not _same(left := online[name] if online else None, right := own[name] if own else None)
        }
        verdict = self._verdict(online, own) if differing else "equal"
        return Pair(level, key, raw_key, stored, archived, verdict, differing)

    def _verdict(self, online: Mapping[str, Value] | None, own: Mapping[str, Value] | None) -> Verdict:
        """What a pair of unequal rows is."""
        try:
            lanes = decode_version(str(online["version"])) if online and online["version"] else ()
        except CorruptState:
            return "different" if own else "only_online"
        unarchived = [epoch for epoch, partition, offset in lanes if offset >= self._ends.get((epoch, partition), 0)]
        if any(epoch < self._meta.epoch for epoch in unarchived):
            return "never_archived"
        if unarchived:
            return "ahead"
        if self._not_taken_in(own):
            return "behind"
        if online is None:
            return "only_archive"
        return "only_online" if own is None else "different"

    def _not_taken_in(self, own: Mapping[str, Value] | None) -> bool:
        checkpoints = self._meta.checkpoints
        return any(
            epoch == self._meta.epoch and offset >= checkpoints.get(partition, 0)
            for epoch, partition, offset in decode_version(str(own["version"]) if own else "")
        )


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    return type(left) is type(right) and left == right


def _values(row: LatestRow) -> dict[str, Value]:
    return dict(zip(NAMES, (*row.values, row.recorded_at_us), strict=True))


def _stored(store: Store, level: Level, keys: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """What the store has under `keys` in the fields of `level`; an absent field is empty."""
    replies = store.call([(b"HMGET", key, *FIELDS[level].all) for key in keys]) if keys else []
    return [tuple(v or b"" for v in reply) if any(v is not None for v in reply) else () for reply in replies]


def _decoded(stored: Sequence[bytes]) -> dict[str, Value]:
    row: dict[str, Value] = {}
    for name, raw in zip(NAMES, stored, strict=True):
        try:
            if name == STAMP:
                row[name] = layout.decode_timestamp(raw) if raw else None
            else:
                row[name] = layout.decode_value(raw)
        except LayoutError as error:
            row[name] = str(error)
    return row


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while batch := list(islice(remaining, ROWS_AT_ONCE)):
        yield batch

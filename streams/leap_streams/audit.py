"""`leap audit`: every history row of the online store beside the one that the archive gives for its key.

Rows are compared field by field, integers and texts as such and floats by their bits, together with the timestamp. The
total is the union of the keys on both sides: a row that only one side has is not equal. A row that has taken in events
that the archive has not yet is shown apart, and so is one that lacks events of the archive which the store's checkpoint
has not come to yet: there one of the two apps is ahead of the other, and nothing need be wrong.
"""

# ruff: noqa: S608 - names are this product's own, paths are quoted.

from __future__ import annotations

import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from leap_features import archive, archive_reader, family, history_build, layout
from leap_features.history import FEATURES, CorruptState, decode_version
from leap_features.history_rows import PART, Say
from leap_features.layout import LayoutError, Value
from leap_features.levels import LEVELS, Level
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.faults import Halt, Unavailable
from leap_streams.store import Store

ROWS_AT_ONCE: Final = 1_000
SHOWN: Final = 10

STAMP: Final = "event_timestamp"
NAMES: Final = (*(name for name, _ in FEATURES), STAMP)

Verdict = Literal["equal", "ahead", "behind", "different", "only_online", "only_archive"]

MEANINGS: Final[Mapping[Verdict, str]] = {
    "equal": "equal on both sides",
    "ahead": "online has events that the archive has not yet: let `leap archive` catch up",
    "behind": "the archive has events that the worker has not come to yet: let `leap worker` catch up",
    "different": "differ: `leap rebuild` makes them from the archive",
    "only_online": "only online: no archived event gives them; `leap rebuild` removes them",
    "only_archive": "only in the archive: after an import, or a loss; `leap rebuild` brings them",
}

Item = TypeVar("Item")
Key = tuple[str | int, ...]
Row = dict[str, Value]
"""Features by name, and the timestamp in microseconds since 1970."""


class Difference(msgspec.Struct, frozen=True):
    """A row that is not equal. Values are those online and those of the archive, for the fields that differ."""

    view: str
    key: Key
    verdict: Verdict
    fields: dict[str, tuple[Value, Value]]


class Audit(msgspec.Struct, frozen=True):
    """How many of how many rows are equal, and what the others are; the counts add up to `total`."""

    equal: int
    total: int
    ahead: int
    behind: int
    different: int
    only_online: int
    only_archive: int
    state: str
    """Of the online store, `ready` or `rebuilding`."""
    first: list[Difference]
    """The first few that are not equal."""


def audit(settings: Settings, *, rules: family.Rules, say: Say = lambda _line: None) -> Audit:
    """Compare the online store of `settings` with its archive.

    Raises:
        ArchiveError: there is no archive, or it has a hole.
        Halt: the store has no meta or other family rules, or does not work.
        MetaError: its meta cannot be read.
        Unavailable: the store does not answer, or was rebuilt meanwhile.
    """
    store = Store(settings)
    try:
        meta = store.read_meta()
        if meta is None:
            raise Halt(
                f"the online store has no meta for project {settings.project!r}: `leap init` makes it, `leap rebuild` "
                "fills it from the archive"
            )
        if meta.family_rule != rules.version:
            raise Halt(
                f"the online store was made under family rule {meta.family_rule!r}, this audit has {rules.version!r}: "
                "use the same rules (LEAP_FAMILY_RULES)"
            )
        found = archive.check_complete(settings.archive)
        with tempfile.TemporaryDirectory(prefix="leap-audit-") as scratch:
            target = Path(scratch) / "history"
            built = history_build.build_into(target, found, horizon_us=settings.horizon_us, rules=rules, say=say)
            counts: Counter[Verdict] = Counter()
            first: list[Difference] = []
            for difference in _compare(store, target, _Progress(meta, built.ends)):
                counts[difference.verdict] += 1
                if difference.verdict != "equal" and len(first) < SHOWN:
                    first.append(difference)
        after = store.read_meta()
        if after is None or after.generation != meta.generation:
            raise Unavailable("the online store was rebuilt during the audit: run it again")
    finally:
        store.close()
    return Audit(
        equal=counts["equal"],
        total=counts.total(),
        ahead=counts["ahead"],
        behind=counts["behind"],
        different=counts["different"],
        only_online=counts["only_online"],
        only_archive=counts["only_archive"],
        state=meta.state,
        first=first,
    )


def report(result: Audit) -> Iterator[str]:
    """Lines that say what came out, the last one how many rows are equal."""
    if result.state != "ready":
        yield f"the online store is {result.state}: rows may be missing"
    for difference in result.first:
        shown = ", ".join(
            f"{name} {online!r} online, {own!r} from the archive" for name, (online, own) in _short(difference)
        )
        yield f"{difference.view} {difference.key}: {difference.verdict.replace('_', ' ')}; {shown}"
    for verdict, meaning in MEANINGS.items():
        count = getattr(result, verdict)
        if verdict != "equal" and count:
            yield f"{count:,} rows {meaning}"
    yield f"{result.equal:,} of {result.total:,} rows are equal"


def _short(difference: Difference) -> list[tuple[str, tuple[Value, Value]]]:
    """The fields that tell most; the state says in one line what the others say in parts."""
    fields = difference.fields
    if difference.verdict in ("only_online", "only_archive"):
        return [(name, fields[name]) for name in ("count", "version") if name in fields]
    return [(name, values) for name, values in fields.items() if name != "state" or len(fields) == 1]


class _Progress:
    """How far store and archive are, to tell a difference from a delay."""

    def __init__(self, meta: Meta, ends: history_build.Ends) -> None:
        self._meta = meta
        self._ends = {tuple(map(int, lane.split(":"))): end for lane, end in ends.items()}

    def verdict(self, online: Row | None, own: Row | None) -> Verdict:
        """What a pair of unequal rows is."""
        if self._unarchived(online):
            return "ahead"
        if self._not_taken_in(own):
            return "behind"
        if online is None:
            return "only_archive"
        return "only_online" if own is None else "different"

    def _unarchived(self, online: Row | None) -> bool:
        try:
            version = decode_version(str(online["version"])) if online else ()
        except CorruptState:
            return False
        return any(offset >= self._ends.get((epoch, partition), 0) for epoch, partition, offset in version)

    def _not_taken_in(self, own: Row | None) -> bool:
        version = decode_version(str(own["version"])) if own else ()
        meta = self._meta
        return any(
            epoch == meta.epoch and offset >= meta.checkpoints.get(partition, 0) for epoch, partition, offset in version
        )


def _compare(store: Store, history: Path, progress: _Progress) -> Iterator[Difference]:
    """Every key of either side, with what its rows are."""
    seen: set[bytes] = set()
    for level in LEVELS:
        for batch in _batches(_archived_rows(history, level)):
            keys = [layout.entity_key(store.project, level.join_keys, key) for key, _ in batch]
            seen.update(keys)
            for (key, own), online in zip(batch, _online_rows(store, level, keys), strict=True):
                yield _difference(level, key, online, own, progress)
    for level, unseen in _online_keys(store, seen):
        for some in _batches(unseen):
            rows = _online_rows(store, level, [raw for raw, _ in some])
            for (_, key), online in zip(some, rows, strict=True):
                if online is not None:  # else a row of another view that shares the key
                    yield _difference(level, key, online, None, progress)


def _difference(level: Level, key: Key, online: Row | None, own: Row | None, progress: _Progress) -> Difference:
    fields = {
        name: (left, right)
        for name in NAMES
        if not _same(left := online[name] if online else None, right := own[name] if own else None)
    }
    verdict: Verdict = progress.verdict(online, own) if fields else "equal"
    return Difference(level.view, key, verdict, fields)


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    return type(left) is type(right) and left == right


def _archived_rows(history: Path, level: Level) -> Iterator[tuple[Key, Row]]:
    """The latest row of every key, from the build in `history`."""
    keys = ", ".join(level.join_keys)
    names = ", ".join(name for name, _ in FEATURES)
    source = f"read_parquet({archive_reader.file_literal(history / level.view / PART)})"
    with archive_reader.connect() as connection:
        cursor = connection.execute(
            f"SELECT {keys}, {names}, epoch_us(event_timestamp) FROM {source} "
            f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY event_timestamp DESC) = 1 ORDER BY {keys}"
        )
        while batch := cursor.fetchmany(ROWS_AT_ONCE):
            for values in batch:
                key, row = values[: len(level.join_keys)], values[len(level.join_keys) :]
                yield key, dict(zip(NAMES, row, strict=True))


def _online_rows(store: Store, level: Level, keys: Sequence[bytes]) -> list[Row | None]:
    """The rows of one level under `keys`; None where there is none."""
    fields = [layout.field(level.view, name) for name, _ in FEATURES] + [layout.timestamp_field(level.view)]
    replies = store.call([(b"HMGET", key, *fields) for key in keys]) if keys else []
    return [_decoded(reply) if any(value is not None for value in reply) else None for reply in replies]


def _decoded(reply: Sequence[bytes | None]) -> Row:
    row: Row = {}
    for name, raw in zip(NAMES, reply, strict=True):
        try:
            if name == STAMP:
                row[name] = layout.decode_timestamp(raw) if raw is not None else None
            else:
                row[name] = layout.decode_value(raw)
        except LayoutError as error:
            row[name] = str(error)
    return row


def _online_keys(store: Store, seen: set[bytes]) -> Iterator[tuple[Level, list[tuple[bytes, Key]]]]:
    """Keys of history rows in the store that are not in `seen`, by level."""
    levels = {tuple(sorted(level.join_keys)): level for level in LEVELS}
    prefixes = tuple(layout.key_prefix(level.join_keys) for level in LEVELS)
    cursor = b"0"
    while True:
        ((cursor, raw_keys),) = store.call([(b"SCAN", cursor, b"COUNT", b"1000")])
        found: dict[str, list[tuple[bytes, Key]]] = {level.view: [] for level in LEVELS}
        # SCAN may return a key twice.
        for raw in set(raw_keys) - seen:
            if not raw.startswith(prefixes):
                continue
            try:
                names, values = layout.decode_entity_key(raw, store.project)
            except LayoutError:  # of another project
                continue
            level = levels.get(names)
            if level is not None:
                by_name = dict(zip(names, values, strict=True))
                found[level.view].append((raw, tuple(by_name[name] for name in level.join_keys)))
                seen.add(raw)
        for level in LEVELS:
            yield level, found[level.view]
        if cursor == b"0":
            return


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while batch := list(islice(remaining, ROWS_AT_ONCE)):
        yield batch

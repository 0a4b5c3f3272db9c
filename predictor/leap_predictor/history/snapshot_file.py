"""A snapshot of the history rows in one file: a hash table that is mapped into memory and never read as a whole to ask.

    LEAPSNP1                          8 bytes
    bucket 0, bucket 1, …             each: CRC-32 of its number and content (4 bytes), then a MessagePack map from key
                                      to row
    offsets                           where each bucket begins, and the last one ends: 8 bytes each
    footer                            JSON, see `Footer`
    trailer                           length of the footer (4 bytes), its SHA-256 (32 bytes), LEAPSNP1

Numbers are little-endian. A key is the MessagePack array of the view's place in the footer and the values of its join
keys; it lies in the bucket that the highest `bucket_bits` bits of its CRC-32 number. Buckets hold few keys, and whole
keys are compared. A row is the MessagePack array of its record time and the values of the view's features.

The footer has the SHA-256 of everything before it, which is checked once, before the file is asked. The bucket's own
checksum is checked each time: a file that was changed in place afterwards, or that a disk gives otherwise the second
time, is refused too. The memory map is private to nobody, so the file must be replaced by a rename, never in place: a
file that is cut short under a process that has it mapped may end that process. Each read looks at the file's size and
time first, so that at most a read of that very moment meets it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import time
import weakref
import zlib
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from leap_features.layout import Value
from leap_features.levels import Subject
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.request import MetaReading, Reading, StoredRow
from leap_predictor.manifest import Instant, NonEmpty, View

FORMAT: Final = 1
"""Version of the snapshot format; another one is refused, whatever else it says."""

MAGIC: Final = b"LEAPSNP1"
TRAILER: Final = struct.Struct("<I32s8s")
OFFSETS: Final = struct.Struct("<2Q")
OFFSET_BYTES: Final = 8
CHECKSUM: Final = struct.Struct("<I")
MAX_FOOTER_BYTES: Final = 1024 * 1024
FEWEST_BUCKET_BITS: Final = 6
MOST_BUCKET_BITS: Final = 28

_PIECE: Final = 1024 * 1024
"""Bytes that are hashed at a time, with the interpreter's lock let go."""
_TYPES: Final[dict[str, Any]] = {"Float64": float | None, "Int64": int | None, "String": str | None}

Buckets = dict[bytes, msgspec.Raw]

encode_key: Final = msgspec.msgpack.Encoder().encode
"""The key of (place of the view, value of each join key)."""
_decode_bucket: Final = msgspec.msgpack.Decoder(Buckets).decode


class SnapshotRefused(StoreError):
    """What the file holds cannot be served, however often it is read."""


class Footer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot is."""

    format: int
    library_version: str
    project: NonEmpty
    history_schema: str
    family_rule: str
    generation: str
    """Of the online store, when it was copied."""
    as_of: Instant
    """What the store had taken in by then is in the snapshot."""
    views: tuple[View, ...]
    rows: dict[str, int]
    """Keys per view."""
    bucket_bits: Annotated[int, msgspec.Meta(ge=FEWEST_BUCKET_BITS, le=MOST_BUCKET_BITS)]
    size: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes before the footer."""
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    """Of those bytes."""

    @property
    def offsets_at(self) -> int:
        """Where the table of offsets begins."""
        return self.size - OFFSET_BYTES * ((1 << self.bucket_bits) + 1)


class _Head(msgspec.Struct):
    format: int
    library_version: str = "unknown"


class _Lookup(NamedTuple):
    """How one view is asked."""

    view: str
    place: int
    key_of: Callable[[Subject], tuple[str | int, ...]]
    decode_row: Callable[[msgspec.Raw], tuple[Any, ...]]
    features: tuple[str, ...]


def stamp_of(path: Path) -> Hashable:
    """What tells versions of the file apart.

    Raises:
        StoreError: there is none.
    """
    try:
        return _stamp(path.stat())
    except OSError as error:
        raise StoreError(f"snapshot {path} cannot be read: {error}; `leap snapshot` writes one") from error


def bucket_of(key: bytes, bucket_bits: int) -> int:
    """Number of the bucket that `key` lies in."""
    return zlib.crc32(key) >> (32 - bucket_bits)


def bucket_checksum(number: int, content: bytes) -> int:
    """CRC-32 of a bucket: of its number too, so that no bucket passes for another."""
    return zlib.crc32(content, number)


class SnapshotFile:
    """An open snapshot whose content has been checked. Safe across threads and after a fork.

    Args:
        path: of the file. It stays what it was when another takes its place by a rename.

    Making one takes as long as reading the whole file.

    Raises:
        SnapshotRefused: damaged, or of another format.
        StoreError: absent, or it cannot be read just now.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"snapshot {path} cannot be read: {error}; `leap snapshot` writes one") from error
        close = weakref.finalize(self, os.close, self._descriptor)
        close.atexit = False  # another thread may be reading, and the process ends anyhow
        try:
            found = os.fstat(self._descriptor)
            self.stamp = _stamp(found)
            self.footer = footer = self._checked(found.st_size)
            self._map = mmap.mmap(self._descriptor, found.st_size, access=mmap.ACCESS_READ)
        except BaseException as error:
            close()  # whoever keeps the error keeps this object too
            if isinstance(error, OSError):
                raise StoreError(f"snapshot {path} cannot be read: {error}") from error
            raise
        self._shift = 32 - footer.bucket_bits
        self._offsets_at = footer.offsets_at
        self._meta = MetaReading(footer.history_schema, footer.family_rule, footer.generation, "ready")
        self._planned: tuple[tuple[View, ...], list[_Lookup]] = ((), [])

    def read(self, views: Sequence[View], subjects: Sequence[Subject], *, until: float) -> Reading:
        """The history of `subjects` in `views`, and the meta of the store that was copied.

        Args:
            until: monotonic seconds at which to give up.

        Raises:
            StoreTimeout: the time is over, as on a disk that is slow.
            StoreError: the file was changed in place, or it has not these views.
        """
        lookups = self._lookups(tuple(views))  # of a tuple, itself
        self._refuse_changed()
        found: dict[bytes, StoredRow | None] = {}
        rows = []
        try:
            for subject in subjects:
                of_subject = {}
                for lookup in lookups:
                    key = encode_key((lookup.place, *lookup.key_of(subject)))
                    try:
                        row = found[key]
                    except KeyError:
                        if time.monotonic() > until:
                            raise StoreTimeout(f"snapshot {self._path} was not read in time") from None
                        row = found[key] = self._row(lookup, key)
                    of_subject[lookup.view] = row
                rows.append(of_subject)
        except (struct.error, msgspec.MsgspecError) as error:
            raise self._damaged(str(error)) from error
        return Reading(self._meta, False, tuple(rows))

    def _row(self, lookup: _Lookup, key: bytes) -> StoredRow | None:
        number = zlib.crc32(key) >> self._shift
        start, end = OFFSETS.unpack_from(self._map, self._offsets_at + OFFSET_BYTES * number)
        content = self._map[start + CHECKSUM.size : end]
        if CHECKSUM.unpack_from(self._map, start)[0] != zlib.crc32(content, number):
            raise self._damaged(f"bucket {number} has another checksum")
        raw = _decode_bucket(content).get(key)
        if raw is None:
            return None
        recorded_at_us, *values = lookup.decode_row(raw)
        return StoredRow(dict(zip(lookup.features, values, strict=True)), recorded_at_us)

    def _lookups(self, views: tuple[View, ...]) -> list[_Lookup]:
        planned = self._planned
        if planned[0] is not views:  # a bundle asks with the same tuple each time
            planned = self._planned = (views, [self._lookup(view) for view in views])
        return planned[1]

    def _lookup(self, view: View) -> _Lookup:
        try:
            place = self.footer.views.index(view)
        except ValueError:
            raise StoreError(
                f"snapshot {self._path} (leap-throughput {self.footer.library_version}) has no view {view.view!r} with "
                "the bundle's join keys and features: write it again with the release that published the bundle"
            ) from None
        row_type = GenericAlias(tuple, (int | None, *(_TYPES[feature.type] for feature in view.features)))
        decode = msgspec.msgpack.Decoder(row_type).decode
        return _Lookup(view.view, place, _values_of(view.join_keys), decode, tuple(f.name for f in view.features))

    def _refuse_changed(self) -> None:
        try:
            found = os.fstat(self._descriptor)
        except OSError as error:
            raise StoreError(f"snapshot {self._path} cannot be read: {error}") from error
        if _stamp(found) != self.stamp:
            raise StoreError(
                f"snapshot {self._path} was changed in place: replace it by a rename, as `leap snapshot` does"
            )

    def _damaged(self, how: str) -> SnapshotRefused:
        return SnapshotRefused(f"snapshot {self._path} is damaged ({how}): write it again with `leap snapshot`")

    def _checked(self, size: int) -> Footer:
        if size < len(MAGIC) + TRAILER.size:
            raise self._damaged(f"it has {size} bytes")
        length, digest, magic = TRAILER.unpack(self._exactly(size - TRAILER.size, TRAILER.size))
        if magic != MAGIC or self._exactly(0, len(MAGIC)) != MAGIC:
            raise self._damaged("it does not begin and end as a snapshot does")
        before = size - TRAILER.size - length
        if length > MAX_FOOTER_BYTES or before < len(MAGIC):
            raise self._damaged(f"its footer would have {length} bytes")
        raw = self._exactly(before, length)
        if hashlib.sha256(raw).digest() != digest:
            raise self._damaged("its footer has another SHA-256")
        footer = self._decode_footer(raw)
        if footer.size != before or footer.offsets_at < len(MAGIC):
            raise self._damaged(f"{before} bytes lie before its footer, which says {footer.size}")
        if self._digest(before) != footer.sha256:
            raise self._damaged("its content has another SHA-256")
        self._refuse_changed()
        return footer

    def _decode_footer(self, raw: bytes) -> Footer:
        try:
            head = msgspec.json.decode(raw, type=_Head)
            if head.format != FORMAT:
                raise SnapshotRefused(
                    f"snapshot {self._path} has format {head.format} (written by leap-throughput "
                    f"{head.library_version}), this release reads format {FORMAT}: write it again with this release"
                )
            return msgspec.json.decode(raw, type=Footer)
        except msgspec.MsgspecError as error:
            raise self._damaged(f"its footer breaks a rule: {error}") from error

    def _digest(self, size: int) -> str:
        """SHA-256 of the first `size` bytes, read without mapping them: so they are not counted as this process's."""
        digest = hashlib.sha256()
        for at in range(0, size, _PIECE):
            digest.update(self._exactly(at, min(_PIECE, size - at)))
        return digest.hexdigest()

    def _exactly(self, at: int, length: int) -> bytes:
        parts = []
        while length:
            part = os.pread(self._descriptor, length, at)
            if not part:
                raise self._damaged("it was cut short while it was read")
            parts.append(part)
            at += len(part)
            length -= len(part)
        return b"".join(parts)


def row_bytes(recorded_at_us: int | None, values: Sequence[Value]) -> bytes:
    """A row as it is stored; `values` in the order of the view's features."""
    return msgspec.msgpack.encode((recorded_at_us, *values))


def _values_of(join_keys: tuple[str, ...]) -> Callable[[Subject], tuple[str | int, ...]]:
    if len(join_keys) > 1:
        return attrgetter(*join_keys)
    (name,) = join_keys
    return lambda subject: (getattr(subject, name),)


def _stamp(found: os.stat_result) -> Hashable:
    return found.st_mtime_ns, found.st_size, found.st_ino

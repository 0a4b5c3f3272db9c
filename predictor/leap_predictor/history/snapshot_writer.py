"""Writes a snapshot: rows in any order in, one file out, in memory that does not grow with their number.

The steps: (1) rows are sorted into 64 nameless files by the highest bits of their keys' checksum; (2) each of these is
read, its keys put into buckets and the buckets appended to a hidden file beside the target; (3) that is forced to disk
and takes the target's name. A crash leaves what was there before, and a hidden file that a later run removes.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import struct
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from leap_features.durable import LEFTOVER_AFTER_S, replaceable, sync, temporary_path
from leap_features.layout import Value
from leap_predictor.bundle import library_version
from leap_predictor.history.request import MetaReading
from leap_predictor.history.snapshot_file import (
    CHECKSUM,
    FEWEST_BUCKET_BITS,
    FORMAT,
    MAGIC,
    TRAILER,
    Buckets,
    Footer,
    bucket_checksum,
    bucket_of,
    encode_key,
    row_bytes,
)
from leap_predictor.manifest import View

ROWS_PER_BUCKET: Final = 4
"""At most, on average: a lookup decodes the whole bucket, and each costs 13 bytes and more."""

_PART_BITS: Final = FEWEST_BUCKET_BITS
_PART_BUFFER: Final = 1 << 16
_LENGTHS: Final = struct.Struct("<2I")


class SnapshotRow(NamedTuple):
    """The row of one key of a view."""

    view: View
    key: tuple[str | int, ...]
    """Values of the view's join keys, in their order."""
    values: Sequence[Value]
    """Of the view's features, in their order."""
    recorded_at_us: int | None


class _Output:
    """A file that is hashed while it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def write_snapshot(
    path: Path,
    rows: Iterable[SnapshotRow],
    *,
    views: tuple[View, ...],
    project: str,
    meta: MetaReading,
    as_of: datetime,
) -> Footer:
    """Write `rows` to `path`, or where its links lead, replacing the file that is there in one step.

    Args:
        rows: in any order; of rows of one key the last one stays.
        views: that rows may be of.
        meta: of the store that they were read from.
        as_of: what the store had taken in by then is in `rows`.

    Raises:
        NotReplaceable: something else than a regular file is there, or no directory.
        OSError: it cannot be written; what was there is as it was.
    """
    path = replaceable(path)
    _remove_leftovers(path)
    hidden = temporary_path(path.parent, path.name)
    try:
        with contextlib.ExitStack() as open_parts:
            parts = [
                open_parts.enter_context(tempfile.TemporaryFile(dir=path.parent, buffering=_PART_BUFFER))
                for _ in range(1 << _PART_BITS)
            ]
            count = _sort_into(parts, rows, views)
            bits = max(FEWEST_BUCKET_BITS, (max(count - 1, 0) // ROWS_PER_BUCKET).bit_length())
            with hidden.open("xb") as file:
                output = _Output(file)
                counts = _write_buckets(output, parts, bits)
                footer = Footer(
                    format=FORMAT,
                    library_version=library_version(),
                    project=project,
                    history_schema=meta.schema,
                    family_rule=meta.family_rule,
                    generation=meta.generation,
                    as_of=as_of,
                    views=views,
                    rows={view.view: counts[place] for place, view in enumerate(views)},
                    bucket_bits=bits,
                    size=output.size,
                    sha256=output.sha256,
                )
                raw = msgspec.json.encode(footer)
                file.write(raw)
                file.write(TRAILER.pack(len(raw), hashlib.sha256(raw).digest(), MAGIC))
                file.flush()
                os.fsync(file.fileno())
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
    sync(path.parent)
    return footer


def _remove_leftovers(path: Path) -> None:
    """Remove the hidden files of writers of `path` that were killed; those of the last day may be at work."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if left.stat().st_mtime < time.time() - LEFTOVER_AFTER_S:
                left.unlink()


def _sort_into(parts: Sequence[IO[bytes]], rows: Iterable[SnapshotRow], views: Sequence[View]) -> int:
    """Write each row to the file of its part; how many there were."""
    place_of = {view.view: place for place, view in enumerate(views)}
    count = 0
    for row in rows:
        key = encode_key((place_of[row.view.view], *row.key))
        content = row_bytes(row.recorded_at_us, row.values)
        parts[bucket_of(key, _PART_BITS)].write(_LENGTHS.pack(len(key), len(content)) + key + content)
        count += 1
    return count


def _write_buckets(output: _Output, parts: Sequence[IO[bytes]], bits: int) -> Counter[int]:
    """Write the buckets and the table of their offsets; how many keys there are per place of a view."""
    counts: Counter[int] = Counter()
    offsets = array("Q")
    output.write(MAGIC)
    encode = msgspec.msgpack.Encoder().encode
    for part in parts:
        buckets: list[Buckets] = [{} for _ in range(1 << (bits - _PART_BITS))]
        for key, row in _records(part):
            buckets[bucket_of(key, bits) & (len(buckets) - 1)][key] = msgspec.Raw(row)
        for bucket in buckets:
            content = encode(bucket)
            checksum = CHECKSUM.pack(bucket_checksum(len(offsets), content))
            offsets.append(output.size)
            output.write(checksum + content)
            counts.update(key[1] for key in bucket)  # after the byte that says how long the key's array is
    offsets.append(output.size)
    if sys.byteorder == "big":
        offsets.byteswap()
    output.write(offsets.tobytes())
    return counts


def _records(part: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    part.seek(0)
    data = part.read()
    at = 0
    while at < len(data):
        key_length, row_length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        yield data[at : at + key_length], data[at + key_length : at + key_length + row_length]
        at += key_length + row_length

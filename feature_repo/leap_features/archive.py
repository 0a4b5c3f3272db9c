"""The archive: every event that ever came, in Parquet segments. It is the source of truth, and this is its format.

    archive.json                                                       {"format": 1}
    epoch={E}/date={YYYY-MM-DD}/p{partition}-{first}-{last}.parquet    one segment
    epoch={E}/topic.json                                               which life of the topic it is (`archive_epochs`)

A segment covers the offsets from `first` to `last` of one partition, both included: those of gaps in the log and of
records that are no events too, so it may hold fewer rows than offsets, or none. Its date is the UTC day on which its
first event was recorded. Segments appear whole (written under another name, synced, then linked), are never
overwritten, and may overlap; readers take each position once. Only names of that form are segments: a reader never
sees one that is still being written.

Imported runs lie in epochs of their own, 1, 2, 3, …; live epochs begin at `FIRST_LIVE_EPOCH`.
"""

# ruff: noqa: S608 - the queries hold this product's own names; paths are quoted where they are put in.

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leap_features import archive_epochs, attempts
from leap_features.archive_epochs import ArchiveError
from leap_features.archive_reader import Segment, connect, relation
from leap_features.archive_rows import to_record, to_table
from leap_features.durable import durable_directory, publish, sync
from leap_features.events import from_us, to_us
from leap_features.history import Position
from leap_features.meta import FIRST_LIVE_EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ArchiveError",
    "ArchiveHole",
    "Segment",
    "archived_offsets",
    "check_complete",
    "check_format",
    "connect",
    "create",
    "end_offsets",
    "exists",
    "find_attempts",
    "next_import_epoch",
    "relation",
    "reserve_import_epoch",
    "segments",
    "to_record",
    "write_segment",
]

FORMAT: Final = 1
MARKER: Final = "archive.json"

_NAME: Final = re.compile(r"p(\d{5,})-(\d{20})-(\d{20})\.parquet")
_EPOCH: Final = re.compile(r"epoch=(\d+)")
_DATE: Final = re.compile(r"date=\d{4}-\d{2}-\d{2}")


class ArchiveHole(ArchiveError):
    """The archive lacks events.

    Attributes:
        epoch, partition: where.
        first, last: the offsets that are missing, both included.
    """

    def __init__(self, epoch: int, partition: int, first: int, last: int, why: str) -> None:
        super().__init__(
            f"the archive has a hole: epoch {epoch}, partition {partition} lacks offsets {first} to {last} ({why})"
        )
        self.epoch, self.partition, self.first, self.last = epoch, partition, first, last


def create(root: Path | str) -> None:
    """Make `root` an archive, unless it is one.

    Raises:
        ArchiveError: `root` is an archive of another format.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    if not exists(root):
        publish(root, MARKER, json.dumps({"format": FORMAT}).encode() + b"\n", replace=True)
    check_format(root)


def exists(root: Path | str) -> bool:
    """Whether there is an archive at `root`, of whatever format."""
    return (Path(root) / MARKER).exists()


def check_format(root: Path | str) -> None:
    """Check that `root` is an archive that this release reads.

    Raises:
        ArchiveError: it is none.
    """
    marker = Path(root) / MARKER
    try:
        found = json.loads(marker.read_bytes())["format"]
    except FileNotFoundError:
        raise ArchiveError(
            f"{root} is no archive: it has no {MARKER}; check LEAP_ARCHIVE, or run `leap init`"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f'{marker} must be like {{"format": {FORMAT}}}; restore it from another archive') from None
    if found != FORMAT:
        raise ArchiveError(f"{root} is an archive of format {found!r}, this release reads format {FORMAT}")


def write_segment(
    root: Path | str,
    epoch: int,
    partition: int,
    first: int,
    last: int,
    records: Sequence[Mapping[str, Any]] | pa.Table,
    *,
    recorded_at_us: int = 0,
) -> Path:
    """Write the segment that covers offsets `first` to `last`, durably; when this returns it survives a power cut.

    Args:
        records: rows made by `to_record`, ascending by offset, or a table of the archive's schema; may be empty.
        recorded_at_us: record time of the first record covered, used for the date where `records` is empty.

    Raises:
        FileExistsError: the archive has that very segment already; it is left alone.
        ValueError: a record lies outside the range.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = records if isinstance(records, pa.Table) else to_table(records)
    if first < 0 or last < first:
        raise ValueError(f"a segment covers at least one offset, got {first} to {last}")
    if table.num_rows:
        offsets = table["offset"].to_numpy()
        if offsets.min() < first or offsets.max() > last:
            raise ValueError(
                f"records of offsets {offsets.min()} to {offsets.max()} do not lie in segment {first} to {last}"
            )
        recorded_at_us = to_us(table["recorded_at"][0].as_py())
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    day = from_us(recorded_at_us).date()
    directory = durable_directory(Path(root), f"epoch={epoch:d}", f"date={day.isoformat()}")
    name = f"p{partition:05d}-{first:020d}-{last:020d}.parquet"
    return publish(directory, name, sink.getvalue(), replace=False)


def segments(root: Path | str) -> list[Segment]:
    """All segments of the archive, by epoch, partition and offsets.

    Raises:
        ArchiveError: `root` is no archive.
    """
    check_format(root)
    found = []
    for epoch, directory in _epochs(Path(root)):
        for day in directory.iterdir():
            if not _DATE.fullmatch(day.name):
                continue
            for path in day.iterdir():
                if match := _NAME.fullmatch(path.name):
                    found.append(Segment(epoch, int(match[1]), int(match[2]), int(match[3]), path))
    return sorted(found)


def _epochs(root: Path) -> list[tuple[int, Path]]:
    return [(int(m[1]), entry) for entry in root.iterdir() if (m := _EPOCH.fullmatch(entry.name)) and entry.is_dir()]


def check_complete(root: Path | str, still_in_topic: Mapping[tuple[int, int], int] | None = None) -> list[Segment]:
    """Check that the archive lacks no event; its segments, as they were when it was checked.

    Args:
        still_in_topic: (epoch, partition) → first offset that the topic still has. What the topic has lost the archive
            must have.

    Raises:
        ArchiveHole: there is a gap between two segments, an import does not begin at offset 0, or the archive begins
            after the topic's first offset or ends before it.
        ArchiveError: there is no archive, or it cannot be read.
    """
    found = segments(root)
    ends: dict[tuple[int, int], int] = {}
    for epoch, partition, first, last, path in found:
        lane = (epoch, partition)
        # A live epoch begins where the topic began when it was first archived: not after what it has now.
        begin = 0 if epoch < FIRST_LIVE_EPOCH else min(first, (still_in_topic or {}).get(lane, first))
        end = ends.get(lane, begin)
        if first > end:
            raise ArchiveHole(*lane, end, first - 1, f"{path.name} comes next; restore the segments before it")
        ends[lane] = max(end, last + 1)
    for (epoch, partition), first in (still_in_topic or {}).items():
        life = archive_epochs.noted(root, epoch)
        end = ends.get((epoch, partition), life.begins.get(partition, 0) if life else 0)
        if end < first:
            why = "the topic has deleted them already; `leap rebuild --new-epoch` goes on without them"
            raise ArchiveHole(epoch, partition, end, first - 1, why)
    return found


def archived_offsets(root: Path | str, epoch: int) -> dict[int, range]:
    """Per partition of `epoch`, the offsets that are archived without a hole between them, from the first on."""
    found: dict[int, range] = {}
    for segment in segments(root):
        if segment.epoch == epoch:
            before = found.get(segment.partition, range(segment.first, segment.first))
            if segment.first <= before.stop:
                found[segment.partition] = range(before.start, max(before.stop, segment.last + 1))
    return found


def end_offsets(root: Path | str, epoch: int) -> dict[int, int]:
    """Per partition of `epoch`, the offset after the last one that is archived without a hole before it."""
    return {partition: offsets.stop for partition, offsets in archived_offsets(root, epoch).items()}


def next_import_epoch(root: Path | str) -> int:
    """The epoch for the next import.

    Raises:
        ArchiveError: `root` is no archive, or has no room for another import.
    """
    check_format(root)
    epoch = 1 + max((epoch for epoch, _ in _epochs(Path(root)) if epoch < FIRST_LIVE_EPOCH), default=0)
    if epoch >= FIRST_LIVE_EPOCH:
        raise ArchiveError(f"{root} has the last import epoch, {epoch - 1}, already")
    return epoch


def reserve_import_epoch(root: Path | str) -> int:
    """An import epoch that no other import gets, even one that runs at the same time.

    Raises:
        ArchiveError: `root` is no archive, or has no room for another import.
    """
    while True:
        epoch = next_import_epoch(root)
        try:
            (Path(root) / f"epoch={epoch:d}").mkdir()
        except FileExistsError:
            continue
        sync(Path(root))
        return epoch


def find_attempts(
    root: Path | str, wanted: Sequence[tuple[bool, str]], horizon_us: int
) -> dict[tuple[bool, str], tuple[Position, str]]:
    """First position and content digest of each attempt (succeeded, attempt_id) of `wanted` that the archive has.

    Events that the worker turned away (too late and not replayed) do not count.

    Args:
        horizon_us: the worker's horizon, in microseconds.
    """
    found = segments(root)
    if not wanted or not found:
        return {}
    import pyarrow as pa  # noqa: PLC0415

    unique = sorted(set(wanted))
    # DuckDB reads the table by this name.
    wanted_table = pa.table({"succeeded": [s for s, _ in unique], "attempt_id": [a for _, a in unique]})
    with connect() as connection:
        connection.register("wanted", wanted_table)
        # The id alone decides for nearly all rows; the other columns are read for what is left.
        connection.execute(f"""
            CREATE TEMP TABLE candidates AS
            SELECT events.* FROM ({relation(found, attempts.NEEDED, attempts.taken_in(horizon_us))}) AS events
            SEMI JOIN wanted
            ON events.attempt_id = wanted.attempt_id AND (events.status = 'succeeded') = wanted.succeeded
        """)
        rows = connection.execute(f"""
            SELECT status = 'succeeded', attempt_id, epoch, partition, "offset", digest
            FROM ({attempts.with_first("candidates")}) WHERE folds
        """).fetchall()
    return {(s, attempt): (Position(*position), digest) for s, attempt, *position, digest in rows}

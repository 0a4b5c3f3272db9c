"""`leap import`: past runs into the archive, in an epoch of their own, recorded when they completed.

Runs are numbered in the order of (completed_at, attempt_id). An attempt that the archive has already is left out, so
that importing the same table twice adds nothing; one that it has with other content is a conflict and is set aside.
"""

# ruff: noqa: S608 - names are this product's own, paths are quoted.

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leap_features import archive, archive_reader, archive_rows, attempts, family
from leap_features.events import to_us
from leap_features.history import Position
from leap_training.past_runs import PastRun, Rejects

if TYPE_CHECKING:
    import duckdb

SEGMENT_ROWS: Final = 200_000
ROWS_AT_ONCE: Final = 20_000

STAGED: Final = "staged.parquet"
PARTITION: Final = 0
"""Imports have one partition."""


class Imported(msgspec.Struct, frozen=True):
    """What became of the rows of a table that are events."""

    epoch: int | None
    """Of the import; None where there was nothing to add."""
    added: int
    already_there: int
    """Attempts that the archive had, with the same content."""
    repeated: int
    """Rows that say again, with the same content, what an earlier row of the table says."""
    conflicts: int
    """Attempts of which the archive or an earlier row says otherwise; set aside."""


class _Judgement(NamedTuple):
    added: int
    already_there: int
    repeated: int


def import_runs(
    root: Path,
    runs: Iterable[PastRun],
    rejects: Rejects,
    *,
    horizon_us: int,
    rules: family.Rules = family.DEFAULT_RULES,
    dry_run: bool = False,
) -> Imported:
    """Add `runs` to the archive at `root`, which is made if there is none; conflicts go to `rejects`.

    Args:
        horizon_us: the worker's horizon, which says which archived events count as attempts.
        dry_run: only say what would be done.

    Raises:
        ArchiveError: `root` is an archive of another format.
    """
    if not dry_run:
        archive.create(root)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=None if dry_run else root) as scratch:
        staged = Path(scratch) / STAGED
        _stage(staged, runs, rules)
        with archive_reader.connect(Path(scratch) / "spill") as connection:
            found = archive.segments(root) if archive.exists(root) else []
            _judge(connection, staged, found, horizon_us)
            conflicts = _set_conflicts_aside(connection, rejects)
            judgement = _Judgement(*_one(connection, _COUNTS))
            epoch = None
            if judgement.added and not dry_run:
                epoch = archive.reserve_import_epoch(root)
                _write(connection, root, epoch)
    return Imported(epoch, *judgement, conflicts)


def _stage(target: Path, runs: Iterable[PastRun], rules: family.Rules) -> None:
    """Write the archive rows of `runs` to a file, with the row's number in place of the offset."""
    remaining = iter(runs)
    with pq.ParquetWriter(target, archive_rows.arrow_schema()) as writer:
        while batch := list(islice(remaining, ROWS_AT_ONCE)):
            writer.write_table(archive_rows.to_table([_record(run, rules) for run in batch]))


def _record(run: PastRun, rules: family.Rules) -> dict[str, Any]:
    recorded_at_us = to_us(run.event.completed_at)
    return archive.to_record(run.event, Position(0, PARTITION, run.row), recorded_at_us, False, rules)


def _judge(connection: duckdb.DuckDBPyConnection, staged: Path, found: list[archive.Segment], horizon_us: int) -> None:
    """Make the table `judged`: what is new, and what the archive or an earlier row has already."""
    # Attempts without an effect on history, cancelled or preempted, are compared by content alone.
    archived = archive_reader.relation(found, attempts.NEEDED)
    connection.execute(f"CREATE VIEW staged AS SELECT * FROM read_parquet({archive_reader.file_literal(staged)})")
    connection.execute(f"""
        CREATE TABLE met AS
        SELECT archived.* FROM ({archived}) AS archived SEMI JOIN staged USING (attempt_id, status)
    """)
    connection.execute(f"CREATE TABLE effective AS SELECT * FROM met WHERE {attempts.taken_in(horizon_us)}")
    connection.execute(f"""
        CREATE TABLE known AS
        SELECT attempt_id, status, digest FROM ({attempts.with_first("effective")}) WHERE folds
        UNION ALL
        SELECT DISTINCT attempt_id, status, digest FROM met
        SEMI JOIN staged USING (attempt_id, status, digest) WHERE status NOT IN ('succeeded', 'failed')
    """)
    connection.execute("""
        CREATE TABLE judged AS
        SELECT "offset" AS row_number, staged.attempt_id, staged.status, staged.digest, completed_at,
            known.digest IS NOT NULL AS there,
            row_number() OVER attempt = 1 AS leads,
            coalesce(known.digest, first_value(staged.digest) OVER attempt) AS true_digest
        FROM staged LEFT JOIN known USING (attempt_id, status)
        WINDOW attempt AS (PARTITION BY attempt_id, status ORDER BY completed_at, "offset")
    """)


_COUNTS: Final = """
    SELECT count(*) FILTER (leads AND NOT there AND digest = true_digest),
        count(*) FILTER (there AND digest = true_digest),
        count(*) FILTER (NOT leads AND NOT there AND digest = true_digest)
    FROM judged
"""


def _set_conflicts_aside(connection: duckdb.DuckDBPyConnection, rejects: Rejects) -> int:
    cursor = connection.execute(
        "SELECT row_number, attempt_id, status, there FROM judged WHERE digest <> true_digest ORDER BY row_number"
    )
    count = 0
    while batch := cursor.fetchmany(ROWS_AT_ONCE):
        for row, attempt_id, status, there in batch:
            where = "the archive" if there else "an earlier row"
            message = f"attempt {attempt_id} ({status}) is in {where} with other content; an attempt has one outcome"
            rejects.add(row, "conflicting_attempt", attempt_id, message, None)
        count += len(batch)
    return count


def _write(connection: duckdb.DuckDBPyConnection, root: Path, epoch: int) -> None:
    """Write what is new as segments of `epoch`."""
    schema = archive_rows.arrow_schema()
    columns = ", ".join(f'"{name}"' for name in schema.names if name not in ("epoch", "offset"))
    reader = connection.sql(f"""
        SELECT {epoch}::BIGINT AS epoch,
            row_number() OVER (ORDER BY completed_at, attempt_id, status) - 1 AS "offset", {columns}
        FROM staged SEMI JOIN (SELECT * FROM judged WHERE leads AND NOT there) AS new
        ON staged."offset" = new.row_number
        ORDER BY 2
    """).to_arrow_reader(SEGMENT_ROWS)
    for table in _tables(reader, schema):
        first, last = table["offset"][0].as_py(), table["offset"][-1].as_py()
        archive.write_segment(root, epoch, PARTITION, first, last, table)


def _tables(reader: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """What `reader` gives, ordered by offset, as tables of about `SEGMENT_ROWS` rows and of the archive's schema."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= SEGMENT_ROWS:
            yield pa.Table.from_batches(waiting).select(schema.names).cast(schema)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting).select(schema.names).cast(schema)


def _one(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    (row,) = connection.execute(query).fetchall()
    return tuple(row)

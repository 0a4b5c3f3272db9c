"""Reads the jobs whose waste is measured: from an archive, or from a table of past runs."""

# ruff: noqa: S608 - columns and conditions are this product's own.

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from leap_features import archive, archive_reader, attempts
from leap_features.events import content_digest
from leap_features.family import Rules
from leap_features.hardware import Catalogue
from leap_features.history_rows import name_families_anew
from leap_training.past_runs import Reading, Rejects, past_runs
from leap_training.tables import Table
from leap_training.waste.jobs import Jobs, JobsBuilder

ROWS_AT_ONCE: Final = 20_000

_NEEDED: Final = (
    *attempts.NEEDED,
    *("job_family", "family_given", "family_rule", "job_name", "model_type", "hardware_type", "trainer_count"),
    *("reader_count", "batch_size", "throughput", "device_hours", "eligible_hardware", "config"),
)

Progress = Callable[[int], None]
"""Is told how much more has been read, in the unit of the length given."""


def read_table(
    table: Table,
    reading: Reading,
    rejects: Rejects,
    catalogue: Catalogue,
    rules: Rules,
    progress: Progress,
    *,
    keep_ids: bool = False,
) -> Jobs:
    """The jobs of a table of runs; what is no event goes to `rejects`, and of a repeated attempt the first row counts.

    Raises:
        MappingError, TableError: the table cannot be read so.
    """
    builder = JobsBuilder(catalogue, keep_ids=keep_ids)
    seen: dict[tuple[str, bool], int] = {}
    for _, event in past_runs(table, reading, rejects, progress):
        attempt = event.attempt_id, event.status == "succeeded"
        content = hash(content_digest(event))
        if attempt in seen:
            builder.leave_out("repeated" if seen[attempt] == content else "repeated with other content")
            continue
        seen[attempt] = content
        builder.add_event(event, rules)
    if rejects.total:
        builder.leave_out("broken", rejects.total)
    return builder.jobs()


def read_archive(
    root: Path,
    horizon_us: int,
    catalogue: Catalogue,
    rules: Rules,
    bar: Callable[[int], AbstractContextManager[Progress]],
    *,
    keep_ids: bool = False,
) -> Jobs:
    """The jobs of an archive: the attempts that count for history.

    Args:
        horizon_us: events recorded later than this after completion do not count, unless replayed; microseconds.
        bar: is told how many attempts there are to read, and gives what is told of each step.

    Raises:
        ArchiveError: there is no archive, or it cannot be read.
    """
    found = archive.segments(root)
    builder = JobsBuilder(catalogue, keep_ids=keep_ids)
    with (
        tempfile.TemporaryDirectory(prefix="leap-waste-") as spill,
        archive_reader.connect(spill) as connection,
    ):
        connection.execute("SET preserve_insertion_order = false")  # bounds the memory; the order does not matter
        taken_in = attempts.taken_in(horizon_us)
        connection.execute(f"CREATE TABLE effective AS {archive_reader.relation(found, _NEEDED, taken_in)}")
        name_families_anew(connection, rules)
        connection.execute(f"CREATE TABLE judged AS {attempts.with_first('effective')}")
        everything = archive_reader.relation(found, ("status",))
        for status, count in connection.execute(
            f"SELECT status, count(*) FROM ({everything}) WHERE status NOT IN ('succeeded', 'failed') GROUP BY ALL"
        ).fetchall():
            builder.leave_out(status, count)
        ((total,),) = connection.execute("SELECT count(*) FROM judged").fetchall()
        rows = connection.execute("""
            SELECT folds, status = 'succeeded', attempt_id, model_type, job_family, hardware_type, config,
                eligible_hardware, trainer_count, reader_count, batch_size, throughput, device_hours,
                epoch_us(completed_at)
            FROM judged
        """)
        with bar(total) as progress:
            while batch := rows.fetchmany(ROWS_AT_ONCE):
                for row in batch:
                    _add(builder, row)
                progress(len(batch))
    return builder.jobs()


def _add(builder: JobsBuilder, row: tuple) -> None:  # type: ignore[type-arg]  # a row of DuckDB
    folds, succeeded, attempt_id, model_type, family, hardware_type, config, eligible, trainers, readers, *numbers = row
    batch, throughput, device_hours, completed_us = numbers
    if not folds:
        builder.leave_out("repeated")
    elif succeeded:
        builder.add(
            attempt_id=attempt_id,
            model_type=model_type,
            family=family,
            hardware_type=hardware_type,
            config=config,
            eligible=eligible,
            trainers=trainers,
            readers=readers,
            batch=batch,
            throughput=throughput,
            device_hours=device_hours,
            completed_us=completed_us,
        )
    else:
        builder.leave_out("failed")
        builder.add_failed(
            model_type=model_type, hardware_type=hardware_type, config=config, trainers=trainers, batch=batch
        )

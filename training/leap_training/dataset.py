"""`leap dataset`: the training set. One row per attempt that succeeded, with its history as of its submission.

The join is Feast's `get_historical_features`, for the very feature service that the launcher is served by. An attempt
never sees itself: where clocks put its record time at or before its submission, it is left out and counted. An attempt
without history is kept; its history features are null.
"""

# ruff: noqa: S608 - names are this product's own, paths are quoted.

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from leap_features import archive, archive_reader, attempts, family, feature_store, history_build, parquet_files
from leap_features.columns import history_column
from leap_features.events import FIXED_POINT
from leap_features.history_rows import name_families_anew
from leap_features.levels import LEVELS
from leap_features.settings import Settings

if TYPE_CHECKING:
    import duckdb

SERVICE: Final = "ranking_v1"

ATTEMPT_COLUMNS: Final = {
    "attempt_id": "attempt_id",
    "job_family": "job_family",
    "model_type": "model_type",
    "hardware_type": "hardware_type",
    "trainer_count": "trainer_count",
    "reader_count": "reader_count",
    "batch_size": "batch_size",
    "submitted_at": "submitted_at",
    "completed_at": "completed_at",
    "recorded_at": "recorded_at",
    "throughput": "throughput",
    "log_throughput": f"x / {FIXED_POINT}::DOUBLE",
    "config": "config",
    "architecture": "architecture",
    "device_hours": "device_hours",
}
"""Columns of an attempt and what they are in the archive. Throughput is in samples per second over all trainers; its
logarithm is the natural one, with the very value that history counts."""

_NEEDED: Final = (
    *attempts.NEEDED,
    *("x", "job_family", "family_given", "family_rule", "job_name", "model_type", "hardware_type", "submitted_at"),
    *("throughput", "trainer_count", "reader_count", "batch_size", "device_hours", "config", "architecture"),
)


class DatasetError(ValueError):
    """A training set that cannot be written; the message says what to do."""


class Written(msgspec.Struct, frozen=True):
    """What is in the training set, and what is not. The numbers add up to `succeeded`."""

    succeeded: int
    """Events of succeeded attempts in the archive."""
    rows: int
    cold_starts: int
    """Of the rows: attempts of which no level had history."""
    outside: int
    """Submitted outside the time asked for."""
    sees_itself: int
    """Recorded at or before their submission."""
    duplicates: int
    """Duplicates of an attempt, and conflicts with it."""
    turned_away: int
    """Recorded too late, or from the future: not part of history either."""


def write_dataset(
    settings: Settings,
    out: Path,
    *,
    rules: family.Rules,
    start: datetime | None = None,
    end: datetime | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Written:
    """Write the training set to the Parquet file `out`; the history rows are built first where they are not current.

    Args:
        start, end: keep attempts submitted from `start` on and before `end`; aware times, None for no bound.

    Raises:
        ArchiveError, HistoryError, FeatureRepoError: there is nothing to make it from.
        DatasetError: no attempt is left.
    """
    if not history_build.is_current(settings.archive, settings.history, horizon_us=settings.horizon_us, rules=rules):
        say("history rows are behind the archive: building them")
        history_build.build(settings.archive, settings.history, horizon_us=settings.horizon_us, rules=rules, say=say)
    with tempfile.TemporaryDirectory(prefix="leap-dataset-") as scratch:
        chosen = Path(scratch) / "attempts.parquet"
        with archive_reader.connect(Path(scratch) / "spill") as connection:
            counts = _choose(connection, settings, chosen, rules, start, end)
        if not counts.succeeded:
            raise DatasetError("no attempt in the archive succeeded: there is nothing to learn throughput from")
        if not counts.rows:
            raise DatasetError(
                f"no attempt is left of {counts.succeeded} succeeded ones: {counts.outside} were submitted outside the "
                f"time asked for, {counts.sees_itself} recorded at or before their submission, "
                f"{counts.turned_away} recorded too late, {counts.duplicates} are duplicates"
            )
        say(f"joining the history of {counts.rows:,} attempts")
        table = _joined(settings, chosen, Path(scratch) / "registry.db")
    latest = [pc.is_null(table[history_column(level.view, "last")]) for level in LEVELS]
    cold_starts = pc.sum(reduce(pc.and_, latest)).as_py()
    parquet_files.write(table, out)
    return msgspec.structs.replace(counts, cold_starts=cold_starts)


def _choose(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    target: Path,
    rules: family.Rules,
    start: datetime | None,
    end: datetime | None,
) -> Written:
    """Write the attempts to join to the Parquet file `target`, as entity rows."""
    found = archive.segments(settings.archive)
    succeeded = archive_reader.relation(found, ("offset",), "status = 'succeeded'")
    ((total,),) = connection.execute(f"SELECT count(*) FROM ({succeeded})").fetchall()
    taken_in = f"status = 'succeeded' AND {attempts.taken_in(settings.horizon_us)}"
    connection.execute(f"CREATE TABLE effective AS {archive_reader.relation(found, _NEEDED, taken_in)}")
    name_families_anew(connection, rules)
    connection.execute(f"CREATE TABLE judged AS {attempts.with_first('effective')}")
    bounds = {
        "start": start or datetime.min.replace(tzinfo=UTC),
        "end": end or datetime.max.replace(tzinfo=UTC),
    }
    connection.execute(
        """
        CREATE TABLE marked AS
        SELECT *, submitted_at >= $start::TIMESTAMPTZ AND submitted_at < $end::TIMESTAMPTZ AS inside,
            recorded_at <= submitted_at AS sees_itself
        FROM judged WHERE folds
        """,
        bounds,
    )
    ((taken,),) = connection.execute("SELECT count(*) FROM judged").fetchall()
    ((first, rows, outside, sees_itself),) = connection.execute("""
        SELECT count(*), count(*) FILTER (inside AND NOT sees_itself), count(*) FILTER (NOT inside),
            count(*) FILTER (inside AND sees_itself)
        FROM marked
    """).fetchall()
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in ATTEMPT_COLUMNS.items())
    connection.execute(f"""
        COPY (
            SELECT {chosen}, submitted_at AS event_timestamp FROM marked WHERE inside AND NOT sees_itself
            ORDER BY submitted_at, attempt_id
        ) TO {archive_reader.quoted(str(target))} (FORMAT parquet)
    """)
    return Written(total, rows, 0, outside, sees_itself, taken - first, total - taken)


def _joined(settings: Settings, chosen: Path, registry: Path) -> pa.Table:
    """The attempts in the Parquet file `chosen`, each with its features as of its submission."""
    # A registry of its own: what is deployed stays as it is, and the definitions are those of this code.
    store = feature_store.open_feature_store(settings, registry)
    feature_store.apply_definitions(store, settings)
    joined = store.get_historical_features(
        entity_df=f"SELECT * FROM read_parquet({archive_reader.file_literal(chosen)})",
        features=store.get_feature_service(SERVICE),
        full_feature_names=True,
    ).to_arrow()
    return joined.drop_columns(["event_timestamp"])

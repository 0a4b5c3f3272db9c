"""What a row of the archive is: its columns, and how an event becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from leap_features import family, hardware
from leap_features.events import CompletionEvent, content_digest, from_us
from leap_features.history import Position, run_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final[Mapping[str, str]] = {
    "epoch": "BIGINT",
    "partition": "INTEGER",
    "offset": "BIGINT",
    "recorded_at": "TIMESTAMPTZ",
    "replay": "BOOLEAN",
    "x": "BIGINT",
    "log_trainers": "BIGINT",
    "log_batch": "BIGINT",
    "digest": "VARCHAR",
    "job_family": "VARCHAR",
    "family_given": "BOOLEAN",
    "family_rule": "VARCHAR",
    "unknown_hardware": "BOOLEAN",
    "schema_version": "INTEGER",
    "attempt_id": "VARCHAR",
    "job_name": "VARCHAR",
    "model_type": "VARCHAR",
    "hardware_type": "VARCHAR",
    "submitted_at": "TIMESTAMPTZ",
    "started_at": "TIMESTAMPTZ",
    "completed_at": "TIMESTAMPTZ",
    "status": "VARCHAR",
    "throughput": "DOUBLE",
    "trainer_count": "BIGINT",
    "reader_count": "BIGINT",
    "batch_size": "DOUBLE",
    "device_hours": "DOUBLE",
    "eligible_hardware": "VARCHAR[]",
    "config": "VARCHAR",
    "architecture": "VARCHAR",
    "ranking": "VARCHAR",
}
"""Columns of a segment and their types in DuckDB. Times are UTC, of microseconds. `x` (null unless succeeded),
`log_trainers` and `log_batch` (null where the batch size is 0) are fixed-point logarithms; `job_family` was given with
the event or derived by `family_rule`; `config`, `architecture` and `ranking` are JSON."""

NULLABLE: Final = frozenset({"x", "log_batch", "throughput", "ranking"})

_json: Final = msgspec.json.Encoder(order="deterministic")


def to_record(
    event: CompletionEvent,
    position: Position,
    recorded_at_us: int,
    replay: bool,
    rules: family.Rules = family.DEFAULT_RULES,
) -> dict[str, Any]:
    """The row of the archive for `event`, recorded at `recorded_at_us` (microseconds since 1970) at `position`."""
    run = run_of(event)
    if run is None:  # the logarithms of trainers and batch size are kept for every event, those of throughput are not
        run = run_of(msgspec.structs.replace(event, status="failed"))
        assert run is not None  # noqa: S101  # a failed attempt always has a run
    return {
        "epoch": position.epoch,
        "partition": position.partition,
        "offset": position.offset,
        "recorded_at": from_us(recorded_at_us),
        "replay": replay,
        "x": run.x if event.status == "succeeded" else None,
        "log_trainers": run.log_trainers,
        "log_batch": run.log_batch,
        "digest": content_digest(event),
        "job_family": family.family_of_event(event, rules),
        "family_given": _family_is_given(event),
        "family_rule": rules.version,
        "unknown_hardware": event.hardware_type not in hardware.CATALOGUE,
        "schema_version": event.schema_version,
        "attempt_id": event.attempt_id,
        "job_name": event.job_name,
        "model_type": event.model_type,
        "hardware_type": event.hardware_type,
        "submitted_at": event.submitted_at,
        "started_at": event.started_at,
        "completed_at": event.completed_at,
        "status": event.status,
        "throughput": event.throughput,
        "trainer_count": event.trainer_count,
        "reader_count": event.reader_count,
        "batch_size": event.batch_size,
        "device_hours": event.device_hours,
        "eligible_hardware": list(event.eligible_hardware),
        "config": _json.encode(event.config).decode(),
        "architecture": _json.encode(event.architecture).decode(),
        "ranking": None if event.ranking is None else _json.encode(event.ranking).decode(),
    }


def _family_is_given(event: CompletionEvent) -> bool:
    """Whether the family does not depend on the family rules; a blank stem counts as none."""
    return event.job_family is not None and bool(event.job_family.removeprefix(f"{event.model_type}/").strip())


def arrow_schema() -> pa.Schema:
    """The columns of a segment as an Arrow schema."""
    import pyarrow as pa  # noqa: PLC0415  # the launcher's side imports this package without pyarrow

    types = {
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "TIMESTAMPTZ": pa.timestamp("us", tz="UTC"),
        "BOOLEAN": pa.bool_(),
        "VARCHAR": pa.string(),
        "DOUBLE": pa.float64(),
        "VARCHAR[]": pa.list_(pa.field("element", pa.string(), nullable=False)),
    }
    return pa.schema([pa.field(name, types[kind], nullable=name in NULLABLE) for name, kind in COLUMNS.items()])


def to_table(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows made by `to_record` as a table of the archive's schema."""
    import pyarrow as pa  # noqa: PLC0415

    # Column by column is three times as fast as `Table.from_pylist`.
    schema = arrow_schema()
    columns = [pa.array([record[field.name] for record in records], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)

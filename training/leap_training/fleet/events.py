"""What a fleet's attempts look like from outside: completion events, and the truth that is kept beside them.

A batch becomes columns for Parquet, or events for JSON Lines and the stream; both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from leap_features import archive_rows
from leap_features.events import SCHEMA_VERSION, CompletionEvent
from leap_training.fleet.attempts import Attempts
from leap_training.fleet.columns import taken
from leap_training.fleet.launches import STATUSES
from leap_training.fleet.simulate import Fleet

LEFT_OUT: Final = frozenset({"job_family", "ranking"})
"""Fields of the event that a fleet's events do not have."""

EVENT_SCHEMA: Final[pa.Schema] = pa.schema(
    [archive_rows.arrow_schema().field(name) for name in CompletionEvent.__struct_fields__ if name not in LEFT_OUT]
)
"""Columns of `completions.parquet`: the event's fields, of the archive's types; config and architecture are JSON."""

EVENTS_AT_ONCE: Final = 2_000
"""Attempts whose columns become Python's objects together: few, so that a stream goes on meanwhile."""

_json: Final = msgspec.json.Encoder(order="deterministic")


def truth_schema(fleet: Fleet) -> pa.Schema:
    """Columns of `truth.parquet`; see `truth_table`."""
    fixed = [
        pa.field("attempt_id", pa.string(), nullable=False),
        pa.field("model_type", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("family", pa.int64(), nullable=False),
        pa.field("hardware_type", pa.string(), nullable=False),
        pa.field("failure", pa.string(), nullable=False),
    ]
    return pa.schema(fixed + [pa.field(name, pa.float32()) for name in fleet.hardware])


def event_table(fleet: Fleet, attempts: Attempts) -> pa.Table:
    """The completion events of a batch, one row each, in its order; columns as in `EVENT_SCHEMA`."""
    count = len(attempts)
    models = [model.name for model in fleet.models]
    architectures = [_json.encode(model.architecture).decode() for model in fleet.models]
    which, distinct = _configs(attempts)
    columns = {
        "schema_version": np.full(count, SCHEMA_VERSION, dtype=np.int32),
        "attempt_id": attempts.attempt_id,
        "job_name": attempts.job_name,
        "model_type": _chosen(models, attempts.model),
        "hardware_type": _chosen(fleet.hardware, attempts.hardware),
        "submitted_at": attempts.submitted_us,
        "started_at": attempts.started_us,
        "completed_at": attempts.completed_us,
        "status": _chosen(STATUSES, attempts.status),
        "throughput": pa.array(attempts.throughput, mask=np.isnan(attempts.throughput)),
        "trainer_count": attempts.trainer_count,
        "reader_count": attempts.reader_count,
        "batch_size": attempts.batch_size,
        "device_hours": attempts.device_hours,
        "eligible_hardware": _eligible(fleet.hardware, attempts.eligible),
        "config": _chosen([_json.encode(config).decode() for config in distinct], which),
        "architecture": _chosen(architectures, attempts.model),
    }
    return _table(columns, EVENT_SCHEMA)


def truth_table(fleet: Fleet, attempts: Attempts) -> pa.Table:
    """What only the simulation knows of a batch, in the order of its events.

    Columns: attempt_id, model_type, kind, family (the true one's number), hardware_type, failure ("" for none), and one
    per hardware type with the samples per second to be expected there: null where it was not eligible, 0 where the
    attempt would run out of memory.
    """
    columns: dict[str, Any] = {
        "attempt_id": attempts.attempt_id,
        "model_type": _chosen([model.name for model in fleet.models], attempts.model),
        "kind": _chosen([model.kind for model in fleet.models], attempts.model),
        "family": attempts.family,
        "hardware_type": _chosen(fleet.hardware, attempts.hardware),
        "failure": attempts.failure,
    }
    for number, name in enumerate(fleet.hardware):
        expected = attempts.expected[:, number]
        columns[name] = pa.array(expected.astype(np.float32), mask=np.isnan(expected))
    return _table(columns, truth_schema(fleet))


def events(fleet: Fleet, attempts: Attempts) -> Iterator[CompletionEvent]:
    """The completion events of a batch, in its order."""
    for first in range(0, len(attempts), EVENTS_AT_ONCE):
        part = slice(first, first + EVENTS_AT_ONCE)
        yield from _events(fleet, taken(attempts, part))


def _events(fleet: Fleet, attempts: Attempts) -> Iterator[CompletionEvent]:
    which, distinct = _configs(attempts)
    configs = [distinct[number] for number in which.tolist()]
    eligible = _eligible(fleet.hardware, attempts.eligible).to_pylist()
    rows = zip(
        attempts.attempt_id,
        attempts.job_name,
        attempts.model.tolist(),
        attempts.hardware.tolist(),
        _times(attempts.submitted_us),
        _times(attempts.started_us),
        _times(attempts.completed_us),
        attempts.status.tolist(),
        attempts.throughput.tolist(),
        attempts.trainer_count.tolist(),
        attempts.reader_count.tolist(),
        attempts.batch_size.tolist(),
        attempts.device_hours.tolist(),
        eligible,
        configs,
        strict=True,
    )
    for (
        attempt_id,
        job_name,
        model,
        hardware,
        submitted,
        started,
        completed,
        status,
        throughput,
        trainers,
        readers,
        batch,
        hours,
        candidates,
        config,
    ) in rows:
        yield CompletionEvent(
            schema_version=SCHEMA_VERSION,
            attempt_id=attempt_id,
            job_name=job_name,
            model_type=fleet.models[model].name,
            hardware_type=fleet.hardware[hardware],
            submitted_at=submitted,
            started_at=started,
            completed_at=completed,
            status=STATUSES[status],
            throughput=None if throughput != throughput else throughput,  # noqa: PLR0124  # NaN: none was measured
            trainer_count=trainers,
            reader_count=readers,
            batch_size=batch,
            device_hours=hours,
            eligible_hardware=tuple(candidates),
            config=config,
            architecture=fleet.models[model].architecture,
        )


def _configs(attempts: Attempts) -> tuple[NDArray[np.int64], list[dict[str, bool | int | float | str]]]:
    """For each attempt the number of its configuration, and the distinct configurations."""
    found: dict[tuple[str, int], int] = {}
    pairs = zip(attempts.precision, attempts.sequence_length.tolist(), strict=True)
    which = np.fromiter((found.setdefault(pair, len(found)) for pair in pairs), np.int64, len(attempts.precision))
    distinct: list[dict[str, bool | int | float | str]] = [
        {"precision": precision} | ({"sequence_length": length} if length > 0 else {}) for precision, length in found
    ]
    return which, distinct


def _eligible(hardware: Sequence[str], eligible: NDArray[np.bool_]) -> pa.ListArray:
    """For each attempt the names of its candidates."""
    ends = np.concatenate(([0], np.cumsum(eligible.sum(axis=1)))).astype(np.int32)
    names = _chosen(hardware, np.nonzero(eligible)[1])
    return pa.ListArray.from_arrays(ends, names, type=EVENT_SCHEMA.field("eligible_hardware").type)


def _chosen(texts: Sequence[str], numbers: NDArray[Any]) -> pa.Array:
    """`texts[number]` for each number."""
    return pa.array(texts, pa.string()).take(pa.array(numbers))


def _times(since_1970_us: NDArray[np.int64]) -> list[datetime]:
    naive: list[datetime] = since_1970_us.astype("datetime64[us]").tolist()
    return [time.replace(tzinfo=UTC) for time in naive]


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        column = columns[field.name]
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)

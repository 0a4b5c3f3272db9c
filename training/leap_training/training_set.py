"""The training set in memory: columns of numpy arrays, read from the Parquet file that `leap dataset` writes.

One row is one succeeded attempt with its history as of its submission. Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from leap_features.backoff import NEEDED
from leap_features.columns import Columns, config_columns, history_column, numbers
from leap_features.levels import LEVELS

ATTEMPT_COLUMNS: Final = (
    "job_family",
    "model_type",
    "hardware_type",
    "trainer_count",
    "reader_count",
    "batch_size",
    "throughput",
    "config",
)
TEXT_COLUMNS: Final = ("job_family", "model_type", "hardware_type", "config")
TIME_COLUMNS: Final = ("submitted_at", "recorded_at")
SPECS_COLUMN_PREFIX: Final = "hardware_specs__"


Config = dict[str, bool | int | float | str | None]
"""The configuration of an attempt."""


class TrainingSetError(ValueError):
    """A training set that cannot be used; the message names file, column and mend."""


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows by column. Every array has one entry per row."""

    columns: Columns
    """As `leap_features.columns` describes them, with `submitted_at_us`; configuration not yet taken apart."""
    log_throughput: NDArray[np.float64]
    """Natural logarithm of samples per second over all trainers."""
    recorded_at_us: NDArray[np.int64]
    config: NDArray[Any]
    """JSON text of each attempt's configuration, or None."""

    def __len__(self) -> int:
        return len(self.log_throughput)

    @property
    def submitted_at_us(self) -> NDArray[np.int64]:
        """When each attempt was submitted."""
        return self.columns["submitted_at_us"]

    def where(self, chosen: NDArray[Any]) -> TrainingSet:
        """The rows that a mask or an array of indices chooses."""
        return TrainingSet(
            {name: values[chosen] for name, values in self.columns.items()},
            self.log_throughput[chosen],
            self.recorded_at_us[chosen],
            self.config[chosen],
        )

    def with_config(self, keys: Iterable[str]) -> Columns:
        """The columns, with `config__{key}` for each of `keys`."""
        keys = list(keys)
        return {**self.columns, **config_columns(self.configs(), keys)} if keys else self.columns

    def configs(self) -> list[Config]:
        """The configuration of every row.

        Raises:
            TrainingSetError: one is no JSON object of single values.
        """
        # Jobs are submitted again and again with the same configuration, so each text is decoded once.
        decoded: dict[str | None, Config] = {None: {}}
        result = []
        for text in self.config.tolist():
            if text not in decoded:
                try:
                    decoded[text] = msgspec.json.decode(text, type=Config) if text else {}
                except (msgspec.DecodeError, RecursionError) as error:
                    raise TrainingSetError(
                        f"column 'config' must hold JSON objects of numbers, texts and booleans, got {text[:200]!r}"
                    ) from error
            result.append(decoded[text])
        return result


@dataclass(frozen=True)
class ReadResult:
    """A training set and what was left out of it."""

    rows: TrainingSet
    set_aside: int
    """Rows without a finite throughput above 0, a trainer, a hardware type or a model type."""


def read_training_set(path: Path) -> ReadResult:
    """Read the Parquet file at `path`.

    Raises:
        TrainingSetError: the file cannot be read, lacks a column, or has one of another type.
    """
    try:
        schema = pq.read_schema(path)
        wanted = [*ATTEMPT_COLUMNS, *TIME_COLUMNS]
        wanted += [history_column(level.view, name) for level in LEVELS for name in NEEDED]
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise TrainingSetError(f"{path} lacks the columns {', '.join(missing)}: write it with `leap dataset`")
        for name in TEXT_COLUMNS:
            _require_text(schema, name, path)
        wanted += [name for name in schema.names if name.startswith(SPECS_COLUMN_PREFIX)]
        table = pq.read_table(path, columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise TrainingSetError(f"{path} cannot be read as Parquet: {error}") from error
    columns = {name: _array(table, name) for name in wanted if name not in TIME_COLUMNS}
    columns["submitted_at_us"] = _microseconds(table, "submitted_at", path)
    recorded = _microseconds(table, "recorded_at", path)
    throughput = numbers(columns, "throughput")
    good = (throughput > 0) & (numbers(columns, "trainer_count") >= 1)
    for name in ("hardware_type", "model_type"):
        good &= np.array([value is not None for value in columns[name].tolist()], dtype=np.bool_)
    log_throughput = np.log(throughput, out=np.full(len(throughput), np.nan), where=good)
    config = columns.pop("config")
    del columns["throughput"]
    everything = TrainingSet(columns, log_throughput, recorded, config)
    return ReadResult(everything if good.all() else everything.where(good), int((~good).sum()))


def _require_text(schema: pa.Schema, name: str, path: Path) -> None:
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise TrainingSetError(f"{path}: column {name!r} must be text, got {kind}: write it with `leap dataset`")


def _array(table: pa.Table, name: str) -> NDArray[Any]:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array: NDArray[Any] = column.to_numpy()
    return array


def _microseconds(table: pa.Table, name: str, path: Path) -> NDArray[np.int64]:
    column = table.column(name)
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise TrainingSetError(f"{path}: column {name!r} must be a timestamp with time zone, got {column.type}")
    if column.null_count:
        raise TrainingSetError(f"{path}: column {name!r} must have no nulls, got {column.null_count}")
    whole = column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
    array: NDArray[np.int64] = whole.to_numpy()
    return array

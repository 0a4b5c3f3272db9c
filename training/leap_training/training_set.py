"""The training set in memory: columns of numpy arrays, read from the Parquet file that `leap dataset` writes.

One row is one succeeded attempt with its history as of its submission. Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from leap_features.columns import Columns, architecture_columns, config_columns, history_column, numbers
from leap_features.history import FEATURES
from leap_features.levels import LEVELS

ATTEMPT_COLUMNS: Final = (
    "attempt_id",
    "job_family",
    "model_type",
    "hardware_type",
    "trainer_count",
    "reader_count",
    "batch_size",
    "throughput",
    "log_throughput",
    "device_hours",
    "config",
    "architecture",
)
HISTORY_FEATURES: Final = tuple(name for name, _ in FEATURES if name not in {"state", "version"})
"""What a training set holds of every level: all but what continues the row."""
TEXT_COLUMNS: Final = ("attempt_id", "job_family", "model_type", "hardware_type", "config", "architecture")
TIME_COLUMNS: Final = ("submitted_at", "completed_at", "recorded_at")
SPECS_COLUMN_PREFIX: Final = "hardware_specs__"


Config = dict[str, bool | int | float | str | None]
"""The configuration of an attempt."""

Architecture = dict[str, float | None]
"""The numbers that summarise an attempt's model definition."""

_Decoded = TypeVar("_Decoded")


class TrainingSetError(ValueError):
    """A training set that cannot be used; the message names file, column and mend."""


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Rows by column. Every array has one entry per row."""

    columns: Columns
    """As `leap_features.columns` describes them, with `attempt_id`, `submitted_at_us`, `completed_at_us` and
    `device_hours` (NaN: unknown); configuration and architecture not yet taken apart."""
    log_throughput: NDArray[np.float64]
    """Natural logarithm of samples per second over all trainers; NaN where the label is hidden."""
    recorded_at_us: NDArray[np.int64]
    config: NDArray[Any]
    """JSON text of each attempt's configuration, or None."""
    architecture: NDArray[Any]
    """JSON text of the numbers that summarise each attempt's model definition, or None."""

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
            self.architecture[chosen],
        )

    def hidden(self) -> TrainingSet:
        """The same rows without their labels, as a model may see them that is judged."""
        return replace(self, log_throughput=np.full(len(self), np.nan))

    def with_config(self, keys: Iterable[str]) -> Columns:
        """The columns, with `config__{key}` for each of `keys`.

        Raises:
            TrainingSetError: a configuration is no JSON object of single values.
        """
        keys = list(keys)
        if not keys:
            return self.columns
        places, configs = self.distinct_configs()
        return {**self.columns, **{name: values[places] for name, values in config_columns(configs, keys).items()}}

    def with_architecture(self, keys: Iterable[str]) -> Columns:
        """The columns, with `architecture__{key}` for each of `keys`.

        Raises:
            TrainingSetError: an architecture is no JSON object of numbers.
        """
        keys = list(keys)
        if not keys:
            return self.columns
        places, given = self.distinct_architectures()
        return {**self.columns, **{name: values[places] for name, values in architecture_columns(given, keys).items()}}

    def configs(self) -> list[Config]:
        """The configuration of every row.

        Raises:
            TrainingSetError: one is no JSON object of single values.
        """
        places, configs = self.distinct_configs()
        return [configs[place] for place in places.tolist()]

    def architectures(self) -> list[Architecture]:
        """The numbers that summarise the model definition of every row.

        Raises:
            TrainingSetError: one is no JSON object of numbers.
        """
        places, architectures = self.distinct_architectures()
        return [architectures[place] for place in places.tolist()]

    def distinct_configs(self) -> tuple[NDArray[np.int64], list[Config]]:
        """For every row, the place of its configuration in the list of different ones, and that list.

        Raises:
            TrainingSetError: one is no JSON object of single values.
        """
        return _decoded(self.config, "config", Config)

    def distinct_architectures(self) -> tuple[NDArray[np.int64], list[Architecture]]:
        """For every row, the place of its model definition's numbers in the list of different ones, and that list.

        Raises:
            TrainingSetError: one is no JSON object of numbers.
        """
        return _decoded(self.architecture, "architecture", Architecture)


def _decoded(texts: NDArray[Any], name: str, kind: type[_Decoded]) -> tuple[NDArray[np.int64], list[_Decoded]]:
    """The different JSON objects of a column, and for every row the place of its own; no text is an empty object."""
    # Jobs are submitted again and again with the same configuration, so each text is decoded once.
    places, different = pd.factorize(texts)
    decoded = []
    for text in different:
        try:
            decoded.append(msgspec.json.decode(text or "{}", type=kind))
        except (msgspec.DecodeError, RecursionError) as error:
            raise TrainingSetError(
                f"column {name!r} must hold JSON objects of {_VALUES[name]}, got {text[:200]!r}"
            ) from error
    decoded.append(msgspec.json.decode("{}", type=kind))
    return np.where(places < 0, len(decoded) - 1, places), decoded


_VALUES: Final = {"config": "numbers, texts and booleans", "architecture": "numbers"}


@dataclass(frozen=True)
class ReadResult:
    """A training set and what was left out of it."""

    rows: TrainingSet
    set_aside: int
    """Rows without a finite throughput above 0, a trainer, a hardware type, a model type, or a name of the attempt or
    its family."""


def read_training_set(path: Path) -> ReadResult:
    """Read the Parquet file at `path`.

    Raises:
        TrainingSetError: the file cannot be read, lacks a column, or has one of another type.
    """
    try:
        schema = pq.read_schema(path)
        wanted = [*ATTEMPT_COLUMNS, *TIME_COLUMNS]
        wanted += [history_column(level.view, name) for level in LEVELS for name in HISTORY_FEATURES]
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
    columns["completed_at_us"] = _microseconds(table, "completed_at", path)
    recorded = _microseconds(table, "recorded_at", path)
    # An event without device-hours says 0, and no attempt that succeeded took none.
    hours = numbers(columns, "device_hours")
    columns["device_hours"] = np.where(hours > 0, hours, np.nan)
    # The logarithm is the file's, the very value that history counts.
    log_throughput = numbers(columns, "log_throughput")
    good = (numbers(columns, "throughput") > 0) & ~np.isnan(log_throughput) & (numbers(columns, "trainer_count") >= 1)
    for name in ("attempt_id", "job_family", "hardware_type", "model_type"):
        good &= np.array([value is not None for value in columns[name].tolist()], dtype=np.bool_)
    config, architecture = columns.pop("config"), columns.pop("architecture")
    del columns["throughput"], columns["log_throughput"]
    everything = TrainingSet(columns, log_throughput, recorded, config, architecture)
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
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _texts(column)
    array: NDArray[Any] = column.to_numpy()
    return array


def _texts(column: pa.ChunkedArray) -> NDArray[Any]:
    """The texts of a column, None where there is none; rows of the same text share one object."""
    encoded = column.dictionary_encode().combine_chunks()
    different = np.empty(len(encoded.dictionary) + 1, dtype=object)  # the last one is None
    different[:-1] = encoded.dictionary.to_numpy(zero_copy_only=False)
    texts: NDArray[Any] = different[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()]
    return texts


def _microseconds(table: pa.Table, name: str, path: Path) -> NDArray[np.int64]:
    column = table.column(name)
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise TrainingSetError(f"{path}: column {name!r} must be a timestamp with time zone, got {column.type}")
    if column.null_count:
        raise TrainingSetError(f"{path}: column {name!r} must have no nulls, got {column.null_count}")
    whole = column.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())
    array: NDArray[np.int64] = whole.to_numpy()
    return array

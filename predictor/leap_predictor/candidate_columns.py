"""The columns of a job's candidates: the launcher's counterpart of a training set, one row per candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import (
    ARCHITECTURE_PREFIX,
    Specifications,
    config_columns,
    history_column,
    specification_columns,
)
from leap_features.hardware import SPECS
from leap_features.layout import Value
from leap_features.row import architecture_keys, config_keys
from leap_predictor.history.request import StoredRow
from leap_predictor.job import Job
from leap_predictor.manifest import SERVED_FEATURES, View

_NUMERIC: Final = frozenset(name for name, kind in SERVED_FEATURES if kind is not str)


def candidate_columns(
    job: Job,
    hardware_types: Sequence[str],
    rows: Sequence[Mapping[str, StoredRow | None]],
    *,
    views: Sequence[View],
    features: Sequence[str],
    specifications: Specifications,
    now_us: int,
) -> dict[str, NDArray[Any]]:
    """Columns of `job` on each of `hardware_types`.

    Args:
        job: a checked job.
        hardware_types: the candidates.
        rows: per candidate, its history by view.
        views: the views that `rows` are of.
        features: names of the model's features; they tell which parts of the job's configuration and which numbers of
            its model definition are wanted.
        specifications: finds those of a hardware type.
        now_us: time of submission, microseconds since 1970 UTC.
    """
    count = len(hardware_types)
    types = _objects(hardware_types)
    columns: dict[str, NDArray[Any]] = {
        "model_type": _objects([job.model_type] * count),
        "hardware_type": types,
        "trainer_count": np.full(count, float(job.trainer_count)),
        # A completion event without readers says 0, so this is what the model was trained on.
        "reader_count": np.full(count, float(job.reader_count or 0)),
        "batch_size": np.full(count, np.nan if job.batch_size is None else float(job.batch_size)),
        "submitted_at_us": np.full(count, now_us, dtype=np.int64),
    }
    of_job = config_columns([job.config], config_keys(features))
    columns |= {name: np.repeat(value, count) for name, value in of_job.items()}
    for key in architecture_keys(features):
        columns[ARCHITECTURE_PREFIX + key] = np.full(count, float(job.architecture.get(key, np.nan)))
    columns |= specification_columns(types, specifications, SPECS)
    for view in views:
        columns |= _history_columns(view, [row[view.view] for row in rows])
    return columns


class _Names(NamedTuple):
    """The features of a view, and what their columns are called."""

    numbers: tuple[str, ...]
    number_columns: tuple[str, ...]
    texts: tuple[str, ...]
    text_columns: tuple[str, ...]


@lru_cache(maxsize=64)
def _names(view: View) -> _Names:
    numbers = tuple(feature.name for feature in view.features if feature.name in _NUMERIC)
    texts = tuple(feature.name for feature in view.features if feature.name not in _NUMERIC)

    def columns(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(history_column(view.view, name) for name in names)

    return _Names(numbers, columns(numbers), texts, columns(texts))


def _history_columns(view: View, rows: Sequence[StoredRow | None]) -> dict[str, NDArray[Any]]:
    """Columns of one view; the numbers are made in one piece, since there are many and each is short."""
    names = _names(view)
    of_row = itemgetter(*names.numbers)
    absent = (np.nan,) * len(names.numbers)
    table = np.array([absent if row is None else of_row(row.features) for row in rows], dtype=np.float64)
    columns: dict[str, NDArray[Any]] = dict(zip(names.number_columns, np.ascontiguousarray(table.T), strict=True))
    for name, column in zip(names.texts, names.text_columns, strict=True):
        columns[column] = _objects([None if row is None else row.features[name] for row in rows])
    return columns


def _objects(values: Sequence[Value]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array

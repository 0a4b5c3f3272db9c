"""Back-off: the latest run of the most specific level that has history, and the conditions that it was measured under.

History carries its conditions, so that it can be carried over to other ones: with any model f of log throughput, the
live estimate for a candidate x is f(x) + (last − f(x_last)), where x_last is x under the conditions of that latest run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import (
    Columns,
    Specifications,
    column,
    history_column,
    numbers,
    ratio,
    row_count,
    specification_columns,
)
from leap_features.history import days_since
from leap_features.levels import BACKOFF, Level

NEEDED = ("last", "count", "last_seen", "last_hardware_type", "last_trainer_count", "last_batch_size")
"""History features that the back-off reads from every level."""


@dataclass(frozen=True, eq=False)
class Backoff:
    """Per row, what its first level with history says. Where `level` is −1, everything else is missing."""

    level: NDArray[np.int8]
    """Index of that level in the order that was asked for; −1: none has history."""
    last: NDArray[np.float64]
    """Natural logarithm of the latest run's throughput (samples per second over all trainers)."""
    count: NDArray[np.float64]
    age_days: NDArray[np.float64]
    """Days from that run's completion to the submission."""
    hardware_type: NDArray[Any]
    trainer_count: NDArray[np.float64]
    batch_size: NDArray[np.float64]
    """Per trainer; 0 where it was unknown."""


def backoff(columns: Columns, levels: Sequence[Level] = BACKOFF) -> Backoff:
    """The first of `levels` that has history, row by row.

    Raises:
        MissingColumn: a history column of a level is not there.
    """
    rows = row_count(columns)
    level = np.full(rows, -1, dtype=np.int8)
    number = {name: np.full(rows, np.nan) for name in NEEDED if name != "last_hardware_type"}
    hardware_type = np.full(rows, None, dtype=object)
    for index, candidate in enumerate(levels):
        last = numbers(columns, history_column(candidate.view, "last"))
        take = (level == -1) & ~np.isnan(last)
        if not take.any():
            continue
        level[take] = index
        for name, into in number.items():
            values = last if name == "last" else numbers(columns, history_column(candidate.view, name))
            into[take] = values[take]
        hardware_type[take] = column(columns, history_column(candidate.view, "last_hardware_type"))[take]
    return Backoff(
        level,
        number["last"],
        number["count"],
        days_since(number["last_seen"], numbers(columns, "submitted_at_us")),
        hardware_type,
        number["last_trainer_count"],
        number["last_batch_size"],
    )


def at_latest_conditions(
    columns: Columns, found: Backoff, specifications: Specifications, names: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """x_last: `columns` with the hardware, trainers and batch size of each row's latest run.

    Args:
        columns: the rows asked about.
        found: their back-off.
        specifications: finds those of a hardware type.
        names: the specifications to look up.

    Rows without history stay as they are. A batch size that is unknown on either side is taken to be the same on both,
    so that a model never sees a change that nobody measured. What history does not carry is held equal: the
    configuration, and readers per trainer, so readers are counted in proportion.
    """
    known = found.level >= 0
    asked = numbers(columns, "batch_size")
    both = known & (found.batch_size > 0) & (asked > 0)
    hardware_type = np.where(known, found.hardware_type, column(columns, "hardware_type"))
    result = dict(columns)
    result["hardware_type"] = hardware_type
    trainers = numbers(columns, "trainer_count")
    result["trainer_count"] = np.where(known, found.trainer_count, trainers)
    readers = numbers(columns, "reader_count")
    result["reader_count"] = np.where(known, readers * ratio(found.trainer_count, trainers), readers)
    result["batch_size"] = np.where(both, found.batch_size, asked)
    for name, values in specification_columns(hardware_type, specifications, names).items():
        # Rows without history keep what they were given, which a catalogue of another day may not have.
        result[name] = np.where(known, values, numbers(columns, name))
    return result

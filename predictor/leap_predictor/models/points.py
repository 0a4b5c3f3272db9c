"""The points of a row: the candidate that is asked about, and the runs that its history remembers.

Every level remembers its latest run with the conditions that it was measured under. The two levels of the family on
this hardware remember more: of their earlier runs, the mean and the mean conditions. One run that several levels
remember counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import Columns, column, history_column, logarithm, numbers
from leap_features.history import MICROSECONDS_PER_DAY
from leap_features.levels import BACKOFF, FAMILY, FAMILY_HARDWARE, FAMILY_SCALE
from leap_predictor.models.basis import Floats, HardwareTable, Ints

OF_THE_FAMILY: Final = frozenset({FAMILY, FAMILY_HARDWARE, FAMILY_SCALE})
WITH_MEANS: Final = (FAMILY_SCALE, FAMILY_HARDWARE)
"""Levels whose earlier runs were all on this hardware, the most specific first; the first that has any is used."""

OWN: Final = np.array([True, *(level in OF_THE_FAMILY for level in BACKOFF), True])
"""Per point: whether it is of the job's own family."""

LEVEL_COUNT: Final = len(BACKOFF)
POINTS: Final = len(OWN)
"""The candidate, the latest run of each level in the order of back-off, and the mean of the family's earlier runs."""


@dataclass(frozen=True, eq=False)
class Points:
    """Every array has shape (rows, POINTS) or (rows,); the first point is the candidate."""

    hardware: Ints
    """Codes of a `HardwareTable`."""
    log_trainers: Floats
    log_batch: Floats
    """Of the batch size per trainer; NaN: unknown. What a run does not tell is taken to be as asked."""
    days: Floats
    """Since 1970: when the run ended; of the candidate, when it is submitted."""
    value: Floats
    """ln throughput; 0 where not known."""
    known: NDArray[np.bool_]
    """Whether there is such a run; False for the candidate."""
    runs: Floats
    """How many runs the value is the mean of."""
    repeats: Floats
    """Per row: how many runs of this family on this hardware and scale there were."""
    repeat_spread: Floats
    """Per row: standard deviation of their ln throughput; NaN where there were less than two."""
    level: NDArray[np.int8]
    """Per row: the first level that has history, as an index of `BACKOFF`; −1: none."""
    last: Floats
    """Per row: that level's latest ln throughput; NaN: none."""


def points_of(columns: Columns, table: HardwareTable, canonical: Callable[[str], str | None]) -> Points:
    """The points of every row.

    Args:
        columns: rows as `leap_features.columns` describes them.
        table: of the hardware.
        canonical: the catalogue's name of a hardware type.

    Raises:
        MissingColumn: a column is not there.
    """
    rows = len(column(columns, "model_type"))
    asked_hardware = column(columns, "hardware_type")
    hardware = np.full((rows, POINTS), None, dtype=object)
    log_trainers, log_batch, days, value = (np.full((rows, POINTS), np.nan) for _ in range(4))
    runs = np.ones((rows, POINTS))
    hardware[:, 0] = asked_hardware
    log_trainers[:, 0] = logarithm(numbers(columns, "trainer_count"))
    log_batch[:, 0] = logarithm(numbers(columns, "batch_size"))
    days[:, 0] = numbers(columns, "submitted_at_us") / MICROSECONDS_PER_DAY
    for at, level in enumerate(BACKOFF, 1):
        value[:, at] = numbers(columns, history_column(level.view, "last"))
        hardware[:, at] = column(columns, history_column(level.view, "last_hardware_type"))
        log_trainers[:, at] = logarithm(numbers(columns, history_column(level.view, "last_trainer_count")))
        log_batch[:, at] = logarithm(numbers(columns, history_column(level.view, "last_batch_size")))
        days[:, at] = numbers(columns, history_column(level.view, "last_seen")) / MICROSECONDS_PER_DAY
    known = ~np.isnan(value) & ~np.isnan(log_trainers)
    first = np.where(known[:, 1:-1].any(axis=1), known[:, 1:-1].argmax(axis=1), -1)
    last = np.where(first >= 0, value[np.arange(rows), first + 1], np.nan)
    _once(known, days, value)
    hardware[:, -1] = asked_hardware
    _earlier(columns, log_trainers, log_batch, days, value, known, runs)
    log_batch = np.where(np.isnan(log_batch), log_batch[:, :1], log_batch)
    return Points(
        table.codes(np.where(known | (np.arange(POINTS) == 0), hardware, hardware[:, :1]), canonical),
        np.where(np.isnan(log_trainers), log_trainers[:, :1], log_trainers),
        log_batch,
        np.where(np.isnan(days), days[:, :1], days),
        np.where(known, value, 0.0),
        known,
        runs,
        *_repeats(columns),
        first.astype(np.int8),
        last,
    )


def _repeats(columns: Columns) -> tuple[Floats, Floats]:
    count = np.nan_to_num(numbers(columns, history_column(FAMILY_SCALE.view, "count")), nan=0.0)
    spread = numbers(columns, history_column(FAMILY_SCALE.view, "std"))
    return count, np.where(count > 1.5, spread, np.nan)


def _once(known: NDArray[np.bool_], days: Floats, value: Floats) -> None:
    """Forget what an earlier point says already: the same end and the same throughput is the same run."""
    for at in range(2, POINTS - 1):
        for earlier in range(1, at):
            same = (days[:, at] == days[:, earlier]) & (value[:, at] == value[:, earlier])
            known[:, at] &= ~(known[:, earlier] & same)


def _earlier(
    columns: Columns,
    log_trainers: Floats,
    log_batch: Floats,
    days: Floats,
    value: Floats,
    known: NDArray[np.bool_],
    runs: Floats,
) -> None:
    """Fill the last point: the family's runs on this hardware before the latest one, as their mean."""
    free = np.ones(len(value), dtype=np.bool_)
    for level in WITH_MEANS:

        def of_others(mean: str, latest: Floats, count: Floats, view: str = level.view) -> Any:
            return (count * numbers(columns, history_column(view, mean)) - latest) / (count - 1.0)

        count = numbers(columns, history_column(level.view, "count"))
        # The first level that has any run claims the point: the next one would count its runs again.
        several = free & (count > 1.5)
        latest = numbers(columns, history_column(level.view, "last"))
        trainers = logarithm(numbers(columns, history_column(level.view, "last_trainer_count")))
        batch = logarithm(numbers(columns, history_column(level.view, "last_batch_size")))
        with np.errstate(divide="ignore", invalid="ignore"):
            means = [
                of_others(name, of_latest, count)
                for name, of_latest in (("mean", latest), ("mean_log_trainers", trainers), ("mean_log_batch", batch))
            ]
        several &= np.isfinite(means[0]) & np.isfinite(means[1])
        for into, values in zip((value, log_trainers, log_batch), means, strict=True):
            into[several, -1] = values[several]
        log_batch[~np.isfinite(log_batch[:, -1]), -1] = np.nan
        days[several, -1] = numbers(columns, history_column(level.view, "last_seen"))[several] / MICROSECONDS_PER_DAY
        runs[several, -1] = count[several] - 1.0
        known[several, -1] = True
        free &= ~(count > 0.5)

"""History as it was known at any instant, recomputed from the runs of a training set.

The online store and the training set's join know history as of each submission. The judge also asks what a model would
have said with older history, with history that lacks some runs, and on hardware that was not used; and it recomputes
what the join says, to find a leak. The arithmetic is that of the fold (`leap_features.history`): whole sums of
x = round(ln(throughput) · 2³²), one rounding at the end.

What a training set does not hold cannot be recomputed: failures since the latest success are left as they are given,
and runs that are not in the set (before its begin, or recorded at or before their own submission) are not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.columns import history_column, numbers
from leap_features.events import FIXED_POINT, fixed_log
from leap_features.history import FEATURES
from leap_features.levels import JOIN_KEY_TYPES, LEVELS, Level
from leap_training.training_set import TrainingSet

NOT_RECOMPUTED: Final = frozenset({"failures_since_success", "state", "version"})
RECOMPUTED: Final = tuple(name for name, _ in FEATURES if name not in NOT_RECOMPUTED)
"""Features of a level that the runs of a training set tell."""


def as_known(rows: TrainingSet, keys_from: TrainingSet, at_us: NDArray[np.int64]) -> TrainingSet:
    """`rows` with the history that the runs of `keys_from`, recorded at or before `at_us`, make of every level.

    Args:
        rows: whose history columns are replaced; the others stay.
        keys_from: the runs that count.
        at_us: per row of `rows`, microseconds since 1970 UTC. With the times of submission it gives what the join
            gives, for a training set that is complete.
    """
    return RecordedRuns(keys_from).as_known(rows, at_us)


@dataclass(frozen=True, eq=False)
class _LevelRuns:
    """The runs of one level in the order of (key, recorded_at), cumulated within each key."""

    places: pd.Index[Any]
    """The different keys; a key's place is its number."""
    start: NDArray[np.int64]
    """Per key, where its runs begin; one more at the end."""
    instant: NDArray[np.int64]
    """Per run, key · instants + number of its instant of recording: ascending."""
    features: dict[str, NDArray[Any]]
    """What history says after each run."""


class RecordedRuns:
    """The runs of a training set, ready to be asked what was known of any key at any instant."""

    def __init__(self, runs: TrainingSet, levels: Sequence[Level] = LEVELS) -> None:
        self._runs = runs
        self._instants = np.unique(runs.recorded_at_us)
        recorded = np.searchsorted(self._instants, runs.recorded_at_us)
        facts = _Facts.of(runs)
        self._levels = {level: self._cumulated(level, runs, recorded, facts) for level in levels}

    def as_known(self, rows: TrainingSet, at_us: NDArray[np.int64]) -> TrainingSet:
        """`rows` with the history columns that they have as known at `at_us` (per row, microseconds since 1970 UTC)."""
        columns = dict(rows.columns)
        for level in self._levels:
            for name, values in self.level(level, rows, at_us).items():
                column = history_column(level.view, name)
                if column in columns:
                    columns[column] = values
        return replace(rows, columns=columns)

    def level(self, level: Level, rows: TrainingSet, at_us: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """What was known of the keys of `rows` at `at_us`, by feature; NaN (None of a text) where nothing was."""
        cumulated = self._levels[level]
        key = self.key(level, rows)
        # The last run of the same key that was recorded at or before the instant.
        before = np.searchsorted(self._instants, at_us, side="right")
        found = np.searchsorted(cumulated.instant, key * len(self._instants) + before, side="left") - 1
        known = (key >= 0) & (found >= cumulated.start[key])
        return {name: _taken(values, found, known) for name, values in cumulated.features.items()}

    def key(self, level: Level, rows: TrainingSet) -> NDArray[np.int64]:
        """A number per key of `level`, for every row; −1 where no run has the key."""
        return self._levels[level].places.get_indexer(_keys(level, rows)).astype(np.int64)

    def first_recorded(
        self,
        level: Level,
        rows: TrainingSet,
        completed_at_us: NDArray[np.int64],
        log_throughput: NDArray[np.float64],
        within: float,
    ) -> NDArray[np.int64]:
        """When a run of the same key was recorded that completed then, with that throughput (± `within`).

        The earliest of several, in microseconds since 1970 UTC; before all times where there is none.
        """
        asked = pd.DataFrame(
            {"row": np.arange(len(rows)), "key": self.key(level, rows), "at": completed_at_us, "log": log_throughput}
        )
        runs = pd.DataFrame(
            {
                "key": self.key(level, self._runs),
                "at": self._runs.columns["completed_at_us"],
                "x": self._runs.log_throughput,
                "recorded": self._runs.recorded_at_us,
            }
        )
        met = asked.merge(runs, on=["key", "at"])
        met = met[(met["log"] - met["x"]).abs() <= within]
        result = np.full(len(rows), np.iinfo(np.int64).min)
        first = met.groupby("row")["recorded"].min()
        result[first.index.to_numpy()] = first.to_numpy()
        return result

    def _cumulated(self, level: Level, runs: TrainingSet, recorded: NDArray[np.int64], facts: _Facts) -> _LevelRuns:
        key, places = pd.factorize(_keys(level, runs))
        order = np.lexsort((facts.place, recorded, key))
        sorted_key = key[order]
        start = np.searchsorted(sorted_key, np.arange(len(places) + 1))
        begin = start[sorted_key]
        count = np.arange(len(order)) - begin + 1
        latest = _greatest_so_far(facts.place[order], sorted_key)
        latest = facts.by_place[latest]
        sum_x = _sums(facts.x[order], begin)
        n_batch = _sums(facts.has_batch[order].astype(np.int64), begin)
        features: dict[str, NDArray[Any]] = {
            "last": facts.x[latest] / FIXED_POINT,
            "mean": sum_x / count / FIXED_POINT,
            "std": _spread(count, sum_x, facts.x[order], begin),
            "count": count.astype(np.float64),
            "last_seen": facts.completed_at_us[latest].astype(np.float64),
            "last_hardware_type": runs.columns["hardware_type"][latest],
            "last_trainer_count": facts.trainers[latest],
            "last_batch_size": facts.batch[latest],
            "mean_log_trainers": _sums(facts.log_trainers[order], begin) / count / FIXED_POINT,
            "mean_log_batch": _mean(_sums(facts.log_batch[order], begin), n_batch),
        }
        return _LevelRuns(places, start, sorted_key * len(self._instants) + recorded[order], features)


@dataclass(frozen=True, eq=False)
class _Facts:
    """What each run contributes, whatever the level; logarithms in units of 2⁻³²."""

    x: NDArray[np.int64]
    log_trainers: NDArray[np.int64]
    log_batch: NDArray[np.int64]
    """0 where the batch size is 0: such a run has no part in the mean."""
    has_batch: NDArray[np.bool_]
    trainers: NDArray[np.float64]
    batch: NDArray[np.float64]
    completed_at_us: NDArray[np.int64]
    place: NDArray[np.int64]
    """Among all runs in the order of (completed_at, attempt_id): the greatest is the latest."""
    by_place: NDArray[np.int64]
    """The run at each place."""

    @staticmethod
    def of(runs: TrainingSet) -> _Facts:
        trainers = numbers(runs.columns, "trainer_count")
        batch = numbers(runs.columns, "batch_size")
        has_batch = batch > 0
        completed = runs.columns["completed_at_us"]
        by_place = np.lexsort((_order_of_texts(runs.columns["attempt_id"]), completed))
        place = np.empty(len(by_place), dtype=np.int64)
        place[by_place] = np.arange(len(by_place))
        return _Facts(
            np.rint(runs.log_throughput * FIXED_POINT).astype(np.int64),
            _fixed_logs(trainers),
            np.where(has_batch, _fixed_logs(np.where(has_batch, batch, 1.0)), 0),
            has_batch,
            trainers,
            batch,
            completed,
            place,
            by_place,
        )


def _keys(level: Level, rows: TrainingSet) -> pd.Index[Any]:
    parts = [_key_part(rows, name) for name in level.join_keys]
    return pd.Index(parts[0]) if len(parts) == 1 else pd.MultiIndex.from_arrays(parts)


def _key_part(rows: TrainingSet, name: str) -> NDArray[Any]:
    return rows.columns[name] if JOIN_KEY_TYPES[name] is str else numbers(rows.columns, name)


def _order_of_texts(texts: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each text among the different ones, in the order of code points."""
    _, place = np.unique(texts.astype(str), return_inverse=True)
    return place


def _fixed_logs(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """`fixed_log` of every value; the different ones are few."""
    different, place = np.unique(values, return_inverse=True)
    return np.array([fixed_log(value) for value in different.tolist()], dtype=np.int64)[place]


def _greatest_so_far(values: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Running maximum within each key; `key` ascends, values are 0 to their number."""
    above = key * len(values)
    greatest: NDArray[np.int64] = np.maximum.accumulate(values + above) - above
    return greatest


def _sums(values: NDArray[Any], begin: NDArray[np.int64]) -> NDArray[Any]:
    """Running sum within each key, of int64 or of Python's integers; `begin` is where each run's key begins."""
    total = np.cumsum(values)
    before: NDArray[Any] = total - (total[begin] - values[begin])
    return before


def _mean(total: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    result = np.full(len(total), np.nan)
    np.divide(total, count, out=result, where=count > 0)
    return result / FIXED_POINT


def _spread(
    count: NDArray[np.int64], sum_x: NDArray[np.int64], x: NDArray[np.int64], begin: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Population standard deviation, √(n·Σx² − (Σx)²) / n; as in the fold, the numerator is exact."""
    wide = x.astype(object)  # Σx² needs more than 64 bits
    sum_xx = _sums(wide * wide, begin)
    numerator = count.astype(object) * sum_xx - sum_x.astype(object) ** 2
    spread: NDArray[np.float64] = np.sqrt(numerator.astype(np.float64)) / count / FIXED_POINT
    return spread


def _taken(values: NDArray[Any], at: NDArray[np.int64], known: NDArray[np.bool_]) -> NDArray[Any]:
    missing = None if values.dtype == object else np.nan
    result = np.full(len(at), missing, dtype=values.dtype)
    result[known] = values[at[known]]
    return result

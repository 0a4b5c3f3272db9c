"""Baselines that learn no function: live history as it stands, and the table of keys that LEAP replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import Columns, history_column, numbers
from leap_features.hardware import Catalogue
from leap_features.levels import BACKOFF, FAMILY
from leap_training.model import NothingToFit, Predictions
from leap_training.training_set import TrainingSet

TABLE_KEY: Final = ("model_type", "trainer_count", "batch_size", "hardware_type")
"""What the table that LEAP replaced was keyed by."""

COARSER_KEYS: Final = (
    ("model_type", "trainer_count", "hardware_type"),
    ("model_type", "trainer_count"),
)
"""Asked in turn where the table has no answer. Both hold the trainers, since throughput is that of all of them."""

MIN_ROWS: Final = 10
"""Runs under a key for its median to be an answer. The paper does not say how many it asked for."""


@dataclass(frozen=True)
class BackoffLast:
    """The latest run of the first level that has history: the floor. Nothing is fitted."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> BackoffLast:
        """Itself: history is all that it knows."""
        return self

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row that any level has history of."""
        found = backoff(rows.columns)
        return Predictions(found.last, level=found.level)


@dataclass(frozen=True)
class BackoffMean:
    """The mean of the first level that has history. Nothing is fitted."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> BackoffMean:
        """Itself: history is all that it knows."""
        return self

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row that any level has history of."""
        level = backoff(rows.columns).level
        mean: NDArray[np.float64] = np.full(len(rows), np.nan)
        for index, candidate in enumerate(BACKOFF):
            mean = np.where(level == index, numbers(rows.columns, history_column(candidate.view, "mean")), mean)
        return Predictions(mean, level=level)


@dataclass(frozen=True)
class FamilyMean:
    """The mean of all runs of the job family. Nothing is fitted."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FamilyMean:
        """Itself: history is all that it knows."""
        return self

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row whose family has history."""
        return Predictions(_family_mean(rows.columns))


def _family_mean(columns: Columns) -> NDArray[np.float64]:
    return numbers(columns, history_column(FAMILY.view, "mean"))


@dataclass(frozen=True, eq=False)
class KeyTable:
    """Median log throughput of the training rows under each key that enough of them have."""

    key: tuple[str, ...]
    medians: pd.Series[float]
    """Indexed by the key's parts."""

    def answers(self, columns: Columns) -> NDArray[np.float64]:
        """The median under every row's key; NaN where the table does not have it."""
        asked = pd.MultiIndex.from_frame(_key_frame(columns, self.key))
        return np.asarray(self.medians.reindex(asked), dtype=np.float64)


def key_table(rows: TrainingSet, key: Sequence[str], min_rows: int) -> KeyTable:
    """The table of `rows` by the columns `key`, without keys that fewer than `min_rows` of them have."""
    frame = _key_frame(rows.columns, key).assign(log_throughput=rows.log_throughput)
    grouped = frame.groupby(list(key), sort=False)["log_throughput"].agg(["median", "size"])
    return KeyTable(tuple(key), grouped.loc[grouped["size"] >= min_rows, "median"])


def _key_frame(columns: Columns, key: Sequence[str]) -> pd.DataFrame:
    # A batch size that nobody gave is a key of its own: −1, which none that was given can be.
    parts = {name: columns[name] if name.endswith("_type") else _whole(numbers(columns, name)) for name in key}
    return pd.DataFrame(parts)


def _whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.nan_to_num(values, nan=-1.0)


@dataclass(frozen=True, eq=False)
class Tables:
    """Tables that are asked in turn, and whether the family's live mean answers in the end."""

    tables: tuple[KeyTable, ...]
    family_mean: bool

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row that a table has, or the family."""
        result = np.full(len(rows), np.nan)
        for table in self.tables:
            result = np.where(np.isnan(result), table.answers(rows.columns), result)
        if self.family_mean:
            result = np.where(np.isnan(result), _family_mean(rows.columns), result)
        return Predictions(result)


@dataclass(frozen=True)
class Lookup:
    """The table that LEAP replaced; with `with_backoff` coarser keys in turn, and the family's live mean in the end."""

    with_backoff: bool = False
    min_rows: int = MIN_ROWS

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> Tables:
        """Take the medians of `rows`.

        Raises:
            NothingToFit: there are no rows.
        """
        if not len(rows):
            raise NothingToFit(
                "the training set has no row in this window: widen it, or see what `leap dataset` left out"
            )
        keys = (TABLE_KEY, *COARSER_KEYS) if self.with_backoff else (TABLE_KEY,)
        return Tables(tuple(key_table(rows, key, self.min_rows) for key in keys), self.with_backoff)

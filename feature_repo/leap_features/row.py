"""The feature row: what a model sees of an attempt on a candidate. One definition for training and for the launcher.

A feature is asked for by name and computed from columns (see `columns`), for any number of rows at once. The order of
the features is the caller's, in the end the bundle's manifest; nothing here goes by position. Whatever cannot be
computed is missing (NaN): no logarithm of 0, no division by 0, no infinity and no number beyond float32 gets through.

Names:
    model_type, hardware_type, config__{key}  categories, if the caller lists their values; unlisted ones are missing
    config__{key}, hardware_specs__{name}     numbers as they are
    log_trainers, log_batch, log_total_batch  natural logarithms of trainers, batch per trainer, and their product
    readers_per_trainer                       ratio
    {view}__last, __mean, __std, __count, __failures_since_success   as in the history view
    {view}__age_days                          days from the level's latest run to the submission
    {view}__log_scale_ratio                   ln(trainers ÷ trainers of the level's latest run)
    backoff__last, __count, __age_days, __level   of the first level that has history
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import (
    CONFIG_PREFIX,
    SPECS_PREFIX,
    Columns,
    codes,
    column,
    history_column,
    logarithm,
    numbers,
    ratio,
    row_count,
)
from leap_features.history import days_since
from leap_features.levels import LEVELS

Categories = Mapping[str, Sequence[str]]
"""Per categorical feature the values that it may have; a value's place is its code."""

CATEGORICAL: Final = frozenset({"model_type", "hardware_type"})
"""Features that are always categories. A `config__{key}` is one where its values are listed."""

BACKOFF_PREFIX: Final = "backoff__"

_Feature = Callable[[Columns], NDArray[np.float64]]


def feature_row(columns: Columns, names: Sequence[str], categories: Categories) -> NDArray[np.float32]:
    """The features `names` of every row, shape (rows, len(names)), NaN where missing.

    Raises:
        MissingColumn: a column that a feature needs is not there.
        ValueError: a name is no feature, or a categorical feature has no list of values.
    """
    result = np.empty((row_count(columns), len(names)), dtype=np.float32)
    with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is made missing below
        for at, name in enumerate(names):
            result[:, at] = feature(columns, name, categories)
    result[~np.isfinite(result)] = np.nan
    return result


def feature(columns: Columns, name: str, categories: Categories) -> NDArray[np.float64]:
    """One feature of every row; a category as its code.

    Raises:
        MissingColumn: a column that it needs is not there.
        ValueError: `name` is no feature, or is categorical and `categories` does not list its values.
    """
    check_features((name,), categories)
    if name in categories:
        return _category(columns, name, categories[name])
    if name.startswith((CONFIG_PREFIX, SPECS_PREFIX)):
        return numbers(columns, name)
    return _COMPUTED[name](columns)


def check_features(names: Sequence[str], categories: Categories) -> None:
    """Check that `feature_row` can compute all of `names`.

    Raises:
        ValueError: one is no feature, or is categorical and has no list of values.
    """
    for name in names:
        if name in categories:
            if name not in CATEGORICAL and not name.startswith(CONFIG_PREFIX):
                raise ValueError(f"feature {name!r} is a number and cannot be a category")
        elif name in CATEGORICAL:
            raise ValueError(f"feature {name!r} is categorical: its values must be listed")
        elif name not in _COMPUTED and not name.startswith((CONFIG_PREFIX, SPECS_PREFIX)):
            raise ValueError(
                f"{name!r} is no feature; there are {', '.join(sorted(_COMPUTED))}, "
                f"{CONFIG_PREFIX}{{key}} and {SPECS_PREFIX}{{name}}"
            )


def _category(columns: Columns, name: str, values: Sequence[str]) -> NDArray[np.float64]:
    given = column(columns, name)
    result = codes(given, {value: code for code, value in enumerate(values)}, missing=-1).astype(np.float64)
    result[result < 0] = np.nan
    return result


def _log_trainers(columns: Columns) -> NDArray[np.float64]:
    return logarithm(numbers(columns, "trainer_count"))


def _log_batch(columns: Columns) -> NDArray[np.float64]:
    return logarithm(numbers(columns, "batch_size"))


def _readers_per_trainer(columns: Columns) -> NDArray[np.float64]:
    return ratio(numbers(columns, "reader_count"), numbers(columns, "trainer_count"))


def _count(view: str) -> _Feature:
    # An absent row is a key that nothing was ever recorded of: its count is a true zero.
    return lambda columns: np.nan_to_num(numbers(columns, history_column(view, "count")), nan=0.0)


def _plain(view: str, name: str) -> _Feature:
    return lambda columns: numbers(columns, history_column(view, name))


def _age_days(view: str) -> _Feature:
    return lambda columns: days_since(
        numbers(columns, history_column(view, "last_seen")), numbers(columns, "submitted_at_us")
    )


def _log_scale_ratio(view: str) -> _Feature:
    return lambda columns: logarithm(
        ratio(numbers(columns, "trainer_count"), numbers(columns, history_column(view, "last_trainer_count")))
    )


def _backoff_level(columns: Columns) -> NDArray[np.float64]:
    level = backoff(columns).level.astype(np.float64)
    level[level < 0] = np.nan
    return level


def _computed() -> dict[str, _Feature]:
    features: dict[str, _Feature] = {
        "log_trainers": _log_trainers,
        "log_batch": _log_batch,
        "log_total_batch": lambda columns: _log_trainers(columns) + _log_batch(columns),
        "readers_per_trainer": _readers_per_trainer,
        BACKOFF_PREFIX + "last": lambda columns: backoff(columns).last,
        BACKOFF_PREFIX + "count": lambda columns: backoff(columns).count,
        BACKOFF_PREFIX + "age_days": lambda columns: backoff(columns).age_days,
        BACKOFF_PREFIX + "level": _backoff_level,
    }
    for level in LEVELS:
        view = level.view
        for name in ("last", "mean", "std", "failures_since_success"):
            features[history_column(view, name)] = _plain(view, name)
        features[history_column(view, "count")] = _count(view)
        features[history_column(view, "age_days")] = _age_days(view)
        features[history_column(view, "log_scale_ratio")] = _log_scale_ratio(view)
    return features


_COMPUTED: Final = _computed()

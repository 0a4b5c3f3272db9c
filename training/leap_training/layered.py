"""Fits the layered model's f: a median regressor of log throughput per trainer on configuration and hardware alone.

History takes no part in the fit. It corrects f when a prediction is made, and the correction asks f only for
differences between conditions, so f is fitted for how throughput changes with scale, batch and hardware:

- every cell (job family, hardware, trainers, batch size) weighs the same, however often it was run, since predictions
  matter most where nothing was run yet;
- hardware is known by its specifications, not by its name, so that a type without any run is judged by what it is;
- splits are steered so that throughput rises with peak and bandwidth, and per trainer falls with more trainers. (A
  tendency, no guarantee: for the median XGBoost sets the values of the leaves after the splits are chosen.)

The loss is the pinball loss at the median, half the absolute error of the logarithm.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import xgboost
from numpy.typing import NDArray

from leap_features.columns import (
    CONFIG_PREFIX,
    SPECS_PREFIX,
    Columns,
    Specifications,
    codes,
    logarithm,
    numbers,
    specification_columns,
)
from leap_features.hardware import SPECS, Catalogue
from leap_features.row import Categories, feature_row
from leap_predictor.bundle import specifications_of
from leap_predictor.layered import Layered
from leap_training.conversion import trees_of
from leap_training.training_set import TrainingSet

JOB_FEATURES: Final = ("model_type", "log_trainers", "log_batch", "readers_per_trainer")
HARDWARE_FEATURES: Final = tuple(SPECS_PREFIX + name for name in SPECS)

RISES_WITH: Final = frozenset(SPECS_PREFIX + name for name in ("dense_bf16_or_fp16_tflops", "memory_bandwidth_gbs"))
FALLS_WITH: Final = frozenset({"log_trainers"})

MAX_CONFIG_VALUES: Final = 256
"""Texts with more different values are names rather than settings."""


ROWS_PER_THREAD: Final = 20_000
"""A thread must have so many rows of its own to be worth it."""


class NothingToFit(ValueError):
    """There are no rows to fit a model on."""


class FitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the fit, by XGBoost's names.

    Chosen on real MLPerf runs (rounds v2.0 to v3.1, each after a fit on all earlier ones) by the share of first runs in
    a new cell within ±20 %: shallow trees carry over better than deep ones, which fit the cells that they saw. Sampling
    rows or columns gains nothing, so the fit has no randomness.
    """

    rounds: int = 300
    max_depth: int = 4
    learning_rate: float = 0.1


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model beside what it was made of."""

    model: Layered
    """As the launcher will run it."""
    booster: xgboost.Booster
    settings: FitSettings
    features: tuple[str, ...]
    categories: Categories


def fit(
    rows: TrainingSet, catalogue: Catalogue, settings: FitSettings | None = None, *, config_keys: Sequence[str] = ()
) -> Fitted:
    """Fit f on `rows`.

    Args:
        rows: the attempts.
        catalogue: finds the specifications of hardware.
        settings: of the fit.
        config_keys: keys of the job's configuration that become features, none by default. History does not say under
            which configuration it was measured, so one that moves with the scale (a number of nodes) would hide the
            scale's effect from the correction: on real runs that cost 4 points of the first runs within ±20 %.

    Raises:
        NothingToFit: there are no rows.
        ValueError: a configuration key cannot be a feature.
    """
    settings = FitSettings() if settings is None else settings
    if not len(rows):
        raise NothingToFit("the training set has no row in this window: widen it, or see what `leap dataset` left out")
    config_keys = tuple(dict.fromkeys(config_keys))
    specifications = specifications_of(catalogue)
    columns = as_launched(rows.with_config(config_keys), specifications)
    categories = {"model_type": tuple(sorted(set(columns["model_type"].tolist())))}
    config = tuple(CONFIG_PREFIX + key for key in config_keys)
    categories |= {name: texts for name in config if (texts := _texts(columns, name))}
    features = (*JOB_FEATURES, *HARDWARE_FEATURES, *config)
    booster = _boost(columns, rows.log_throughput, features, categories, settings)
    model = Layered(trees_of(booster), features, categories, specifications)
    return Fitted(model, booster, settings, features, categories)


def as_launched(columns: Columns, specifications: Specifications) -> Columns:
    """`columns` with the specifications that a launcher will find, for every hardware type that it knows.

    A data set's come of a join by the exact name. The catalogue, which a launcher asks, and which says what the latest
    run's hardware was, also knows a name in another spelling; without this a type would differ from itself.
    """
    types = columns["hardware_type"]
    known_types = {name: 1 for name in dict.fromkeys(types.tolist()) if specifications(name) is not None}
    known = codes(types, known_types, missing=0) == 1
    found = specification_columns(types, specifications, SPECS)
    return {**columns, **{name: np.where(known, found[name], numbers(columns, name)) for name in found}}


def _texts(columns: Columns, name: str) -> tuple[str, ...]:
    """The different texts of a configuration column, sorted; none if it holds numbers.

    Raises:
        ValueError: the column cannot be a feature.
    """
    different = {value for value in columns[name].tolist() if value is not None}
    texts = sorted(value for value in different if isinstance(value, str))
    key = name.removeprefix(CONFIG_PREFIX)
    if not different:
        raise ValueError(f"configuration key {key!r} is in no row of the training window: leave it out")
    if texts and len(texts) < len(different):
        raise ValueError(f"configuration key {key!r} must hold either texts or numbers, got both: leave it out")
    if len(texts) > MAX_CONFIG_VALUES:
        raise ValueError(
            f"configuration key {key!r} must have at most {MAX_CONFIG_VALUES} different texts, got {len(texts)}: "
            "leave it out"
        )
    return tuple(texts)


def matrix(
    columns: Columns, features: tuple[str, ...], categories: Categories
) -> tuple[NDArray[np.float32], list[str]]:
    """The feature rows, and XGBoost's type of each feature."""
    types = ["c" if name in categories else "q" for name in features]
    return feature_row(columns, features, categories), types


def _boost(
    columns: Columns,
    log_throughput: NDArray[np.float64],
    features: tuple[str, ...],
    categories: Categories,
    settings: FitSettings,
) -> xgboost.Booster:
    rows, types = matrix(columns, features, categories)
    target = log_throughput - logarithm(numbers(columns, "trainer_count"))
    data = xgboost.QuantileDMatrix(
        rows, target, weight=cell_weights(columns), feature_names=list(features), feature_types=types
    )
    constraints = [1 if name in RISES_WITH else -1 if name in FALLS_WITH else 0 for name in features]
    parameters: dict[str, Any] = {
        "objective": "reg:quantileerror",
        "quantile_alpha": 0.5,
        "tree_method": "hist",
        # On few rows threads wait for one another more than they work, the more so on a busy machine.
        "nthread": max(1, min(len(rows) // ROWS_PER_THREAD, os.cpu_count() or 1)),
        "max_depth": settings.max_depth,
        "learning_rate": settings.learning_rate,
        "monotone_constraints": f"({','.join(map(str, constraints))})",
    }
    return xgboost.train(parameters, data, settings.rounds)


def cell_weights(columns: Columns) -> NDArray[np.float64]:
    """1 ÷ number of rows in the same cell (job family, hardware, trainers, batch size): a cell weighs 1 in all."""
    cells = pd.DataFrame(
        {name: columns[name] for name in ("job_family", "hardware_type", "trainer_count", "batch_size")}
    )
    sizes = cells.groupby(list(cells.columns), sort=False, dropna=False)["job_family"].transform("size")
    return 1.0 / sizes.to_numpy(dtype=np.float64)

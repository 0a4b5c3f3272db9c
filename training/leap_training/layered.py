"""Fits the layered model's f: a median regressor of log throughput per trainer on configuration and hardware alone.

History takes no part in the fit. It corrects f when a prediction is made, and the correction asks f only for
differences between conditions, so f is fitted for how throughput changes with scale, batch and hardware:

- every cell (job family, hardware, trainers, batch size) weighs the same, however often it was run, since predictions
  matter most where nothing was run yet;
- hardware is known by its specifications, not by its name, so that a type without any run is judged by what it is;
- throughput does not fall with a higher peak or bandwidth, and per trainer does not rise with more trainers.

The loss is the pinball loss at the median, half the absolute error of the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
import xgboost
from numpy.typing import NDArray

from leap_features.columns import CONFIG_PREFIX, SPECS_PREFIX, Columns, logarithm, numbers
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

MAX_CONFIG_KEYS: Final = 32
MAX_CONFIG_VALUES: Final = 32
"""Texts with more different values are names rather than settings."""
MIN_CONFIG_SHARE: Final = 0.1
"""Share of the rows that must have a key for it to become a feature."""


class NothingToFit(ValueError):
    """There are no rows to fit a model on."""


class FitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the fit, by XGBoost's names.

    Chosen on real MLPerf runs by the share of first runs in a new cell within ±20 %: shallower trees carry over better
    than deep ones, which fit the cells they saw.
    """

    rounds: int = 300
    max_depth: int = 4
    learning_rate: float = 0.1
    subsample: float = 0.7
    colsample_bynode: float = 0.7
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model beside what it was made of."""

    model: Layered
    """As the launcher will run it."""
    booster: xgboost.Booster
    settings: FitSettings
    features: tuple[str, ...]
    categories: Categories


def fit(rows: TrainingSet, catalogue: Catalogue, settings: FitSettings | None = None) -> Fitted:
    """Fit f on `rows`.

    Raises:
        NothingToFit: there are none.
    """
    settings = FitSettings() if settings is None else settings
    if not len(rows):
        raise NothingToFit("the training set has no row in this window: widen it, or see what `leap dataset` left out")
    config, categories = config_features(rows)
    categories["model_type"] = tuple(sorted(set(rows.columns["model_type"].tolist())))
    features = (*JOB_FEATURES, *HARDWARE_FEATURES, *config)
    columns = rows.with_config(name.removeprefix(CONFIG_PREFIX) for name in config)
    booster = _boost(columns, rows.log_throughput, features, categories, settings)
    model = Layered(trees_of(booster), features, categories, specifications_of(catalogue))
    return Fitted(model, booster, settings, features, categories)


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
        "max_depth": settings.max_depth,
        "learning_rate": settings.learning_rate,
        "subsample": settings.subsample,
        "colsample_bynode": settings.colsample_bynode,
        "seed": settings.seed,
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


def config_features(rows: TrainingSet) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The configuration's keys that become features: numbers as they are, texts of few values as categories.

    A key must be there in a tenth of the rows, have more than one value, and always be of one kind.
    """
    configs = rows.configs()
    values: dict[str, list[object]] = {}
    for config in configs:
        for key, value in config.items():
            if value is not None:
                values.setdefault(key, []).append(value)
    names: list[str] = []
    categories: dict[str, tuple[str, ...]] = {}
    by_presence = sorted(values, key=lambda key: (-len(values[key]), key))
    for key in by_presence:
        present = values[key]
        if len(present) < MIN_CONFIG_SHARE * len(configs) or len(names) == MAX_CONFIG_KEYS:
            break
        different = set(present)
        texts = [value for value in different if isinstance(value, str)]
        if len(different) < 2 or (texts and len(texts) != len(different)) or len(texts) > MAX_CONFIG_VALUES:
            continue
        if not texts and not all(isinstance(value, int | float) for value in different):
            continue
        names.append(CONFIG_PREFIX + key)
        if texts:
            categories[CONFIG_PREFIX + key] = tuple(sorted(texts))
    return tuple(names), categories

"""The features that a fit uses: chosen by group, with categories and configuration keys learned from its rows alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import (
    ARCHITECTURE_PREFIX,
    CONFIG_PREFIX,
    Columns,
    Specifications,
    as_launched,
    config_columns,
    numbers,
)
from leap_features.hardware import CATALOGUE, Catalogue
from leap_features.row import CATEGORICAL, GROUPS, Categories, architecture_keys, config_keys, feature_row
from leap_predictor.bundle import specifications_of
from leap_training.training_set import TrainingSet

MAX_TEXTS: Final = 256
"""Texts with more different values are names rather than settings."""

MIN_SHARE: Final = 0.01
"""A key that is in a smaller share of the rows tells a model nothing that holds."""


@dataclass(frozen=True)
class FeatureSet:
    """Features by name, and the values of those that are categories."""

    names: tuple[str, ...]
    categories: Categories
    specifications: Specifications = field(default=specifications_of(CATALOGUE), compare=False)
    """Of every known hardware type, as a launcher finds them."""

    def columns(self, rows: TrainingSet) -> Columns:
        """The columns that the features of `rows` are made of, as a launcher would have them.

        Configuration and architecture are taken apart as far as features need them. A text under a key that holds
        numbers is missing.

        Raises:
            TrainingSetError: a configuration or an architecture cannot be read.
        """
        columns = as_launched(rows.with_architecture(architecture_keys(self.names)), self.specifications)
        return {**columns, **self._config_columns(rows)}

    def matrix(self, rows: TrainingSet) -> NDArray[np.float32]:
        """The features of `rows`, shape (rows, names); NaN where missing, categories as their codes.

        Raises:
            TrainingSetError: a configuration or an architecture cannot be read.
        """
        return feature_row(self.columns(rows), self.names, self.categories, self.specifications)

    def _config_columns(self, rows: TrainingSet) -> Columns:
        keys = config_keys(self.names)
        if not keys:
            return {}
        places, configs = rows.distinct_configs()
        columns = config_columns(configs, keys)
        for name, values in columns.items():
            if name not in self.categories:
                values[np.array([isinstance(value, str) for value in values], dtype=np.bool_)] = None
                columns[name] = numbers(columns, name)
        return {name: values[places] for name, values in columns.items()}

    def types(self) -> list[str]:
        """XGBoost's type of each feature: "c" for a category, "q" for a number."""
        return ["c" if name in self.categories else "q" for name in self.names]


def feature_set(
    rows: TrainingSet,
    groups: Collection[str],
    *,
    config_keys: Collection[str] | None = None,
    catalogue: Catalogue = CATALOGUE,
) -> FeatureSet:
    """The features of `groups` (keys of `leap_features.row.GROUPS`), with what `rows` says of values and keys.

    Args:
        rows: the training rows; no other rows have a say.
        groups: names of groups; their features stand in the order of `GROUPS`.
        config_keys: keys of the job's configuration that may be taken, if "configuration" is among the groups; None:
            any. Of these, each is taken that holds numbers alone, or at most 256 different texts alone, that is in 1 %
            of the rows or more, and that has more than one value.
        catalogue: finds the specifications of hardware.

    Raises:
        ValueError: a group is unknown.
        TrainingSetError: a configuration or an architecture cannot be read.
    """
    unknown = sorted(set(groups) - set(GROUPS))
    if unknown:
        raise ValueError(f"groups of features are {', '.join(GROUPS)}, got {', '.join(unknown)}")
    names: list[str] = []
    categories: dict[str, tuple[str, ...]] = {}
    for group in GROUPS:
        if group not in groups:
            continue
        if group == "architecture":
            known = _usable(*rows.distinct_architectures())
            names += [name for name in GROUPS[group] if not known.keys().isdisjoint(architecture_keys((name,)))]
            names += [ARCHITECTURE_PREFIX + key for key in known]
            continue
        names += GROUPS[group]
        if group == "configuration":
            for key, texts in _usable(*rows.distinct_configs()).items():
                if config_keys is None or key in config_keys:
                    names.append(CONFIG_PREFIX + key)
                    if texts:
                        categories[CONFIG_PREFIX + key] = texts
    for name in names:
        if name in CATEGORICAL:
            categories[name] = tuple(sorted(set(rows.columns[name].tolist()) - {None}))
    return FeatureSet(tuple(names), categories, specifications_of(catalogue))


def objection_to_config_key(rows: TrainingSet, key: str) -> str | None:
    """Why a key of the jobs' configuration cannot be a feature, and what to do; None: it can.

    Raises:
        TrainingSetError: a configuration cannot be read.
    """
    values = _counted(*rows.distinct_configs())
    if key not in values:
        known = ", ".join(sorted(values)) or "no key at all"
        return f"no attempt of the training window has the configuration key {key!r}, they have {known}: leave it out"
    objection = _objection(values[key], len(rows))
    return objection and f"configuration key {key!r} {objection} in the training window: leave it out"


def _usable(places: NDArray[np.int64], different: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys that can be features, in alphabetical order: the texts of a category, none for one that holds numbers.

    Args:
        places: for every row, which of `different` is its own.
        different: the different sets of values by key.
    """
    return {
        key: tuple(sorted(_texts(values)))
        for key, values in sorted(_counted(places, different).items())
        if _objection(values, len(places)) is None
    }


def _counted(places: NDArray[np.int64], different: Sequence[Mapping[str, Any]]) -> dict[str, Counter[Any]]:
    """By key, how many rows have each of its values."""
    counted: dict[str, Counter[Any]] = {}
    for values, count in zip(different, np.bincount(places, minlength=len(different)).tolist(), strict=True):
        for key, value in values.items():
            if value is not None and count:
                counted.setdefault(key, Counter())[value] += count
    return counted


def _texts(values: Counter[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _objection(values: Counter[Any], rows: int) -> str | None:
    """Why a key with these values cannot be a feature; None: it can.

    Args:
        values: with how many rows have each.
        rows: all of them.
    """
    texts = _texts(values)
    if len(values) == 1:
        return f"must have more than one value, it has {next(iter(values))!r} alone"
    if 0 < len(texts) < len(values):
        return f"must hold numbers alone or texts alone, it holds {len(values) - len(texts)} numbers and {min(texts)!r}"
    if len(texts) > MAX_TEXTS:
        return f"must hold at most {MAX_TEXTS} different texts, it holds {len(texts):,}"
    if values.total() < MIN_SHARE * rows:
        return f"must be in {MIN_SHARE:.0%} of the attempts, it is in {values.total():,} of {rows:,}"
    return None

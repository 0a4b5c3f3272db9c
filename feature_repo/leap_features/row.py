"""The feature row: what a model sees of an attempt on a candidate. One definition for training and for the launcher.

A feature is asked for by name and computed from columns (see `columns`), for any number of rows at once. The order of
the features is the caller's, in the end the bundle's manifest; nothing here goes by position. Whatever cannot be
computed is missing (NaN): no logarithm of 0, no division by 0, no infinity and no number beyond float32 gets through.

Names:
    model_type, hardware_type, config__{key}  categories, if the caller lists their values; unlisted ones are missing
    config__{key}, hardware_specs__{name}, architecture__{number}   numbers as they are
    those of `row_features.COMPUTED`          what is computed: sizes, ratios, history of every level, back-off
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import (
    ARCHITECTURE_PREFIX,
    CONFIG_PREFIX,
    SPECS_PREFIX,
    Columns,
    Specifications,
    codes,
    column,
    row_count,
)
from leap_features.row_features import (
    COMPUTED,
    CONFIGURATION,
    FAMILY_HISTORY,
    HARDWARE,
    MODEL_NUMBERS,
    MODEL_RATIOS,
    OTHER_HISTORY,
    RATIOS,
    Feature,
    Rows,
)

Categories = Mapping[str, Sequence[str]]
"""Per categorical feature the values that it may have; a value's place is its code."""

CATEGORICAL: Final = frozenset({"model_type", "hardware_type"})
"""Features that are always categories. A `config__{key}` is one where its values are listed."""

AS_GIVEN: Final = (CONFIG_PREFIX, SPECS_PREFIX, ARCHITECTURE_PREFIX)
"""What the names of features begin with that are numbers as they are."""

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "configuration": ("model_type", *CONFIGURATION),
    "ratios": tuple(RATIOS),
    "hardware": tuple(HARDWARE),
    "family_history": FAMILY_HISTORY,
    "levels": OTHER_HISTORY,
    "architecture": tuple(MODEL_RATIOS),
}
"""Features by group: what ablations leave out together. A job's own configuration keys (`config__{key}`) belong to
"configuration", every `architecture__{number}` to "architecture", whichever there are. "family_history" is what the
paper has; what else is known of the family, and all that other levels know, is "levels"."""

BLOCK_ROWS: Final = 8192
"""Rows are taken so many at a time, so that what features share stays in the processor's caches, and little is held."""


def feature_row(
    columns: Columns, names: Sequence[str], categories: Categories, specifications: Specifications | None = None
) -> NDArray[np.float32]:
    """The features `names` of every row, shape (rows, len(names)), NaN where missing.

    Args:
        columns: the rows.
        names: of the features, in the order that is wanted.
        categories: values of each feature that is a category.
        specifications: finds those of a hardware type; features that compare the candidate with the hardware of an
            earlier run need them, no others do.

    Raises:
        MissingColumn: a column that a feature needs is not there.
        ValueError: a name is no feature, a categorical feature has no list of values, a column of numbers holds text,
            or a feature needs specifications that are not given.
    """
    features = _features(names, categories)
    count = row_count(columns)
    result = np.empty((count, len(names)), dtype=np.float32)
    for start in range(0, count, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = columns if count <= BLOCK_ROWS else {name: values[block] for name, values in columns.items()}
        rows = Rows(part, specifications)
        with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is made missing below
            for at, computed in enumerate(features):
                result[block, at] = computed(rows)
        into = result[block]
        into[~np.isfinite(into)] = np.nan
    return result


def feature(
    columns: Columns, name: str, categories: Categories, specifications: Specifications | None = None
) -> NDArray[np.float64]:
    """One feature of every row; a category as its code.

    Raises:
        MissingColumn: a column that it needs is not there.
        ValueError: as `feature_row` has it.
    """
    (computed,) = _features((name,), categories)
    return computed(Rows(columns, specifications))


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
        elif name not in COMPUTED and not name.startswith(AS_GIVEN):
            raise ValueError(
                f"{name!r} is no feature; there are {', '.join(sorted(COMPUTED))}, "
                f"{', '.join(prefix + '{name}' for prefix in AS_GIVEN)}"
            )


def config_keys(names: Sequence[str]) -> list[str]:
    """Keys of the job's configuration that the features `names` are made of."""
    return [name.removeprefix(CONFIG_PREFIX) for name in names if name.startswith(CONFIG_PREFIX)]


def architecture_keys(names: Sequence[str]) -> list[str]:
    """Numbers of the model definition that the features `names` are made of."""
    given = [name.removeprefix(ARCHITECTURE_PREFIX) for name in names if name.startswith(ARCHITECTURE_PREFIX)]
    ratios = MODEL_NUMBERS if any(name in MODEL_RATIOS for name in names) else ()
    return list(dict.fromkeys((*given, *ratios)))


def _features(names: Sequence[str], categories: Categories) -> list[Feature]:
    check_features(names, categories)
    return [_category(name, categories[name]) if name in categories else _number(name) for name in names]


def _number(name: str) -> Feature:
    return COMPUTED[name] if name in COMPUTED else lambda rows: rows.number(name)


def _category(name: str, values: Sequence[str]) -> Feature:
    index = {value: code for code, value in enumerate(values)}

    def code(rows: Rows) -> NDArray[np.float64]:
        result = codes(column(rows.columns, name), index, missing=-1).astype(np.float64)
        result[result < 0] = np.nan
        return result

    return code

"""Columns: how rows reach the feature row and the back-off, the same for 22 candidates and for millions of attempts.

A set of columns maps a name to an array with one entry per row. Names are those of the training set: `model_type`,
`hardware_type`, `trainer_count`, `reader_count`, `batch_size`, `submitted_at_us`, `config__{key}`,
`architecture__{number}`, `hardware_specs__{specification}`, and `{view}__{feature}` for history. A missing value is
None, or NaN among numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import SPECS

Columns = Mapping[str, NDArray[Any]]

CONFIG_PREFIX: Final = "config__"
ARCHITECTURE_PREFIX: Final = "architecture__"
SPECS_PREFIX: Final = "hardware_specs__"


class MissingColumn(ValueError):
    """A column that a feature is made of is not there."""


def history_column(view: str, feature: str) -> str:
    """Feast's full name of a history feature."""
    return f"{view}__{feature}"


def row_count(columns: Columns) -> int:
    """Number of rows; `model_type` is always there."""
    return len(column(columns, "model_type"))


def column(columns: Columns, name: str) -> NDArray[Any]:
    """The column `name`.

    Raises:
        MissingColumn: it is not there.
    """
    try:
        return columns[name]
    except KeyError:
        raise MissingColumn(f"column {name!r} is missing; there are: {', '.join(sorted(columns))}") from None


def numbers(columns: Columns, name: str) -> NDArray[np.float64]:
    """The column `name` as floats; None, NaN, infinities and integers beyond a float become NaN.

    Raises:
        MissingColumn: it is not there.
        ValueError: it holds text, which is never read as a number.
    """
    values = column(columns, name)
    if values.dtype.kind in "OUS":
        text = next((value for value in values.tolist() if isinstance(value, str | bytes)), None)
        if text is not None:
            raise ValueError(f"column {name!r} must hold numbers, got the text {text!r}")
    try:
        result = values.astype(np.float64)  # a copy; None becomes NaN
    except OverflowError:  # an integer that no float is near to
        result = np.array([_float(value) for value in values.tolist()])
    result[np.isinf(result)] = np.nan
    return result


def _float(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm; NaN where a value is missing or not above 0."""
    result = np.full(values.shape, np.nan)
    np.log(values, out=result, where=values > 0)
    return result


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """above ÷ below; NaN where either is missing or `below` is 0."""
    result = np.full(above.shape, np.nan)
    with np.errstate(over="ignore"):  # a quotient beyond float64 becomes infinite here and missing below
        np.divide(above, below, out=result, where=below != 0)
    result[~np.isfinite(result)] = np.nan
    return result


def config_columns(configs: Sequence[Mapping[str, object]], keys: Sequence[str]) -> dict[str, NDArray[Any]]:
    """One column `config__{key}` per key, None where a row's configuration lacks it."""
    result: dict[str, NDArray[Any]] = {}
    for key in keys:
        values = np.empty(len(configs), dtype=object)
        values[:] = [config.get(key) for config in configs]
        result[CONFIG_PREFIX + key] = values
    return result


def architecture_columns(
    architectures: Sequence[Mapping[str, float | None]], keys: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """One column `architecture__{key}` per key, NaN where a row's model definition does not say."""
    result: dict[str, NDArray[Any]] = {}
    for key in keys:
        values = np.empty(len(architectures), dtype=object)
        values[:] = [architecture.get(key) for architecture in architectures]
        result[ARCHITECTURE_PREFIX + key] = numbers({ARCHITECTURE_PREFIX + key: values}, ARCHITECTURE_PREFIX + key)
    return result


Specifications = Callable[[str], Mapping[str, float] | None]
"""Finds the published specifications of a hardware type, by name; None: the type is unknown."""


def specification_columns(
    hardware_types: NDArray[Any], specifications: Specifications, names: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """One column `hardware_specs__{name}` per name; NaN where the type or its specification is unknown."""
    index = {value: row for row, value in enumerate(dict.fromkeys(hardware_types.tolist()))}
    table = np.full((len(index), len(names)), np.nan)
    for hardware_type, row in index.items():
        found = specifications(hardware_type) if isinstance(hardware_type, str) else None
        if found is not None:
            table[row] = [found.get(name, np.nan) for name in names]
    values = table[codes(hardware_types, index, missing=-1)]
    return {SPECS_PREFIX + name: values[:, at] for at, name in enumerate(names)}


def as_launched(columns: Columns, specifications: Specifications) -> Columns:
    """`columns` with the specifications that a launcher will find, for every hardware type that it knows.

    A data set's come of a join by the exact name. The catalogue, which a launcher asks, and which says what the latest
    run's hardware was, also knows a name in another spelling; without this a type would differ from itself.
    """
    types = column(columns, "hardware_type")
    known_types = {name: 1 for name in dict.fromkeys(types.tolist()) if specifications(name) is not None}
    known = codes(types, known_types, missing=0) == 1
    found = specification_columns(types, specifications, SPECS)
    return {**columns, **{name: np.where(known, found[name], numbers(columns, name)) for name in found}}


def codes(values: NDArray[Any], index: Mapping[str, int], *, missing: int) -> NDArray[np.int64]:
    """The code of each value in `index`, and `missing` where it has none."""
    return np.fromiter((index.get(value, missing) for value in values.tolist()), dtype=np.int64, count=len(values))

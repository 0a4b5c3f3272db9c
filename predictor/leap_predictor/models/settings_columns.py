"""How a job's configuration and architecture become columns of the layered model's basis.

A text becomes one column per value that the fit saw; a number becomes its logarithm (of 1 + |x|, with its sign), in
units of its own spread. What is missing, or was never seen, is 0: the mean of what there was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import Columns, codes, column, row_count
from leap_predictor.models.basis import Floats


@dataclass(frozen=True)
class Setting:
    """One key of the configuration (`config__{key}`) or of the architecture (`architecture__{number}`)."""

    column: str
    texts: tuple[str, ...] = ()
    """Its values; empty: it is a number."""
    centre: float = 0.0
    """Of a number: mean and standard deviation of its logarithm in the fit."""
    scale: float = 1.0

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.texts) or 1

    def encode(self, values: NDArray[Any]) -> Floats:
        """The columns of `values`, shape (rows, width)."""
        if self.texts:
            found = codes(values, {text: code for code, text in enumerate(self.texts)}, missing=-1)
            result: Floats = (found[:, None] == np.arange(len(self.texts))).astype(np.float64)
            return result
        logarithms = signed_logarithm(values)
        return np.nan_to_num((logarithms - self.centre) / self.scale, nan=0.0)[:, None]


def signed_logarithm(values: NDArray[Any]) -> Floats:
    """sign(x) · ln(1 + |x|); NaN for what is no finite number."""
    plain = [
        float(value) if isinstance(value, int | float) and abs(value) < 1e300 else np.nan for value in values.tolist()
    ]
    numbers = np.array(plain, dtype=np.float64)
    result: Floats = np.sign(numbers) * np.log1p(np.abs(numbers))
    return result


@dataclass(frozen=True)
class SettingsEncoder:
    """The settings of a fit, those of the configuration first."""

    configuration: tuple[Setting, ...] = ()
    architecture: tuple[Setting, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are asked for."""
        return tuple(setting.column for setting in (*self.configuration, *self.architecture))

    @property
    def widths(self) -> tuple[int, int]:
        """Number of columns of the configuration, and of the architecture."""
        return sum(s.width for s in self.configuration), sum(s.width for s in self.architecture)

    def encode(self, columns: Columns) -> Floats:
        """The settings of every row, shape (rows, sum of widths).

        Raises:
            MissingColumn: a setting's column is not there.
        """
        parts = [
            setting.encode(column(columns, setting.column)) for setting in (*self.configuration, *self.architecture)
        ]
        return np.concatenate([np.zeros((row_count(columns), 0)), *parts], axis=1)

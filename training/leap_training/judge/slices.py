"""Slices: which scored rows are hard, told by what was known when they were submitted, the same for every model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.columns import history_column, numbers
from leap_features.levels import FAMILY_SCALE
from leap_training.training_set import TrainingSet

SLICES: Final = ("all", "first_in_cell", "new_hardware_first", "new_hardware", "new_family", "head", "tail")

TAIL_SHARE: Final = 0.22
"""Of the training attempts: what the least common model types, the tail, hold (the paper's 560 of 660)."""


@dataclass(frozen=True, eq=False)
class Flags:
    """What is said of every scored row, whatever the model and its history."""

    first_in_cell: NDArray[np.bool_]
    """No completed run of (family, hardware, trainers) was known at submission."""
    new_hardware: NDArray[np.bool_]
    """The hardware type is in no training row."""
    new_family: NDArray[np.bool_]
    """The family is in no training row."""
    head: NDArray[np.bool_]
    """The model type is none of the tail: the least common ones that together hold 22 % of the training rows."""

    def slices(self) -> dict[str, NDArray[np.bool_]]:
        """The rows of each slice."""
        everything = np.ones(len(self.head), dtype=np.bool_)
        return {
            "all": everything,
            "first_in_cell": self.first_in_cell,
            "new_hardware_first": self.first_in_cell & self.new_hardware,
            "new_hardware": self.new_hardware,
            "new_family": self.new_family,
            "head": self.head,
            "tail": ~self.head,
        }


def flags(train: TrainingSet, scored: TrainingSet) -> Flags:
    """The flags of `scored`, whose history columns are those of its submission."""
    first = ~(numbers(scored.columns, history_column(FAMILY_SCALE.view, "count")) > 0)
    return Flags(
        first,
        ~_is_in(scored, train, "hardware_type"),
        ~_is_in(scored, train, "job_family"),
        np.isin(scored.columns["model_type"].astype(str), head_model_types(train)),
    )


def head_model_types(train: TrainingSet) -> list[str]:
    """The most common model types: all but the least common ones that hold at most 22 % of the rows of `train`."""
    counts = pd.Series(train.columns["model_type"]).value_counts(ascending=True)
    # Of equal counts the name decides, so that the split does not depend on the order of the rows.
    counts = counts.sort_index().sort_values(kind="stable")
    rest = counts.cumsum() > TAIL_SHARE * len(train)
    return [str(name) for name in counts.index[rest]]


def _is_in(scored: TrainingSet, train: TrainingSet, column: str) -> NDArray[Any]:
    return pd.Series(scored.columns[column]).isin(pd.unique(train.columns[column])).to_numpy()

"""What the judge, the nightly run and the page ask of a model, whichever it is: recipe, fitted model, predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.training_set import TrainingSet


class NotRun(RuntimeError):
    """A model that cannot be fitted here (a package or weights are not there); the message says what to install.

    It is shown as not run, never as a figure.
    """


class NothingToFit(ValueError):
    """There are no rows to fit a model on."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """One entry per row. Natural logarithms of samples per second over all trainers."""

    log_throughput: NDArray[np.float64]
    """NaN: no answer, which counts as wrong."""
    log_low: NDArray[np.float64] | None = None
    """Lower end of the 80 % interval; None: the model has no intervals."""
    log_high: NDArray[np.float64] | None = None
    level: NDArray[np.int8] | None = None
    """Index in `leap_features.levels.BACKOFF` of the level that answered, −1: none; None: the model uses no levels."""


class FittedModel(Protocol):
    """A model that has been fitted."""

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row, whose `log_throughput` is hidden (NaN)."""


class Recipe(Protocol):
    """How a model is fitted."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        """Fit on `rows`.

        Raises:
            NotRun: a package or weights are not there.
            NothingToFit: there are no rows.
        """

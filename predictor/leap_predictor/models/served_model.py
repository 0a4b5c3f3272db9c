"""What a launcher asks of the model in a bundle, whichever it is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from leap_features.columns import Columns
from leap_features.row import Categories
from leap_predictor.models.layered import Estimate

NORMAL: Final = 1.2815515655446004
"""Half-width of the 80 % interval of a normal distribution, in standard deviations."""


class ServedModel(Protocol):
    """A fitted model as it was read from a bundle. It is never changed, and any number of threads may ask it."""

    @property
    def features(self) -> tuple[str, ...]:
        """What it sees of a candidate, by the names of `leap_features.row`."""

    @property
    def categories(self) -> Categories:
        """Values of those features that are categories."""

    @property
    def model_types(self) -> Collection[str]:
        """Model types that were in the training data."""

    def estimate(self, columns: Columns) -> Estimate:
        """What it predicts of every row, in one pass over all of them.

        Raises:
            MissingColumn: a column that is needed is not there.
        """

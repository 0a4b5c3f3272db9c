"""Figures of a night: how accurate each model is, and by how much two differ on the same attempts.

The uncertainty of a difference is that of another draw of job families: attempts of one family are right or wrong
together, so whole families are drawn again (a paired cluster bootstrap, percentile interval).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_training.judge.bootstrap import Resamples, interval
from leap_training.judge.figures import Figures, figures, relative_error
from leap_training.judge.intervals import Coverage, coverage
from leap_training.model import Predictions
from leap_training.training_set import TrainingSet

ALL: Final = "all"
FIRST_IN_CELL: Final = "first_in_cell"

CANDIDATE: Final = "candidate"
PUBLISHED: Final = "published"
BACKOFF_LAST: Final = "backoff_last"


class Difference(msgspec.Struct, frozen=True):
    """Share within ±20 % of one model minus another's, in points, on the same attempts."""

    rows: int
    points: float
    low: float
    """Ends of the 95 % interval."""
    high: float

    @property
    def surely_below(self) -> bool:
        """Whether the first model is worse by more than the uncertainty of the difference."""
        return self.points < 0 and self.high < 0


class SliceFigures(msgspec.Struct, frozen=True):
    """How accurate a model is in a slice."""

    model: str
    slice: str
    figures: Figures
    below_candidate: Difference | None
    """The candidate minus this model on these attempts; None: this is the candidate, or there are no attempts."""


def slice_figures(
    model: str,
    predicted: NDArray[np.float64],
    rows: TrainingSet,
    slices: Mapping[str, NDArray[np.bool_]],
    candidate: NDArray[np.float64] | None = None,
) -> list[SliceFigures]:
    """Figures of `predicted` (logarithms, NaN: no answer) by slice, and how far the candidate is ahead of it.

    Args:
        slices: masks of `rows`, by name.
        candidate: the candidate's predictions of the same rows; None: `predicted` are these.
    """
    error = relative_error(predicted, rows.log_throughput)
    device_hours = rows.columns["device_hours"]
    found = []
    for name, chosen in slices.items():
        ahead = None
        if candidate is not None and chosen.any():
            near = relative_error(candidate, rows.log_throughput) <= 0.2
            ahead = difference(near[chosen], error[chosen] <= 0.2, rows.columns["job_family"][chosen])
        found.append(SliceFigures(model, name, figures(error[chosen], device_hours[chosen]), ahead))
    return found


def difference(ours: NDArray[np.bool_], theirs: NDArray[np.bool_], families: NDArray[Any]) -> Difference:
    """How much more often `ours` is right than `theirs`; all have one entry per attempt, and there are some."""
    resamples = Resamples(families)
    if not resamples.enough:  # all attempts are of one family: the draw of attempts is all there is
        resamples = Resamples(np.arange(len(families)))
    drawn = resamples.shares(np.stack([ours, theirs], axis=1))
    low, high = interval(100.0 * (drawn[:, 0] - drawn[:, 1]))
    return Difference(len(ours), 100.0 * (int(ours.sum()) - int(theirs.sum())) / len(ours), low, high)


def coverage_of_all(predicted: Predictions, measured: NDArray[np.float64]) -> Coverage | None:
    """What the 80 % intervals of `predicted` hold; None: it has none."""
    if predicted.log_low is None or predicted.log_high is None:
        return None
    found = coverage(measured, predicted.log_low, predicted.log_high, None)
    return found[0] if found else None

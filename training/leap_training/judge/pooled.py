"""The scored rows of all windows put together, with what every model said of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_training.judge.figures import relative_error
from leap_training.judge.modes import Mode
from leap_training.judge.slices import Flags
from leap_training.judge.window_judge import WindowResult
from leap_training.model import Predictions
from leap_training.training_set import TrainingSet


@dataclass(frozen=True, eq=False)
class Pooled:
    """Every array has one entry per scored row, window after window."""

    windows: list[str]
    window: NDArray[np.int64]
    """Place among `windows`."""
    row: NDArray[np.int64]
    """Place in the data set."""
    scored: TrainingSet
    flags: Flags
    answers: dict[tuple[str, Mode], Predictions]
    error: dict[tuple[str, Mode], NDArray[np.float64]]
    """|predicted ÷ measured − 1|; infinite where there is no answer."""

    @property
    def device_hours(self) -> NDArray[np.float64]:
        """NaN unknown."""
        return self.scored.columns["device_hours"]


def pool(rows: TrainingSet, results: Sequence[WindowResult]) -> Pooled:
    """Put the windows' results together. A model that was not run in one window is in none.

    Args:
        rows: the data set.
        results: one per window, of the same models and modes.
    """
    row = np.concatenate([result.window.scored for result in results])
    sizes = [len(result.scored) for result in results]
    everywhere = [key for key in results[0].answers if all(key in result.answers for result in results)]
    answers = {key: _joined([result.answers[key] for result in results]) for key in everywhere}
    scored = rows.where(row)
    return Pooled(
        [result.window.name for result in results],
        np.repeat(np.arange(len(results)), sizes),
        row,
        scored,
        Flags(
            *(
                np.concatenate([getattr(result.flags, name) for result in results])
                for name in ("first_in_cell", "new_hardware", "new_family", "head")
            )
        ),
        answers,
        {key: relative_error(given.log_throughput, scored.log_throughput) for key, given in answers.items()},
    )


def _joined(parts: list[Predictions]) -> Predictions:
    def each(get: Callable[[Predictions], NDArray[Any] | None], missing: float) -> NDArray[Any] | None:
        given = [get(part) for part in parts]
        if all(values is None for values in given):
            return None
        return np.concatenate(
            [
                np.full(len(part.log_throughput), missing) if values is None else values
                for part, values in zip(parts, given, strict=True)
            ]
        )

    level = each(lambda part: part.level, -1)
    return Predictions(
        np.concatenate([part.log_throughput for part in parts]),
        each(lambda part: part.log_low, np.nan),
        each(lambda part: part.log_high, np.nan),
        None if level is None else level.astype(np.int8),
    )

"""Judges the layered model on attempts that came after everything it was fitted on, beside the back-off's last value.

Fitted on what was recorded before a cut, scored on what was submitted at or after it. Attempts that were under way at
the cut are in neither. History takes part as of each attempt's submission, as it would have been served.

Most attempts repeat a cell (family, hardware, trainers) that was run before, where the last value is hard to beat, so
first runs in a new cell are reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import CONFIG_PREFIX, history_column, numbers
from leap_features.hardware import Catalogue
from leap_features.levels import FAMILY_SCALE
from leap_training.layered import FitSettings, Fitted, as_launched, fit
from leap_training.training_set import TrainingSet


class Accuracy(msgspec.Struct, frozen=True):
    """How near some predictions came to the measured throughputs. Shares are in percent of all rows."""

    rows: int
    unanswered: int
    """Rows without a prediction; they count as wrong."""
    within_10: float | None
    """Share within ±10 % of the measured throughput; None: no rows."""
    within_20: float | None
    median_error: float | None
    """Median of |predicted ÷ measured − 1| in percent; None: no rows, or half of them unanswered."""


class Judgement(msgspec.Struct, frozen=True):
    """Both methods on the same rows."""

    model: Accuracy
    backoff_last: Accuracy


class Evaluation(msgspec.Struct, frozen=True):
    """What `leap evaluate` reports."""

    train_rows: int
    scored: Judgement
    """All scored attempts."""
    first_runs: Judgement
    """Those in a cell (family, hardware, trainers) without a completed run at submission."""


def evaluate(
    rows: TrainingSet,
    from_us: int,
    catalogue: Catalogue,
    settings: FitSettings | None = None,
    *,
    config_keys: Sequence[str] = (),
) -> Evaluation:
    """Fit on what was recorded before `from_us` (microseconds since 1970 UTC), score what was submitted from then on.

    Raises:
        NothingToFit: nothing was recorded before.
        ValueError: a configuration key cannot be a feature.
    """
    train = rows.where(rows.recorded_at_us < from_us)
    fitted = fit(train, catalogue, settings, config_keys=config_keys)
    return judge(fitted, len(train), rows.where(rows.submitted_at_us >= from_us))


def judge(fitted: Fitted, train_rows: int, later: TrainingSet) -> Evaluation:
    """Score `fitted` on `later`, which it has never seen."""
    keys = [name.removeprefix(CONFIG_PREFIX) for name in fitted.features if name.startswith(CONFIG_PREFIX)]
    columns = as_launched(later.with_config(keys), fitted.model.specifications)
    predicted = fitted.model.estimate(columns).log_throughput
    last = backoff(later.columns).last
    first = ~(numbers(later.columns, history_column(FAMILY_SCALE.view, "count")) > 0)
    everything = np.ones(len(later), dtype=np.bool_)

    def both(chosen: NDArray[np.bool_]) -> Judgement:
        measured = later.log_throughput[chosen]
        return Judgement(accuracy(predicted[chosen], measured), accuracy(last[chosen], measured))

    return Evaluation(train_rows, both(everything), both(first))


def accuracy(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> Accuracy:
    """Compare natural logarithms of throughput; NaN among the predictions means that there is none."""
    if not len(measured):
        return Accuracy(0, 0, None, None, None)
    # A logarithm is clipped before it becomes a ratio: e^±50 is as wrong as anything.
    error = np.abs(np.expm1(np.clip(predicted - measured, -50.0, 50.0)))
    error[np.isnan(error)] = np.inf
    median = float(np.median(error))
    return Accuracy(
        len(error),
        int(np.isinf(error).sum()),
        100.0 * float((error <= 0.1).mean()),
        100.0 * float((error <= 0.2).mean()),
        100.0 * median if np.isfinite(median) else None,
    )


def table(evaluation: Evaluation) -> Iterator[str]:
    """`evaluation` as lines of text."""
    yield f"{'':48}{'rows':>8}{'±10 %':>9}{'±20 %':>9}{'median error':>14}{'unanswered':>12}"
    for title, judgement in (("all attempts", evaluation.scored), ("first runs in a new cell", evaluation.first_runs)):
        for method, result in (("model", judgement.model), ("back-off's last value", judgement.backoff_last)):
            shares = f"{_percent(result.within_10):>9}{_percent(result.within_20):>9}"
            error = f"{_percent(result.median_error):>14}"
            yield f"{f'{title}, {method}':<48}{result.rows:>8,}{shares}{error}{result.unanswered:>12,}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"

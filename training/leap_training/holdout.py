"""Scores a fit on the latest rows before the published model takes them in, so that a bundle says how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from leap_features.backoff import backoff
from leap_training.judge.figures import Figures, figures, relative_error
from leap_training.judge.slices import flags
from leap_training.model import FittedModel
from leap_training.training_set import TrainingSet

HOLDOUT_SHARE: Final = 0.2
"""Share of the rows, the latest recorded, that a first fit is scored on."""

MIN_HOLDOUT_ROWS: Final = 50
"""Accuracy of fewer rows says nothing."""

SLICES: Final = {"all": "all attempts", "first_in_cell": "first runs in a new cell"}
METHODS: Final = {"model": "model", "backoff_last": "back-off's last value"}

HeldOut = Mapping[str, Mapping[str, Figures]]
"""By slice and method."""


def held_out(rows: TrainingSet, fit: Callable[[TrainingSet], FittedModel]) -> HeldOut | None:
    """Score a fit without the latest rows on those rows; None where there are too few."""
    if not len(rows):
        return None
    cut = int(np.quantile(rows.recorded_at_us, 1 - HOLDOUT_SHARE, method="lower"))
    later = rows.where(rows.submitted_at_us >= cut)
    earlier = rows.where(rows.recorded_at_us < cut)
    if len(later) < MIN_HOLDOUT_ROWS or not len(earlier):
        return None
    answers = {
        "model": fit(earlier).predict(later.hidden()).log_throughput,
        "backoff_last": backoff(later.columns).last,
    }
    errors = {name: relative_error(answer, later.log_throughput) for name, answer in answers.items()}
    chosen = flags(earlier, later).slices()
    hours = later.columns["device_hours"]
    return {of: {name: figures(errors[name][chosen[of]], hours[chosen[of]]) for name in METHODS} for of in SLICES}


def metrics(found: HeldOut) -> dict[str, float]:
    """`found` as a bundle's manifest holds it."""
    return {
        f"held_out_{of}_{method}_{name}": float(value)
        for of, methods in found.items()
        for method, result in methods.items()
        for name, value in msgspec.structs.asdict(result).items()
        if value is not None
    }


def warnings(found: HeldOut) -> Iterator[str]:
    """Where the model is behind the back-off, which needs no model."""
    for of, methods in found.items():
        model, plain = methods["model"].within20, methods["backoff_last"].within20
        if model is not None and plain is not None and model < plain:
            yield (
                f"{SLICES[of]}: the model has {_percent(model)} within ±20 %, back-off's last value {_percent(plain)}. "
                "It is published all the same: `leap nightly` publishes only what holds up, and can go back"
            )


def table(found: HeldOut) -> Iterator[str]:
    """`found` as lines of text."""
    yield f"{'':48}{'rows':>8}{'±10 %':>9}{'±20 %':>9}{'median error':>14}{'unanswered':>12}"
    for of, methods in found.items():
        for method, result in methods.items():
            shares = f"{_percent(result.within10):>9}{_percent(result.within20):>9}"
            error = f"{_percent(result.median_error):>14}"
            title = f"{SLICES[of]}, {METHODS[method]}"
            yield f"{title:<48}{result.rows:>8,}{shares}{error}{result.unanswered:>12,}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"

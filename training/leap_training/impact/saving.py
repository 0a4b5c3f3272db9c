"""The saving: ranked attempts against the control group, and what the predictions say where there is none. Pure."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_training.impact.report import Interval

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MIN_FAMILIES: Final = 5
"""Job families that a model type needs in each group to be compared: fewer do not show how much families differ."""
_AT_ONCE: Final = 2_000_000
"""Numbers held at once while draws are made."""


class Measured(NamedTuple):
    """What the comparison says."""

    total: Interval | None
    by_model: dict[int, Interval]
    """Of the model types that could be compared."""


def measured_saving(
    model: Ints,
    family: Ints,
    ranked: Bools,
    log_cost: Floats,
    log_predicted: Floats,
    weights: Floats,
    *,
    confidence: float,
    draws: int,
    seed: int,
) -> Measured:
    """1 − exp(difference of mean log cost per sample, ranked − control), by model type and over them all.

    Each attempt's log cost per sample is first taken relative to what was predicted for the job over its candidates,
    as far as that explains it. Both groups have that prediction, made before anything was placed, so it changes what
    the difference is by chance alone, and not what it is on average.

    Args:
        model: number of each attempt's model type.
        family: number of its job family, which belongs to one model type.
        ranked: whether it got a ranking; else it is of the control group.
        log_cost: logarithm of its cost per sample.
        log_predicted: mean over its candidates of the predicted logarithm.
        weights: of model type number m its weight in the total, ≥ 0.
        confidence: of the intervals, such as 0.95.
        draws: of the bootstrap over families.
        seed: of its randomness.
    """
    outcome = log_cost - _slope(model, ranked, log_cost, log_predicted) * log_predicted
    differences: list[float] = []
    drawn: list[Floats] = []
    compared: list[int] = []
    for number in np.unique(model):
        here = model == number
        sums = _family_sums(family[here], ranked[here], outcome[here])
        fewest = int(min(np.count_nonzero(sums[:, 0]), np.count_nonzero(sums[:, 2])))
        if fewest < MIN_FAMILIES:
            continue
        difference = float(_difference(sums.sum(axis=0)))
        random = np.random.default_rng([seed, int(number)])
        resampled = _difference(_resampled_sums(sums, draws, random))
        compared.append(int(number))
        differences.append(difference)
        drawn.append(difference + _widening(fewest, confidence) * (resampled - difference))
    if not compared:
        return Measured(None, {})
    by_model = {
        number: _saving(difference, of_model, confidence)
        for number, difference, of_model in zip(compared, differences, drawn, strict=True)
    }
    weight = weights[compared]
    if not weight.sum():
        return Measured(None, by_model)
    # A draw may leave a model type without one of the groups; the others speak then.
    weight_drawn = np.where(np.isnan(drawn), np.nan, weight[:, None])
    total = np.nansum(weight_drawn * drawn, axis=0) / np.where(
        (whole := np.nansum(weight_drawn, axis=0)) > 0, whole, np.nan
    )
    return Measured(_saving(float(np.average(differences, weights=weight)), total, confidence), by_model)


def predicted_share(
    family: Ints, part: Floats, whole: Floats, *, confidence: float, draws: int, seed: int
) -> Interval | None:
    """Σ part ÷ Σ whole over attempts, with an interval by resampling their job families; None: of too few."""
    if not whole.sum() > 0:
        return None
    _, place = np.unique(family, return_inverse=True)
    sums = np.stack([np.bincount(place, part), np.bincount(place, whole)], axis=1).astype(np.float64)
    if len(sums) < MIN_FAMILIES:
        return None
    resampled = _resampled_sums(sums, draws, np.random.default_rng(seed))
    shares = resampled[:, 0] / np.where(resampled[:, 1] > 0, resampled[:, 1], np.nan)
    low, high = _quantiles(shares, confidence)
    return Interval(float(part.sum() / whole.sum()), low, high)


def _slope(model: Ints, ranked: Bools, outcome: Floats, covariate: Floats) -> float:
    """How much `outcome` goes along with `covariate` among the attempts of a model type and group."""
    _, cell = np.unique(2 * model + ranked, return_inverse=True)
    size = np.bincount(cell)
    about = covariate - (np.bincount(cell, covariate) / size)[cell]
    spread = float(about @ about)
    return float(about @ outcome) / spread if spread > 1e-12 else 0.0


def _family_sums(family: Ints, ranked: Bools, outcome: Floats) -> Floats:
    """For each family: ranked attempts and the sum of their outcomes, and the same of the control group's."""
    _, place = np.unique(family, return_inverse=True)
    size = int(place.max()) + 1
    return np.stack(
        [
            column
            for group in (ranked, ~ranked)
            for column in (
                np.bincount(place[group], minlength=size).astype(np.float64),
                np.bincount(place[group], outcome[group], minlength=size),
            )
        ],
        axis=1,
    )


def _difference(sums: Floats) -> Floats:
    """Mean outcome of ranked attempts less that of the control group's; NaN where there are none of either."""
    ranked, ranked_sum, control, control_sum = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = ranked_sum / ranked - control_sum / control
    return found


def _resampled_sums(sums: Floats, draws: int, random: np.random.Generator) -> Floats:
    """The totals of as many families, drawn with replacement, `draws` times."""
    count = len(sums)
    step = max(1, _AT_ONCE // count)
    parts = []
    for begin in range(0, draws, step):
        rows = min(step, draws - begin)
        chosen = random.integers(count, size=(rows, count)) + count * np.arange(rows)[:, None]
        times = np.bincount(chosen.ravel(), minlength=rows * count).reshape(rows, count)
        parts.append(times @ sums)
    return np.concatenate(parts)


@cache
def _widening(families: int, confidence: float) -> float:
    """How much wider than its draws an interval from few families must be: as Student's t is than the normal."""
    from scipy.stats import norm, t  # noqa: PLC0415  # half a second that other commands need not wait

    upper = (1 + confidence) / 2
    return float(t.ppf(upper, families - 1) / norm.ppf(upper) * np.sqrt(families / (families - 1)))


def _saving(difference: float, drawn: Floats, confidence: float) -> Interval:
    low, high = _quantiles(drawn, confidence)
    return Interval(-float(np.expm1(difference)), -float(np.expm1(high)), -float(np.expm1(low)))


def _quantiles(drawn: Floats, confidence: float) -> tuple[float, float]:
    low, high = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)

"""Regret: what a fleet loses by following a model's top pick, held against the truth of a synthetic fleet.

Value for money is throughput ÷ hourly cost. Of the eligible hardware types of a job the model's top pick is the one of
the greatest predicted value; the regret is the share of the best value, by the truth, that the pick forgoes. A pick
that runs out of memory loses everything. Where a model answers for no candidate the job runs where its owners put it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.columns import codes
from leap_training.judge.truth import Truth

JOBS_PER_WINDOW: Final = 500
"""Asked about in each window, drawn at random: every job has up to 22 candidates."""

AS_GOOD: Final = 0.99
"""Of the best value: a pick that reaches it is as good as the best."""


class RegretFigures(msgspec.Struct, frozen=True):
    """In percent."""

    jobs: int
    lost: float | None
    """Mean share of the best value that the picks forgo; None: no jobs."""
    lost_by_cost: float | None
    """The same with a job weighing what it cost, device-hours · hourly cost of where it ran."""
    best: float | None
    """Jobs whose pick reaches 99 % of the best value."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Jobs of one window and their eligible hardware types, one question per pair of both."""

    row: NDArray[np.int64]
    """Per job its scored row."""
    value: NDArray[np.float64]
    """True value for money, shape (jobs, hardware types); NaN where not eligible or without a cost."""
    used: NDArray[np.int64]
    """Per job the place of the hardware type that it ran on."""
    cost: NDArray[np.float64]
    """Per job its device-hours · hourly cost; NaN unknown."""
    hourly: NDArray[np.float64]
    """Per hardware type US dollars an hour."""
    hardware_types: NDArray[Any]

    def __len__(self) -> int:
        return len(self.row)

    def asked(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The scored row and the hardware type of every question."""
        job, place = np.nonzero(~np.isnan(self.value))
        return self.row[job], self.hardware_types[place]


def candidates_of(
    truth: Truth,
    rows: NDArray[np.int64],
    used: NDArray[Any],
    device_hours: NDArray[np.float64],
    costs: Mapping[str, float],
    seed: int,
) -> Candidates:
    """Jobs with a choice among the scored rows of one window, at most `JOBS_PER_WINDOW` of them.

    Args:
        truth: of the data set.
        rows: the scored rows, by their places in the data set.
        used: their hardware types.
        device_hours: of the same rows.
        costs: US dollars an hour by hardware type.
        seed: of the draw.
    """
    hourly = np.array([costs.get(name, np.nan) for name in truth.hardware_types])
    value = truth.expected[rows].astype(np.float64) / hourly
    place = codes(used, {name: at for at, name in enumerate(truth.hardware_types)}, missing=-1)
    ran = (place >= 0) & ~np.isnan(value[np.arange(len(rows)), place])
    chosen = np.flatnonzero(ran & ((value > 0).sum(axis=1) > 1))
    if len(chosen) > JOBS_PER_WINDOW:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, JOBS_PER_WINDOW, replace=False))
    return Candidates(
        chosen,
        value[chosen],
        place[chosen],
        device_hours[chosen] * hourly[place[chosen]],
        hourly,
        np.array(truth.hardware_types, dtype=object),
    )


def picks(candidates: Candidates, log_throughput: NDArray[np.float64]) -> NDArray[np.int64]:
    """Per job the place of the model's top pick, from what it said of every question (NaN: nothing)."""
    predicted = np.full(candidates.value.shape, -np.inf)
    eligible = ~np.isnan(candidates.value)
    # A type without a cost is eligible for no job, and its logarithm must not reach those that are.
    log_cost = np.log(np.where(candidates.hourly > 0, candidates.hourly, 1.0))
    predicted[eligible] = np.where(np.isnan(log_throughput), -np.inf, log_throughput)
    predicted -= log_cost
    top = predicted.argmax(axis=1)
    answered = np.isfinite(predicted.max(axis=1))
    return np.where(answered, top, candidates.used)


def lost_share(candidates: Candidates, pick: NDArray[np.int64]) -> NDArray[np.float64]:
    """Per job the share of the best value that `pick` forgoes, 0 to 1."""
    best: NDArray[np.float64] = np.nanmax(candidates.value, axis=1)
    return 1.0 - candidates.value[np.arange(len(candidates)), pick] / best


def regret_figures(lost: NDArray[np.float64], cost: NDArray[np.float64]) -> RegretFigures:
    """Figures of the shares lost of some jobs."""
    if not len(lost):
        return RegretFigures(0, None, None, None)
    weight = np.nan_to_num(cost, nan=0.0)
    return RegretFigures(
        len(lost),
        100.0 * float(lost.mean()),
        100.0 * float(weight @ lost / weight.sum()) if weight.sum() > 0 else None,
        100.0 * float((1.0 - lost >= AS_GOOD).mean()),
    )

"""The layered model: a scaling model of each model type, conditioned on the live history when a prediction is made.

Three layers add up to ln throughput at a point x (hardware, trainers, batch size):

    offset(x)       a roofline's first guess (see `basis`)
    φ(x) · u        what a fit learned of the model type; u is normal with a mean and a covariance
    family(x)       what is particular to the job family; a Gaussian process (`family_terms`)

and a run measures it with noise. The fit is of last night; history is of now. So for each candidate the runs that its
history remembers (`points`) are measurements that the prior of last night has not seen, and the estimate is its mean
given them (kriging; Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 2.23 and 2.24):

    estimate = f(x) + k(x, O) · (K(O, O) + noise)⁻¹ · (y − f(O)),   f = offset + φ · mean of u

This is f(x) + last − f(x_last), with the shrinkage that each level deserves: an exact repetition answers for itself, a
run of another family tells of the model type but not of the family, an old run tells less than a new one. A single run
may be a straggler, so its noise has Student's t distribution, by a few steps of reweighting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import Columns, column
from leap_features.levels import BACKOFF, FAMILY_SCALE
from leap_features.row import Categories
from leap_predictor.models.basis import SCALE_WIDTH, Basis, Floats, Ints
from leap_predictor.models.points import OWN, POINTS, Points, points_of
from leap_predictor.models.repeat_noise import RepeatNoise
from leap_predictor.models.settings_columns import SettingsEncoder

DEGREES_OF_FREEDOM: Final = 4.0
"""Of the noise of a single run: tails that hold stragglers, and still a variance."""

REWEIGHTINGS: Final = 3

_SAME_CELL: Final = (1 + BACKOFF.index(FAMILY_SCALE), POINTS - 1)
"""Points whose runs were in the candidate's own cell (the mean where that level has one)."""

_ROWS_AT_ONCE: Final = 1000
JITTER: Final = 1e-6
"""Keeps matrices of the same points invertible; far below any noise that is measured (0.1 %)."""

FAMILY_TERMS: Final = (
    "constant",
    "hardware",
    "trainers",
    "batch",
    "cell",
    "year",
    "week",
    "cell_year",
    "cell_week",
)
PLAIN_FEATURES: Final = (
    "model_type",
    "log_trainers",
    "log_batch",
    "hardware_specs__dense_bf16_or_fp16_tflops",
    "hardware_specs__fp32_tflops",
    "hardware_specs__memory_bandwidth_gbs",
    "hardware_specs__memory_gib",
)
"""What every layered model sees of a candidate; the basis makes its columns of them."""

_CHANGING: Final = frozenset({"year", "week", "cell_year", "cell_week"})
YEAR_DAYS: Final = 365.0
WEEK_DAYS: Final = 7.0


@dataclass(frozen=True, eq=False)
class FamilyPoints:
    """Points of one family, or of one row. Arrays of one shape."""

    hardware: Ints
    trainers: Floats
    """ln trainers around the basis's centre."""
    batch: Floats
    days: Floats


def family_terms(points: FamilyPoints) -> list[Floats]:
    """Covariances of all pairs along the last axis, by `FAMILY_TERMS`, each of weight 1.

    A family differs from its model type by a constant, by hardware, in its slopes over trainers and batch size, and at
    a cell and its neighbourhood; the constant and the cell also change with time, within a year and within a week.
    """

    def pairs(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return values[..., :, None], values[..., None, :]

    a, b = pairs(points.hardware)
    same = (a == b).astype(np.float64)
    n, m = pairs(points.trainers)
    p, q = pairs(points.batch)
    s, t = pairs(points.days)
    cell = same * np.exp(-0.5 * ((n - m) / SCALE_WIDTH) ** 2 - 0.5 * (p - q) ** 2)
    apart = np.abs(s - t)
    year, week = np.exp(-apart / YEAR_DAYS), np.exp(-apart / WEEK_DAYS)
    return [np.ones_like(same), same, n * m, p * q, cell, year, week, cell * year, cell * week]


@dataclass(frozen=True, eq=False)
class ModelType:
    """The posterior of one model type's coefficients u."""

    mean: Floats
    """Shape (width,)."""
    told: Floats
    """Shape (width, r): the covariance is that of a model type never seen, less told · toldᵀ."""
    settings: Floats
    """Shape (settings,): their mean, for runs of other families, whose settings history does not tell."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Per row, in natural logarithms of samples per second over all trainers."""

    log_throughput: Floats
    uncorrected: Floats
    """What last night's fit says without the history of now."""
    correction: Floats
    """log_throughput − uncorrected."""
    spread: Floats
    """Standard deviation of the next run about `log_throughput`, by the model's own account."""
    log_low: Floats
    """The 80 % interval, by the errors that were seen on later runs at the same level."""
    log_high: Floats
    level: NDArray[np.int8]
    """Index of the first level in `BACKOFF` that has history; −1: none."""
    last: Floats
    """The latest run of that level; NaN: none."""


@dataclass(frozen=True, eq=False)
class Layered:
    """A fit, and what it needs to be conditioned on history: the same object serves the launcher and the evaluation."""

    basis: Basis
    canonical: Callable[[str], str | None]
    """The catalogue's name of a hardware type, if it has one."""
    encoder: SettingsEncoder
    """Turns configuration and architecture into the basis's settings."""
    intercept: float
    covariance: Floats
    """Shape (width, width): of u of a model type never seen."""
    never_seen: ModelType
    model_types: Mapping[str, ModelType]
    family_weights: Floats
    """Weight of each of `FAMILY_TERMS`."""
    noise: RepeatNoise
    widths: Floats
    """Per level, −1 first: half-width of the 80 % interval in spreads."""

    @property
    def _changing(self) -> float:
        """Variance of what changes with time within a family."""
        return float(sum(w for w, name in zip(self.family_weights, FAMILY_TERMS, strict=True) if name in _CHANGING))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """What is asked of a row besides its history, by the names of `leap_features.row`."""
        return (*PLAIN_FEATURES, *self.encoder.names)

    @cached_property
    def categories(self) -> Categories:
        """Values of those features that are categories."""
        texts = {setting.column: setting.texts for setting in self.encoder.configuration if setting.texts}
        return {"model_type": tuple(self.model_types), **texts}

    def estimate(self, columns: Columns) -> Estimate:
        """The live estimate of every row.

        Raises:
            MissingColumn: a column that is needed is not there.
        """
        points = points_of(columns, self.basis.hardware, self.canonical)
        settings = self.encoder.encode(columns)
        names = column(columns, "model_type")
        rows = len(names)
        log_throughput, uncorrected, variance = (np.full(rows, np.nan) for _ in range(3))
        for name, chosen in _groups(names):
            model = self.model_types.get(name, self.never_seen)
            for start in range(0, len(chosen), _ROWS_AT_ONCE):
                at = chosen[start : start + _ROWS_AT_ONCE]
                log_throughput[at], uncorrected[at], variance[at] = self._conditioned(model, points, settings, at)
        spread = np.sqrt(variance)
        half = self.widths[points.level.astype(np.int64) + 1] * spread
        return Estimate(
            log_throughput,
            uncorrected,
            log_throughput - uncorrected,
            spread,
            log_throughput - half,
            log_throughput + half,
            points.level,
            points.last,
        )

    def _conditioned(
        self, model: ModelType, points: Points, settings: Floats, at: NDArray[np.intp]
    ) -> tuple[Floats, Floats, Floats]:
        """Mean with and without history, and variance of the next run, of the rows `at`, all of one model type."""
        # Points that no row knows cost time and say nothing.
        chosen = np.flatnonzero(np.append(True, points.known[at][:, 1:].any(axis=0)))
        part = np.ix_(at, chosen)
        hardware, log_trainers, log_batch = points.hardware[part], points.log_trainers[part], points.log_batch[part]
        own = OWN[chosen]
        # Not np.unique, nor np.isin: the first call of either imports numpy.ma, which takes longer than a ranking.
        types = np.array(sorted(set(hardware.ravel().tolist())), dtype=hardware.dtype)
        of_point = np.where(own[:, None], settings[at][:, None, :], model.settings)
        basis = self.basis.rows(hardware, log_trainers, log_batch, of_point, types)
        wanted = self.basis.columns(types)
        mean = basis @ model.mean[wanted] + self.basis.offset(hardware, log_trainers) + self.intercept
        told = basis @ model.told[wanted]
        prior = basis @ self.covariance[np.ix_(wanted, wanted)] @ basis.swapaxes(1, 2) - told @ told.swapaxes(1, 2)
        family = FamilyPoints(
            hardware, self.basis.trainers(log_trainers), self.basis.batch(log_batch), points.days[part]
        )
        terms = family_terms(family)
        kin = (own[:, None] & own) | np.eye(len(own), dtype=np.bool_)
        prior += kin * sum(weight * term for weight, term in zip(self.family_weights, terms, strict=True))
        known, runs = points.known[part][:, 1:], points.runs[part][:, 1:]
        surprise = np.where(known, points.value[part][:, 1:] - mean[:, 1:], 0.0)
        # Nobody knows how old the runs of a mean are: half of what changes with time is taken to have changed since.
        is_mean = chosen[1:] == POINTS - 1
        noise = self.noise.of(points.repeats[at], points.repeat_spread[at])
        here = (chosen[1:, None] == _SAME_CELL).any(axis=1)
        measured = np.where(here, noise[:, None], self.noise.unseen) / runs + 0.5 * self._changing * is_mean + JITTER
        weights, told_by_runs = _kriging(prior, known, surprise, measured, ~is_mean)
        variance = np.maximum(prior[:, 0, 0] - told_by_runs, 0.0) + noise
        return mean[:, 0] + (weights * surprise).sum(axis=1), mean[:, 0], variance


def _kriging(
    prior: Floats, known: NDArray[np.bool_], surprise: Floats, noise: Floats, single: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Weights of the surprises of every row, and how much variance they take away.

    Args:
        prior: covariances of the points, shape (rows, 1 + n, 1 + n); the first one is asked about.
        known: which of the others were measured, shape (rows, n).
        surprise: measured less expected; 0 where not known.
        noise: variance of a measurement.
        single: of one run, which may be a straggler.
    """
    among = np.where(known[:, :, None] & known[:, None, :], prior[:, 1:, 1:], 0.0)
    towards = np.where(known, prior[:, 0, 1:], 0.0)
    # A t distribution of this variance has a smaller scale; a point that is not known is alone with itself.
    scale = np.where(single, noise * (DEGREES_OF_FREEDOM - 2.0) / DEGREES_OF_FREEDOM, noise)
    base = np.where(known, scale, 1.0)
    diagonal = np.arange(known.shape[1])
    matrix = among.copy()
    matrix[:, diagonal, diagonal] += base
    current = base
    for _ in range(REWEIGHTINGS):
        residual = current * np.linalg.solve(matrix, surprise[..., None])[..., 0]
        heavier = base * (DEGREES_OF_FREEDOM + residual**2 / base) / (DEGREES_OF_FREEDOM + 1.0)
        current = np.where(known & single, heavier, base)
        matrix[:, diagonal, diagonal] = among[:, diagonal, diagonal] + current
    weights = np.linalg.solve(matrix, towards[..., None])[..., 0]
    return weights, (weights * towards).sum(axis=1)


def _groups(names: NDArray[Any]) -> Sequence[tuple[str, NDArray[np.intp]]]:
    """Each different name with the rows that have it."""
    places: dict[str, list[int]] = {}
    for at, name in enumerate(names.tolist()):
        places.setdefault(name, []).append(at)
    return [(name, np.array(at, dtype=np.intp)) for name, at in places.items()]

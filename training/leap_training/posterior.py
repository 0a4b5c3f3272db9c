"""What the cells say of every model type's coefficients: the posterior of a linear model in two layers.

u = g + w: g is what all model types share, w a model type's own, both normal with the covariances that `variances`
gives. Cells of one family vary together, by the family kernel; families are integrated out. In steps:

1. Per family, the cells' basis and surplus are whitened by the Cholesky factor of the family's covariance and noise.
2. Per model type they add up to information about u: A = Σ XᵀX and b = Σ Xᵀr.
3. With w integrated out, the model type's information about g is (I + A W)⁻¹ A and (I + A W)⁻¹ b (W: covariance of w).
4. For a model type, g follows from all other model types' information; then u from its own. So nothing counts twice.

Means are exact, and so is the covariance of a model type that was never seen. That of one that was is kept as what
its own runs took away in their strongest directions; what they add in others, by way of g, is left out. So it is a
little too small: by up to a few percent where there are few model types, and by less than that in a fleet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from leap_predictor.models.basis import Basis, Floats
from leap_predictor.models.layered import JITTER, FamilyPoints, ModelType, family_terms
from leap_predictor.models.layered_files import served
from leap_training.cells import Cells
from leap_training.variances import Variances, covariance

MAX_CELLS_OF_FAMILY: Final = 80
"""The latest ones; a family's covariance needs time in the cube of its cells."""

RANK: Final = 32
"""Directions of a model type's covariance that are kept: runs tell of some tens of coefficients, no more."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """As the launcher's model holds it."""

    intercept: float
    covariance: Floats
    never_seen: ModelType
    model_types: Mapping[str, ModelType]


@dataclass(frozen=True, eq=False)
class _Information:
    """A normal density of some coefficients, up to a factor: exp(−½ uᵀ precision u + uᵀ linear)."""

    precision: Floats
    linear: Floats

    def without(self, part: _Information) -> _Information:
        return _Information(self.precision - part.precision, self.linear - part.linear)


def posterior(basis: Basis, cells: Cells, variances: Variances) -> Posterior:
    """The posterior of every model type in `cells`, and of one that is in none."""
    shared, own = covariance(basis, variances.shared), covariance(basis, variances.by_type)
    surplus = cells.value - basis.offset(cells.hardware, cells.log_trainers)
    intercept = float(np.median(surplus))
    told = dict(_by_type(basis, cells, surplus - intercept, variances))
    of_shared = {code: _integrated(information, own) for code, information in told.items()}
    everything = _Information(
        sum((part.precision for part in of_shared.values()), np.zeros_like(own)),
        sum((part.linear for part in of_shared.values()), np.zeros(basis.width)),
    )
    mean, covered = _updated(np.zeros(basis.width), shared, everything)
    unseen = covered + own
    model_types = {}
    for code, information in told.items():
        by_others, of_others = _updated(np.zeros(basis.width), shared, everything.without(of_shared[code]))
        its_mean, its_covariance = _updated(by_others, of_others + own, information)
        settings = np.average(cells.settings, axis=0, weights=(cells.model_type == code) * 1.0)
        model_types[cells.model_types[code]] = ModelType(served(its_mean), _factor(unseen - its_covariance), settings)
    return Posterior(
        intercept,
        unseen,
        ModelType(served(mean), np.zeros((basis.width, 1)), cells.settings.mean(axis=0)),
        model_types,
    )


def _by_type(basis: Basis, cells: Cells, surplus: Floats, variances: Variances) -> Iterator[tuple[int, _Information]]:
    """Steps 1 and 2."""
    weights = variances.family_weights
    starts = np.flatnonzero(np.diff(cells.model_type, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(cells)), strict=True):
        of_type = slice(int(start), int(end))
        types = np.unique(cells.hardware[of_type])
        rows = basis.rows(
            cells.hardware[of_type],
            cells.log_trainers[of_type],
            cells.log_batch[of_type],
            cells.settings[of_type],
            types,
        )
        whitened = np.column_stack([rows, surplus[of_type]])
        kept = np.zeros(len(whitened), dtype=np.bool_)
        family = cells.family[of_type]
        firsts = np.flatnonzero(np.diff(family, prepend=-1))
        for first, last in zip(firsts, np.append(firsts[1:], len(family)), strict=True):
            part = slice(max(int(first), int(last) - MAX_CELLS_OF_FAMILY), int(last))
            at = slice(of_type.start + part.start, of_type.start + part.stop)
            points = FamilyPoints(
                cells.hardware[at],
                basis.trainers(cells.log_trainers[at]),
                basis.batch(cells.log_batch[at]),
                cells.days[at],
            )
            matrix = sum(weight * term for weight, term in zip(weights, family_terms(points), strict=True))
            matrix = matrix + np.diag(variances.noise / cells.runs[at] + JITTER)
            whitened[part] = np.linalg.solve(np.linalg.cholesky(matrix), whitened[part])
            kept[part] = True
        design, value = whitened[kept, :-1], whitened[kept, -1]
        precision, linear = np.zeros((basis.width, basis.width)), np.zeros(basis.width)
        wanted = basis.columns(types)
        precision[np.ix_(wanted, wanted)] = design.T @ design
        linear[wanted] = design.T @ value
        yield int(cells.model_type[start]), _Information(precision, linear)


def _integrated(information: _Information, own: Floats) -> _Information:
    """Step 3: what `information` about g + w says of g alone."""
    both = np.column_stack([information.precision, information.linear])
    solved = np.linalg.solve(np.eye(len(own)) + information.precision @ own, both).astype(np.float64, copy=False)
    return _Information(solved[:, :-1], solved[:, -1])


def _updated(mean: Floats, prior: Floats, information: _Information) -> tuple[Floats, Floats]:
    """Mean and covariance, after `information`, of a normal with `mean` and covariance `prior` (it may be singular)."""
    after = np.linalg.solve(np.eye(len(prior)) + prior @ information.precision, prior)
    after = (after + after.T) / 2.0
    return mean + after @ (information.linear - information.precision @ mean), after


def _factor(difference: Floats) -> Floats:
    """F of at most `RANK` columns with F Fᵀ nearest to `difference`."""
    values, vectors = np.linalg.eigh((difference + difference.T) / 2.0)
    largest = slice(max(0, len(values) - RANK), None)
    return served(vectors[:, largest] * np.sqrt(np.maximum(values[largest], 0.0)))

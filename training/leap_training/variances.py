"""The variances of the layered model's layers, chosen by marginal likelihood (empirical Bayes).

Every block of the basis has two variances: of what all model types share, and of what a model type has of its own;
every term of the family kernel has one, and so has the noise. They are those that make the measured cells likeliest
under the normal distribution that the model gives them (Rasmussen and Williams, Gaussian Processes for Machine
Learning, eq. 5.8 and 5.9), with a log-normal prior around what is usual, so that a block that the data say nothing of
stays sane.

The covariance of all cells needs time in the cube of their number, so a sample is used: whole families of many model
types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from leap_predictor.models.basis import Basis, Floats
from leap_predictor.models.layered import FAMILY_TERMS, JITTER, FamilyPoints, family_terms
from leap_training.cells import Cells

SAMPLE_CELLS: Final = 1200
"""Two seconds a step; more move the variances by less than their prior does."""
MAX_MODEL_TYPES: Final = 60
MAX_CELLS_OF_FAMILY: Final = 25
"""Of the sample: its cells should tell model types and families apart, not repeat a few."""
STEPS: Final = 40

PRIOR_SPREAD: Final = 1.5
"""Standard deviation of the logarithm of a variance, around what is usual."""

_SHARED: Final[Mapping[str, float]] = {
    "one": 4.0,
    "trainers": 0.005,
    "batch": 0.02,
    "compute": 0.05,
    "bandwidth": 0.05,
    "memory": 0.02,
    "scale_curve": 0.02,
    "batch_curve": 0.02,
    "configuration": 0.1,
    "architecture": 0.1,
    "hardware": 0.05,
    "likeness": 0.05,
    "hardware_trainers": 0.001,
    "hardware_batch": 0.001,
}
_BY_TYPE: Final[Mapping[str, float]] = {
    "one": 4.0,
    "trainers": 0.005,
    "batch": 0.01,
    "compute": 0.02,
    "bandwidth": 0.02,
    "memory": 0.02,
    "scale_curve": 0.01,
    "batch_curve": 0.03,
    "configuration": 0.05,
    "hardware": 0.02,
    "likeness": 0.03,
    "hardware_trainers": 0.001,
    "hardware_batch": 0.002,
}
_FAMILY: Final[Mapping[str, float]] = {
    "constant": 0.05,
    "hardware": 0.01,
    "trainers": 0.003,
    "batch": 0.003,
    "cell": 0.01,
    "year": 0.01,
    "week": 0.005,
    "cell_year": 0.005,
    "cell_week": 0.005,
}
_NOISE: Final = 0.002
"""What is usual, in squared units of ln throughput (0.01: ±10 %). Model types differ by orders of magnitude, by a fifth
on hardware of equal specifications; families by a fifth; runs of a cell by 4 %."""


class Variances(msgspec.Struct, frozen=True):
    """All of them, by name."""

    shared: dict[str, float]
    """By block of the basis, and "likeness": of hardware effects that are alike where specifications are."""
    by_type: dict[str, float]
    """The same, of what a model type has of its own; a model type's architecture is the same in all its runs."""
    family: dict[str, float]
    """By `FAMILY_TERMS`."""
    noise: float

    @property
    def family_weights(self) -> Floats:
        """In the order of `FAMILY_TERMS`."""
        return np.array([self.family[name] for name in FAMILY_TERMS])


USUAL: Final = Variances(dict(_SHARED), dict(_BY_TYPE), dict(_FAMILY), _NOISE)


def covariance(basis: Basis, variances: Mapping[str, float]) -> Floats:
    """The prior covariance of the coefficients of one layer, shape (width, width)."""
    result = np.zeros((basis.width, basis.width))
    for name, block in basis.blocks.items():
        result[block, block] = variances.get(name, 0.0) * np.eye(block.stop - block.start)
    block = basis.blocks["hardware"]
    result[block, block] += variances["likeness"] * basis.likeness
    return result


def choose(basis: Basis, cells: Cells, start: Variances = USUAL) -> Variances:
    """The variances under which `cells` are likeliest; the same cells give the same variances."""
    pairs = Pairs(basis, sample(cells))
    found = optimize.minimize(
        pairs.loss,
        packed(start),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
        bounds=[(-16.0, 4.0)] * pairs.size,
    )
    return unpacked(found.x)


def packed(variances: Variances) -> Floats:
    """The logarithms of all of them, in the order of `Pairs`."""
    plain = [*variances.shared.values(), *variances.by_type.values(), *variances.family.values(), variances.noise]
    return np.log(plain)


def unpacked(logarithms: Floats) -> Variances:
    """The variances of which these are the logarithms."""
    values = iter(np.exp(logarithms).tolist())
    return Variances(
        {name: next(values) for name in _SHARED},
        {name: next(values) for name in _BY_TYPE},
        {name: next(values) for name in _FAMILY},
        next(values),
    )


def sample(cells: Cells) -> Cells:
    """At most `SAMPLE_CELLS`: the latest cells of the families of many model types, taken in turn."""
    if len(cells) <= SAMPLE_CELLS:
        return cells
    random = np.random.default_rng(0)
    types = random.permutation(np.unique(cells.model_type))[:MAX_MODEL_TYPES]
    families = random.permutation(np.unique(cells.family[np.isin(cells.model_type, types)]))
    first = {int(family): int(at) for family, at in zip(*np.unique(cells.family, return_index=True), strict=True)}
    turn: dict[int, int] = {}
    order: list[tuple[int, int, int]] = []
    for family in families.tolist():
        model_type = int(cells.model_type[first[family]])
        turn[model_type] = turn.get(model_type, -1) + 1
        order.append((turn[model_type], len(order), family))
    rank = np.full(int(cells.family.max()) + 1, len(order) + 1, dtype=np.int64)
    for place, (_, _, family) in enumerate(sorted(order)):
        rank[family] = place
    # Cells are ordered by family and time: the place from the end of the family.
    ends = {int(family): int(at) for family, at in zip(*_last_index(cells.family), strict=True)}
    age = np.array([ends[family] for family in cells.family.tolist()]) - np.arange(len(cells))
    wanted = np.flatnonzero((rank[cells.family] < len(order)) & (age < MAX_CELLS_OF_FAMILY))
    chosen = wanted[np.lexsort((age[wanted], rank[cells.family[wanted]]))][:SAMPLE_CELLS]
    return cells.where(chosen)


def _last_index(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    different, backwards = np.unique(values[::-1], return_index=True)
    return different, len(values) - 1 - backwards


class Pairs:
    """Covariances of all pairs of cells, one matrix per variance."""

    def __init__(self, basis: Basis, cells: Cells) -> None:
        types = np.unique(cells.hardware)
        wanted = basis.columns(types)
        rows = np.zeros((len(cells), basis.width))
        rows[:, wanted] = basis.rows(cells.hardware, cells.log_trainers, cells.log_batch, cells.settings, types)
        same_type = cells.model_type[:, None] == cells.model_type
        same_family = cells.family[:, None] == cells.family
        blocks = {name: rows[:, block] @ rows[:, block].T for name, block in basis.blocks.items()}
        blocks["likeness"] = basis.likeness[np.ix_(cells.hardware, cells.hardware)]
        family = FamilyPoints(
            cells.hardware, basis.trainers(cells.log_trainers), basis.batch(cells.log_batch), cells.days
        )
        self._matrices = np.array(
            [
                *(blocks[name] for name in _SHARED),
                *(blocks[name] * same_type for name in _BY_TYPE),
                *(term * same_family for term in family_terms(family)),
            ]
        )
        surplus = cells.value - basis.offset(cells.hardware, cells.log_trainers)
        self._values = surplus - np.median(surplus)
        self._runs = cells.runs
        self.size = len(self._matrices) + 1

    def loss(self, logarithms: Floats) -> tuple[float, Floats]:
        """Negative logarithm of the posterior density of the variances, and its gradient."""
        weights, noise = np.exp(logarithms[:-1]), float(np.exp(logarithms[-1]))
        matrix = np.tensordot(weights, self._matrices, 1)
        matrix[np.diag_indices_from(matrix)] += noise / self._runs + JITTER
        try:
            lower = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros_like(logarithms)
        inverse = np.linalg.inv(matrix)
        solved = inverse @ self._values
        likelihood = 0.5 * self._values @ solved + np.log(np.diag(lower)).sum()
        outer = inverse - np.outer(solved, solved)
        slopes = 0.5 * weights * np.tensordot(self._matrices, outer, ((1, 2), (0, 1)))
        slope = 0.5 * noise * float((np.diag(outer) / self._runs).sum())
        away = (logarithms - packed(USUAL)) / PRIOR_SPREAD
        return float(likelihood + 0.5 * (away**2).sum()), np.append(slopes, slope) + away / PRIOR_SPREAD

"""Permutation importance: the points within ±20 % that are lost when a feature's values change places among the rows.

Features that move together stand in for one another, which understates each; so whole groups are permuted too.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.columns import ARCHITECTURE_PREFIX, CONFIG_PREFIX, SPECS_PREFIX
from leap_features.row import GROUPS
from leap_training.feature_set import FeatureSet
from leap_training.judge.bootstrap import SEED
from leap_training.judge.figures import relative_error
from leap_training.training_set import TrainingSet

REPEATS: Final = 3
MOST_ROWS: Final = 20_000
"""Of the scored rows; more are drawn from, since every feature costs a prediction of all of them."""


@runtime_checkable
class MatrixModel(Protocol):
    """A fitted model that answers from a matrix of features."""

    @property
    def features(self) -> FeatureSet:
        """Names of the matrix's columns, and how it is made."""

    def predict_matrix(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Natural logarithm of throughput of every row of `matrix`."""


class Importance(msgspec.Struct, frozen=True):
    """What a feature, or a group of features together, is worth."""

    feature: str | None
    """None: the whole group."""
    group: str
    points: float
    """Percentage points of the share within ±20 %."""


def importance(
    model: MatrixModel, asked: TrainingSet, measured: NDArray[np.float64], *, repeats: int = REPEATS, seed: int = SEED
) -> list[Importance]:
    """The importance of every feature and group of `model`, greatest first.

    Args:
        model: as fitted.
        asked: scored rows, their labels hidden.
        measured: log throughput of these rows.
        repeats: permutations to average over.
        seed: of the permutations.
    """
    random = np.random.default_rng(seed)
    if len(asked) > MOST_ROWS:
        chosen = np.sort(random.choice(len(asked), MOST_ROWS, replace=False))
        asked, measured = asked.where(chosen), measured[chosen]
    names = model.features.names
    matrix = model.features.matrix(asked)
    orders = [random.permutation(len(asked)) for _ in range(repeats)]

    def near(values: NDArray[np.float32]) -> float:
        return 100.0 * float((relative_error(model.predict_matrix(values), measured) <= 0.2).mean())

    whole = near(matrix)

    def points(columns: list[int]) -> float:
        permuted = matrix.copy()
        lost = 0.0
        for order in orders:
            permuted[:, columns] = matrix[order][:, columns]
            lost += whole - near(permuted)
        return lost / repeats

    of_group: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        of_group.setdefault(group_of(name), []).append(column)
    found = [Importance(None, group, points(columns)) for group, columns in of_group.items()]
    found += [Importance(name, group_of(name), points([column])) for column, name in enumerate(names)]
    return sorted(found, key=lambda each: (each.feature is not None, -each.points))


def group_of(feature: str) -> str:
    """The group of `leap_features.row.GROUPS` that a feature belongs to."""
    for prefix, group in (
        (CONFIG_PREFIX, "configuration"),
        (ARCHITECTURE_PREFIX, "architecture"),
        (SPECS_PREFIX, "hardware"),
    ):
        if feature.startswith(prefix):
            return group
    return next((group for group, names in GROUPS.items() if feature in names), "other")

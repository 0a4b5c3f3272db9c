"""XGBoost fits on random rows, and the obvious way to walk trees: what the launcher's walk is compared with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import xgboost
from hypothesis import strategies as st
from numpy.typing import NDArray

from leap_predictor.models.trees import Trees

ROWS = 200


class Shape(NamedTuple):
    """What a random fit is like."""

    seed: int
    kinds: list[str]
    """Per feature "c" for a category, "q" for a number."""
    categories: int
    depth: int
    rounds: int
    one_hot: int
    """Categories that are told apart one by one, up to so many."""
    gamma: float
    missing: float
    """Share of missing values among those that are fitted on."""

    def rows(self, count: int, *, seen: bool) -> NDArray[np.float32]:
        """Random rows, of categories that the fit saw, or also of others and with more missing."""
        random = np.random.default_rng([self.seed, int(seen)])
        rows = random.normal(size=(count, len(self.kinds))).astype(np.float32)
        for at, kind in enumerate(self.kinds):
            if kind == "c":
                rows[:, at] = random.integers(0, self.categories * (1 if seen else 3), count)
        rows[random.random(rows.shape) < (self.missing if seen else 0.3)] = np.nan
        return rows

    def boosted(self, labels: Any, **objective: Any) -> xgboost.Booster:
        """A fit of `labels` on the rows that are seen."""
        data = xgboost.QuantileDMatrix(self.rows(ROWS, seen=True), labels, feature_types=self.kinds)
        parameters = {
            "max_depth": self.depth,
            "max_cat_to_onehot": self.one_hot,
            "gamma": self.gamma,
            "nthread": 1,
            "learning_rate": 0.3,
        }
        return xgboost.train(parameters | objective, data, self.rounds)

    def target(self) -> NDArray[np.float64]:
        """A linear target."""
        random = np.random.default_rng([self.seed, 2])
        target: NDArray[np.float64] = np.nan_to_num(self.rows(ROWS, seen=True)) @ random.normal(size=len(self.kinds))
        return target

    def regressor(self) -> xgboost.Booster:
        """A regressor of the median."""
        return self.boosted(self.target(), objective="reg:quantileerror", quantile_alpha=0.5)

    def classifier(self, classes: int) -> xgboost.Booster:
        """A classifier of the target's ranges, of which some may be seldom."""
        target = self.target()
        labels = np.digitize(target, np.quantile(target, np.arange(1, classes) / classes))
        return self.boosted(labels, objective="multi:softprob", num_class=classes)


shapes = st.builds(
    Shape,
    seed=st.integers(0, 2**31),
    kinds=st.lists(st.sampled_from(["c", "q"]), min_size=1, max_size=6),
    categories=st.integers(1, 90),
    depth=st.integers(1, 10),
    rounds=st.integers(1, 40),
    one_hot=st.sampled_from([1, 4, 100]),
    gamma=st.sampled_from([0.0, 0.5]),
    missing=st.sampled_from([0.0, 0.2]),
)


def walk(trees: Trees, row: list[float], output: int = 0) -> np.float32:
    """The obvious way: one row, one tree, one node at a time."""
    total = trees.base[output]
    for root in trees.roots[:, output].tolist():
        node = root
        while trees.left[node] != node:
            value = np.float32(row[int(trees.feature[node])])
            count = int(trees.category_count[node])
            if np.isnan(value):
                right = bool(trees.default_right[node])
            elif count:
                known = 0 <= value < count
                right = known and bool(trees.category_right[int(trees.category_start[node]) + int(value)])
            else:
                right = bool(value >= trees.threshold[node])
            node = int(trees.left[node]) + int(right)
        total = np.float32(total + trees.value[node])
    return np.float32(total)

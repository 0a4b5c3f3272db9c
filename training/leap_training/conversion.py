"""XGBoost boosters as the plain arrays that the launcher walks, so that a launcher needs no XGBoost.

Read from XGBoost's own JSON model format (https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import xgboost
from numpy.typing import NDArray

from leap_predictor.models.trees import Trees

REGRESSIONS: Final = ("reg:quantileerror", "reg:absoluteerror", "reg:squarederror", "reg:pseudohubererror")
"""Objectives whose answer is the margin."""

CLASSES: Final = ("multi:softprob", "multi:softmax")
"""Objectives whose answer orders the classes as their margins do."""


def trees_of(booster: xgboost.Booster) -> Trees:
    """The trees of `booster`: of a regressor one output, of a classifier one per class, its margin.

    Raises:
        ValueError: the booster is neither, or transforms its margin in another way.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    parameters = learner["learner_model_param"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    if kind != "gbtree":
        raise ValueError(f"booster must be 'gbtree', got {kind!r}")
    if objective not in REGRESSIONS + CLASSES:
        raise ValueError(f"objective must leave the margin as it is, got {objective!r}; use 'reg:quantileerror'")
    if int(parameters["num_target"]) > 1:
        raise ValueError("booster must have one output; fit one quantile at a time")
    outputs = max(1, int(parameters["num_class"]))
    # Before release 3.1 a plain number, since then a list of one per output.
    base = np.atleast_1d(np.asarray(json.loads(parameters["base_score"]), dtype=np.float32))
    model = learner["gradient_booster"]["model"]
    if model["tree_info"] != list(range(outputs)) * (len(model["trees"]) // outputs):
        raise ValueError("booster must grow one tree per round and class; leave out 'num_parallel_tree'")
    return _joined(model["trees"], np.broadcast_to(base, outputs), int(parameters["num_feature"]))


def side_by_side(several: Sequence[Trees]) -> Trees:
    """One forest whose outputs are those of `several`, in order, so that rows may ask different ones in one pass.

    Raises:
        ValueError: they differ in features, or in how many trees an output has.
    """
    if len({(len(trees.roots), trees.feature_count) for trees in several}) != 1:
        raise ValueError("trees that stand side by side must be of the same features and have as many trees an output")
    nodes = _starts(trees.feature.size for trees in several)
    codes = _starts(trees.category_right.size for trees in several)

    def shifted(name: str, starts: Sequence[int]) -> list[NDArray[np.int32]]:
        return [getattr(trees, name) + np.int32(start) for trees, start in zip(several, starts, strict=True)]

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(trees, name) for trees in several])

    return Trees(
        roots=np.concatenate(shifted("roots", nodes), axis=1),
        feature=joined("feature"),
        threshold=joined("threshold"),
        default_right=joined("default_right"),
        left=np.concatenate(shifted("left", nodes)),
        value=joined("value"),
        category_start=np.concatenate(shifted("category_start", codes)),
        category_count=joined("category_count"),
        category_right=joined("category_right"),
        base=joined("base"),
        feature_count=several[0].feature_count,
    )


def _joined(trees: list[dict[str, Any]], base: NDArray[np.float32], feature_count: int) -> Trees:
    starts = np.array(_starts(len(tree["left_children"]) for tree in trees))

    def of_all(name: str, kind: type[Any]) -> NDArray[Any]:
        return np.concatenate([np.asarray(tree[name], dtype=kind) for tree in trees])

    def children(name: str) -> NDArray[np.int64]:
        return np.concatenate(
            [np.asarray(tree[name], dtype=np.int64) + start for tree, start in zip(trees, starts, strict=True)]
        )

    left, right = children("left_children"), children("right_children")
    leaf = of_all("left_children", np.int64) == -1
    order = _by_level(starts, left, right, leaf)
    place = np.empty(len(leaf), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    codes, start, count = _categories(trees, starts, len(leaf))
    leaf = leaf[order]
    numeric = ~leaf & (count[order] == 0)
    condition = of_all("split_conditions", np.float32)[order]
    return Trees(
        roots=place[starts].reshape(-1, len(base)),
        feature=np.where(leaf, 0, of_all("split_indices", np.int32)[order]).astype(np.int32),
        threshold=np.where(numeric, condition, np.float32(0)),
        default_right=~leaf & ~of_all("default_left", np.bool_)[order],
        left=np.where(leaf, np.arange(len(order)), place[np.where(leaf, 0, left[order])]).astype(np.int32),
        value=np.where(leaf, condition, np.float32(0)),
        category_start=start[order],
        category_count=count[order],
        category_right=codes,
        base=base.astype(np.float32),
        feature_count=feature_count,
    )


def _starts(sizes: Iterable[int]) -> list[int]:
    """Where each of several parts of these sizes begins when they stand one after another."""
    return [0, *np.cumsum(list(sizes)).tolist()][:-1]


def _by_level(
    roots: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], leaf: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """All nodes that a root leads to, level by level over all trees, siblings beside each other.

    A step of the walk is at one level of all trees, so what it reads lies together. Pruned nodes are led to by none.
    """
    levels = [roots]
    while True:
        inner = levels[-1][~leaf[levels[-1]]]
        if not inner.size:
            return np.concatenate(levels)
        levels.append(np.stack([left[inner], right[inner]], axis=1).ravel())


def _categories(
    trees: list[dict[str, Any]], starts: NDArray[np.int64], nodes: int
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
    """Whether each code goes right, of all categorical nodes one after another; by node, where its own begin, how many.

    A node has codes up to the greatest one that it lists.
    """
    right: list[bool] = []
    start, count = np.zeros(nodes, dtype=np.int32), np.zeros(nodes, dtype=np.int32)
    for tree, offset in zip(trees, starts.tolist(), strict=True):
        spans = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
        for node, first, size in spans:
            codes = tree["categories"][first : first + size]
            listed = [False] * (max(codes) + 1)
            for code in codes:
                listed[code] = True
            start[offset + node], count[offset + node] = len(right), len(listed)
            right += listed
    return np.array(right, dtype=np.bool_), start, count

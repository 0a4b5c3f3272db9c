"""An XGBoost booster as the plain arrays that the launcher walks, so that a launcher needs no XGBoost.

Read from XGBoost's own JSON model format (https://xgboost.readthedocs.io/en/stable/tutorials/saving_model.html).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xgboost

from leap_predictor.trees import Trees


def trees_of(booster: xgboost.Booster) -> Trees:
    """The trees of `booster`, predicting the same (the untransformed margin) up to rounding of the sum.

    Raises:
        ValueError: the booster is no single-output tree regressor, or transforms its margin.
    """
    learner = json.loads(booster.save_raw("json"))["learner"]
    parameters = learner["learner_model_param"]
    kind, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    if kind != "gbtree":
        raise ValueError(f"booster must be 'gbtree', got {kind!r}")
    if objective not in {"reg:quantileerror", "reg:absoluteerror", "reg:squarederror", "reg:pseudohubererror"}:
        raise ValueError(f"objective must leave the margin as it is, got {objective!r}; use 'reg:quantileerror'")
    # Before release 3.1 a plain number, since then a list of one per output.
    base = np.atleast_1d(np.asarray(json.loads(parameters["base_score"]), dtype=np.float32))
    if base.size != 1 or int(parameters["num_target"]) > 1 or int(parameters["num_class"]) > 1:
        raise ValueError("booster must have one output; fit one quantile at a time")
    model = learner["gradient_booster"]["model"]
    return _join(model["trees"], float(base[0]), int(parameters["num_feature"]))


def _join(trees: list[dict[str, Any]], base: float, feature_count: int) -> Trees:
    roots: list[int] = []
    feature: list[int] = []
    threshold: list[float] = []
    default_right: list[bool] = []
    children: list[int] = []
    value: list[float] = []
    category_start: list[int] = []
    category_count: list[int] = []
    category_right: list[bool] = []
    for tree in trees:
        categories = _categories(tree)
        start = len(feature)
        roots.append(start)
        order = [0]  # nodes of this tree, parents first; pruned ones are unreachable and so left out
        for node in order:
            own = len(feature)
            left, right = tree["left_children"][node], tree["right_children"][node]
            leaf = left == -1
            feature.append(0 if leaf else tree["split_indices"][node])
            value.append(tree["split_conditions"][node] if leaf else 0.0)
            in_set = categories.get(node, [])
            numeric = not leaf and not in_set
            threshold.append(tree["split_conditions"][node] if numeric else float("inf"))
            default_right.append(not leaf and not tree["default_left"][node])
            category_start.append(len(category_right) if in_set else 0)
            category_count.append(len(in_set))
            category_right.extend(in_set)
            if leaf:
                children += [own, own]
            else:
                children += [start + len(order), start + len(order) + 1]
                order += [left, right]
    return Trees(
        roots=np.array(roots, dtype=np.int32),
        feature=np.array(feature, dtype=np.int32),
        threshold=np.array(threshold, dtype=np.float32),
        default_right=np.array(default_right, dtype=np.bool_),
        children=np.array(children, dtype=np.int32),
        value=np.array(value, dtype=np.float32),
        category_start=np.array(category_start, dtype=np.int32),
        category_count=np.array(category_count, dtype=np.int32),
        category_right=np.array(category_right, dtype=np.bool_),
        base=base,
        feature_count=feature_count,
    )


def _categories(tree: dict[str, Any]) -> dict[int, list[bool]]:
    """Per categorical node: for each code up to the greatest listed one, whether it goes right."""
    result: dict[int, list[bool]] = {}
    spans = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    for node, first, size in spans:
        codes = tree["categories"][first : first + size]
        in_set = [False] * (max(codes) + 1)
        for code in codes:
            in_set[code] = True
        result[node] = in_set
    return result

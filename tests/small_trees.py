"""Trees made by hand, for tests of what walks them."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_predictor.trees import Trees


def stump(threshold: float, below: float, above: float) -> Trees:
    """One tree of one split on one feature; a missing value counts as below."""
    return forest(
        feature=[0, 0, 0],
        threshold=[threshold, np.inf, np.inf],
        children=[1, 2, 1, 1, 2, 2],
        value=[0.0, below, above],
    )


def forest(**changes: Any) -> Trees:
    """Trees from plain lists; by default one leaf of value 0 over one feature."""
    nodes = len(changes.get("feature", [0]))
    plain: dict[str, Any] = {
        "roots": [0],
        "feature": [0],
        "threshold": [np.inf],
        "default_right": [False] * nodes,
        "children": [0, 0],
        "value": [0.0],
        "category_start": [0] * nodes,
        "category_count": [0] * nodes,
        "category_right": [],
        "base": 0.0,
        "feature_count": 1,
    } | changes
    kinds = {
        "roots": np.int32,
        "feature": np.int32,
        "threshold": np.float32,
        "default_right": np.bool_,
        "children": np.int32,
        "value": np.float32,
        "category_start": np.int32,
        "category_count": np.int32,
        "category_right": np.bool_,
    }
    return Trees(**{name: np.array(value, kinds[name]) if name in kinds else value for name, value in plain.items()})

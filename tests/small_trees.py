"""Trees made by hand, for tests of what walks them."""

from __future__ import annotations

from typing import Any

import numpy as np

from leap_predictor.models.trees import KINDS, Trees


def stump(threshold: float, below: float, above: float) -> Trees:
    """One tree of one split on one feature; a missing value counts as below."""
    return forest(feature=[0, 0, 0], threshold=[threshold, 0, 0], left=[1, 1, 2], value=[0.0, below, above])


def forest(**changes: Any) -> Trees:
    """Trees from plain lists; by default one leaf of value 0 over one feature."""
    nodes = len(changes.get("feature", [0]))
    plain: dict[str, Any] = {
        "roots": [[0]],
        "feature": [0],
        "threshold": [0.0] * nodes,
        "default_right": [False] * nodes,
        "left": [0],
        "value": [0.0] * nodes,
        "category_start": [0] * nodes,
        "category_count": [0] * nodes,
        "category_right": [],
        "base": [0.0],
        "feature_count": 1,
    } | changes
    return Trees(**{name: np.array(value, KINDS[name][0]) if name in KINDS else value for name, value in plain.items()})

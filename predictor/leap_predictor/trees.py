"""Gradient-boosted regression trees as plain arrays, walked by numpy over all rows and trees at once.

All trees stand one after another in the same arrays. A step of the walk moves every (row, tree) pair down by one
level; a leaf points to itself, so pairs that have arrived stay where they are and the walk takes `depth` steps.

The meaning of a split is XGBoost's. A value goes right where it is not below the threshold; of a categorical split,
where its code is among the node's right-hand categories. A missing value (NaN) goes the node's default way. Values are
compared as float32, as XGBoost compares them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_predictor.errors import TreesError

MAX_DEPTH: Final = 64
"""Deepest tree that is accepted; far above what is ever fitted, so only a corrupted file reaches it."""

MAX_CATEGORY: Final = 1 << 24
"""Category codes are carried as float32, which is exact up to here."""

_ROWS_AT_ONCE: Final = 2048  # rows × trees of a step must stay in the processor's cache

_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "roots": np.dtype("<i4"),
    "feature": np.dtype("<i4"),
    "threshold": np.dtype("<f4"),
    "default_right": np.dtype("|b1"),
    "children": np.dtype("<i4"),
    "value": np.dtype("<f4"),
    "category_start": np.dtype("<i4"),
    "category_count": np.dtype("<i4"),
    "category_right": np.dtype("|b1"),
    "base": np.dtype("<f8"),
    "feature_count": np.dtype("<i4"),
}


@dataclass(frozen=True, eq=False)
class Trees:
    """A forest whose prediction is `base` plus the sum of the leaves that a row falls into.

    Nodes are numbered over all trees, parents before their children.

    Raises:
        TreesError: the arrays break a rule, so that a walk could leave them or never end.
    """

    roots: NDArray[np.int32]
    """First node of each tree."""
    feature: NDArray[np.int32]
    """Per node: the column that is compared (0 in leaves)."""
    threshold: NDArray[np.float32]
    """Per node: values below it go left."""
    default_right: NDArray[np.bool_]
    """Per node: whether a missing value goes right."""
    children: NDArray[np.int32]
    """Per node: left and right child, one after the other (length 2 × nodes); a leaf's are itself."""
    value: NDArray[np.float32]
    """Per node: what a leaf adds (0 in inner nodes)."""
    category_start: NDArray[np.int32]
    """Per node: where its categories begin in `category_right`."""
    category_count: NDArray[np.int32]
    """Per node: how many category codes it tells apart; 0 in numeric nodes. Greater codes go left."""
    category_right: NDArray[np.bool_]
    """Per categorical node and code: whether that category goes right."""
    base: float
    feature_count: int

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def depth(self) -> int:
        """Steps from a root to the deepest leaf."""
        return _depth(self.roots, self.children)

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Predictions for `rows` (shape (n, feature_count), NaN where missing), shape (n,).

        Raises:
            ValueError: `rows` has another shape.
        """
        if rows.ndim != 2 or rows.shape[1] != self.feature_count:
            raise ValueError(f"rows must have shape (n, {self.feature_count}), got {rows.shape}")
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        result = np.empty(len(rows), dtype=np.float64)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            leaves = self._leaves(part)
            result[start : start + len(part)] = self.value[leaves].sum(axis=1, dtype=np.float64) + self.base
        return result

    def _leaves(self, rows: NDArray[np.float32]) -> NDArray[np.int32]:
        """The leaf that each row reaches in each tree, shape (rows, trees)."""
        flat = rows.ravel()
        first = (np.arange(len(rows), dtype=np.int32) * np.int32(self.feature_count))[:, None]
        node = np.tile(self.roots, (len(rows), 1))
        has_categories = self.category_right.size > 0
        for _ in range(self.depth):
            value = flat[first + self.feature[node]]
            right = value >= self.threshold[node]
            if has_categories:
                self._decide_by_category(node, value, right)
            np.copyto(right, self.default_right[node], where=np.isnan(value))
            node = self.children[2 * node + right]
        return node

    def _decide_by_category(
        self, node: NDArray[np.int32], value: NDArray[np.float32], right: NDArray[np.bool_]
    ) -> None:
        """Overwrite `right` where `node` is categorical; missing values are the caller's."""
        where = np.flatnonzero(self.category_count[node])
        if not where.size:
            return
        nodes = node.ravel()[where]
        # Beyond float32's exact integers lies no category; NaN becomes −1, which is none either.
        code = np.nan_to_num(value.ravel()[where], nan=-1.0).clip(-1.0, MAX_CATEGORY).astype(np.int32)
        known = (code >= 0) & (code < self.category_count[nodes])
        place = self.category_start[nodes] + np.where(known, code, 0)
        np.put(right, where, known & self.category_right[place])

    def to_bytes(self) -> bytes:
        """The arrays as an uncompressed `.npz` file, without pickle."""
        arrays: dict[str, NDArray[Any]] = {
            name: np.asarray(getattr(self, name), dtype=dtype) for name, dtype in _DTYPES.items()
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Trees:
        """Read what `to_bytes` wrote.

        Raises:
            TreesError: the bytes are no such file, or its arrays break a rule.
        """
        try:
            with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
                names = set(archive.files)
                if names != set(_DTYPES):
                    raise TreesError(f"trees must hold exactly the arrays {sorted(_DTYPES)}, got {sorted(names)}")
                arrays = {name: archive[name] for name in _DTYPES}
        except TreesError:
            raise
        except Exception as error:  # numpy and zipfile raise a dozen kinds on a damaged file, MemoryError among them
            raise TreesError(f"trees are no readable .npz file: {type(error).__name__}: {error}") from error
        for name, dtype in _DTYPES.items():
            dimensions = 0 if name in {"base", "feature_count"} else 1
            if arrays[name].dtype != dtype or arrays[name].ndim != dimensions:
                raise TreesError(
                    f"array {name!r} must be {dimensions}-dimensional {dtype}, "
                    f"got {arrays[name].ndim}-dimensional {arrays[name].dtype}"
                )
        return cls(
            **{name: arrays[name] for name in _DTYPES if name not in {"base", "feature_count"}},
            base=float(arrays["base"]),
            feature_count=int(arrays["feature_count"]),
        )


def _check(trees: Trees) -> None:
    """Refuse arrays on which a walk could read out of bounds, never end or answer NaN."""
    nodes = trees.feature.size
    for item in fields(trees):
        array = getattr(trees, item.name)
        if isinstance(array, np.ndarray) and (array.ndim != 1 or array.dtype != _DTYPES[item.name]):
            raise TreesError(f"array {item.name!r} must be 1-dimensional {_DTYPES[item.name]}, got {array.dtype}")
    if not trees.roots.size or not nodes:
        raise TreesError("trees must have at least one tree and one node")
    for name in ("threshold", "default_right", "value", "category_start", "category_count"):
        if getattr(trees, name).size != nodes:
            raise TreesError(f"array {name!r} must have one entry per node ({nodes}), got {getattr(trees, name).size}")
    if trees.children.size != 2 * nodes:
        raise TreesError(f"array 'children' must have two entries per node ({2 * nodes}), got {trees.children.size}")
    if trees.feature_count < 1 or trees.feature.min() < 0 or trees.feature.max() >= trees.feature_count:
        raise TreesError(f"array 'feature' must lie in [0, {trees.feature_count}), the number of features")
    if np.isnan(trees.threshold).any():
        raise TreesError("array 'threshold' must have no NaN")
    if not np.isfinite(trees.value).all() or not np.isfinite(trees.base):
        raise TreesError("leaf values and base must be finite")
    _check_shape(trees, nodes)
    end = trees.category_start.astype(np.int64) + trees.category_count
    if trees.category_start.min() < 0 or trees.category_count.min() < 0 or end.max() > trees.category_right.size:
        raise TreesError(f"categories of every node must lie within 'category_right' ({trees.category_right.size})")


def _check_shape(trees: Trees, nodes: int) -> None:
    """Every node is the root of a tree or has exactly one parent, which comes before it: so there are no cycles."""
    roots, children = trees.roots, trees.children
    if roots.min() < 0 or roots.max() >= nodes or children.min() < 0 or children.max() >= nodes:
        raise TreesError(f"roots and children must be nodes, in [0, {nodes})")
    own = np.arange(nodes, dtype=np.int32)
    pairs = children.reshape(-1, 2)
    leaf = (pairs == own[:, None]).all(axis=1)
    inner = pairs[~leaf]
    if (inner <= own[~leaf][:, None]).any():
        raise TreesError("children must come after their parent; a leaf's two children are itself")
    parents = np.bincount(inner.ravel(), minlength=nodes) + np.bincount(roots, minlength=nodes)
    if (parents != 1).any():
        raise TreesError("every node must be the root of one tree or the child of one node")
    if _depth(roots, children) > MAX_DEPTH:
        raise TreesError(f"no tree may be deeper than {MAX_DEPTH}")


def _depth(roots: NDArray[np.int32], children: NDArray[np.int32]) -> int:
    """Steps from a root to the deepest leaf, counted up to one more than `MAX_DEPTH`."""
    pairs = children.reshape(-1, 2)
    at = roots
    steps = 0
    while True:
        at = at[pairs[at, 0] != at]
        if not at.size or steps > MAX_DEPTH:
            return steps
        at = pairs[at].ravel()
        steps += 1

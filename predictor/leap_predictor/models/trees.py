"""Gradient-boosted trees as plain arrays, walked by numpy over all rows and trees at once.

All trees stand in the same arrays. A step of the walk moves every (tree, row) pair down by one level; a leaf points to
itself, so pairs that have arrived stay where they are and the walk takes `depth` steps.

A forest may have several outputs: the classes of a classifier, or regressors of which each row asks one. Every output
has trees of its own, as many as the others.

The meaning of a split is XGBoost's. A value goes right where it is not below the threshold; of a categorical split,
where its code is among the node's right-hand categories. A missing value (NaN) goes the node's default way. Values are
compared as float32, and leaves are added to the base as float32, tree by tree, so that a sum is XGBoost's to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_predictor.errors import TreesError

MAX_DEPTH: Final = 64
"""Deepest tree that is accepted; far above what is ever fitted, so only a corrupted file reaches it."""

MAX_CATEGORY: Final = 1 << 24
"""Category codes are carried as float32, which is exact up to here."""

_PAIRS_AT_ONCE: Final = 1 << 19
"""Some arrays of so many (tree, row) pairs are held at a time."""

_GREATEST: Final = np.finfo(np.float32).max

KINDS: Final[Mapping[str, tuple[str, int]]] = {
    "roots": ("<i4", 2),
    "feature": ("<i4", 1),
    "threshold": ("<f4", 1),
    "default_right": ("|b1", 1),
    "left": ("<i4", 1),
    "value": ("<f4", 1),
    "category_start": ("<i4", 1),
    "category_count": ("<i4", 1),
    "category_right": ("|b1", 1),
    "base": ("<f4", 1),
}
"""Type and number of dimensions of each array."""


class _Steps(NamedTuple):
    """What a step of the walk reads of a node, made once. Arrays have one entry per node."""

    place: NDArray[np.intp]
    """Its column among a row's values: the feature, in the second half where a missing value goes right."""
    threshold: NDArray[np.float32]
    """Infinite in leaves, which nothing leaves; NaN in categorical nodes, where nothing is compared."""
    left: NDArray[np.intp]
    category_start: NDArray[np.int32]
    """Of a categorical node: where its categories begin in `category_right`."""
    category_last: NDArray[np.int32]
    """Of a categorical node: how far from there stands what holds for all greater codes."""
    category_right: NDArray[np.bool_]
    """Per categorical node: whether a missing value goes right, each code that it tells apart, and all greater ones."""


@dataclass(frozen=True, eq=False)
class Trees:
    """A forest. An output is its base plus the leaves that a row falls into in the output's trees.

    Nodes are numbered over all trees, parents before their children; a right child follows its left sibling.

    Raises:
        TreesError: the arrays break a rule, so that a walk could leave them or never end.
    """

    roots: NDArray[np.int32]
    """First node of each tree, shape (trees of an output, outputs); the trees of an output in the order of boosting."""
    feature: NDArray[np.int32]
    """Per node: the column that is compared (0 in leaves)."""
    threshold: NDArray[np.float32]
    """Per node: values below it go left (0 in leaves and categorical nodes)."""
    default_right: NDArray[np.bool_]
    """Per node: whether a missing value goes right (False in leaves)."""
    left: NDArray[np.int32]
    """Per node: its left child, whose successor is the right one; of a leaf: itself."""
    value: NDArray[np.float32]
    """Per node: what a leaf adds (0 in inner nodes)."""
    category_start: NDArray[np.int32]
    """Per node: where its categories begin in `category_right`."""
    category_count: NDArray[np.int32]
    """Per node: how many category codes it tells apart; 0 in numeric nodes. Greater codes go left."""
    category_right: NDArray[np.bool_]
    """Per categorical node and code: whether that category goes right."""
    base: NDArray[np.float32]
    """Per output."""
    feature_count: int

    def __post_init__(self) -> None:
        _check(self)
        _ = self._steps, self.depth  # the first prediction is to be as fast as the second

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return len(self.base)

    @cached_property
    def depth(self) -> int:
        """Steps from a root to the deepest leaf."""
        return _depth(self.roots, self.left)

    @cached_property
    def _steps(self) -> _Steps:
        nodes = np.flatnonzero(self.category_count)
        count = self.category_count[nodes].astype(np.intp)
        start = np.cumsum(count + 2) - count - 2
        right = np.zeros(int((count + 2).sum()), dtype=np.bool_)
        right[start] = self.default_right[nodes]
        code = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        right[np.repeat(start + 1, count) + code] = self.category_right[
            np.repeat(self.category_start[nodes], count) + code
        ]
        category_start = np.zeros(self.left.size, dtype=np.int32)
        category_start[nodes] = start
        threshold = np.where(self.left == np.arange(self.left.size), np.float32(np.inf), self.threshold)
        threshold[nodes] = np.nan
        place = self.feature + np.where(self.default_right, self.feature_count, 0)
        return _Steps(
            place.astype(np.intp),
            threshold,
            self.left.astype(np.intp),
            category_start,
            self.category_count + np.int32(1),
            right,
        )

    def margins(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Every output of `rows` (shape (n, feature_count), NaN where missing), shape (n, outputs).

        Raises:
            ValueError: `rows` has another shape.
        """
        return self._sums(rows, self.roots[:, None, :], self.base[None, :])

    def predict(self, rows: NDArray[np.float32], output: NDArray[np.integer[Any]] | int = 0) -> NDArray[np.float64]:
        """One output of each of `rows` (shape (n, feature_count), NaN where missing), shape (n,).

        Args:
            rows: the rows.
            output: the output that is asked for, of all rows or of each.

        Raises:
            ValueError: `rows` has another shape.
        """
        asked = np.broadcast_to(output, len(rows))
        return self._sums(rows, self.roots[:, asked, None], self.base[asked, None])[:, 0].astype(np.float64)

    def _sums(
        self, rows: NDArray[np.float32], roots: NDArray[np.int32], base: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Sums of the trees with these roots (shape (trees, rows or 1, sums)) and bases, shape (rows, sums)."""
        if rows.ndim != 2 or rows.shape[1] != self.feature_count:
            raise ValueError(f"rows must have shape (n, {self.feature_count}), got {rows.shape}")
        trees, given, sums = roots.shape
        result = np.empty((len(rows), sums), dtype=np.float32)
        step = max(1, _PAIRS_AT_ONCE // (trees * sums))
        for start in range(0, len(rows), step):
            at = slice(start, start + step)
            of_part = at if given > 1 else slice(None)
            values = self.value.take(self._leaves(rows[at], roots[:, of_part]))
            values[0] += base[of_part]
            # Unlike a sum, whose order numpy chooses, this adds one tree after another.
            result[at] = np.add.accumulate(values, axis=0)[-1]
        return result

    def _leaves(self, rows: NDArray[np.float32], roots: NDArray[np.int32]) -> NDArray[np.intp]:
        """The leaf that each row reaches below each of its roots, shape (trees, rows, sums)."""
        # A missing value is below every threshold, or above every one: a row is laid out twice, and a node reads the
        # half that sends what is missing its default way. A category is 1 more than its code, 0 where it is missing,
        # and beyond every node's last where no code can be: beyond float32's exact integers, or below 0.
        missing = np.isnan(rows)
        present = rows.clip(-_GREATEST, _GREATEST)
        halves = np.where(missing, -np.inf, present), np.where(missing, np.inf, present)
        values = np.concatenate(halves, axis=1, dtype=np.float32).ravel()
        codes = np.where((rows >= 0) & (rows < MAX_CATEGORY), rows, MAX_CATEGORY) + 1
        codes[missing] = 0
        categories = np.concatenate([codes, codes], axis=1, dtype=np.int32, casting="unsafe").ravel()
        steps = self._steps
        shape = (len(roots), len(rows), roots.shape[2])
        first = np.broadcast_to((np.arange(len(rows)) * (2 * self.feature_count))[:, None], shape).ravel()
        node = np.broadcast_to(roots, shape).ravel().astype(np.intp)
        for _ in range(self.depth):
            place = steps.place.take(node)
            place += first
            threshold = steps.threshold.take(node)
            right = values.take(place) >= threshold
            categorical = np.flatnonzero(np.isnan(threshold))
            if categorical.size:
                nodes = node.take(categorical)
                at = np.minimum(categories.take(place.take(categorical)), steps.category_last.take(nodes))
                at += steps.category_start.take(nodes)
                right[categorical] = steps.category_right.take(at)
            node = steps.left.take(node)
            node += right
        return node.reshape(shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, with the types of `KINDS`."""
        return {name: np.asarray(getattr(self, name), dtype=kind) for name, (kind, _) in KINDS.items()}


def _check(trees: Trees) -> None:
    """Refuse arrays on which a walk could read out of bounds, never end or answer NaN."""
    nodes = trees.feature.size
    for name, (kind, dimensions) in KINDS.items():
        array = getattr(trees, name)
        if array.ndim != dimensions or array.dtype != np.dtype(kind):
            raise TreesError(
                f"array {name!r} must be {dimensions}-dimensional {np.dtype(kind)}, "
                f"got {array.ndim}-dimensional {array.dtype}"
            )
    if not trees.roots.size or not nodes:
        raise TreesError("trees must have at least one tree and one node")
    for name in ("threshold", "default_right", "left", "value", "category_start", "category_count"):
        if getattr(trees, name).size != nodes:
            raise TreesError(f"array {name!r} must have one entry per node ({nodes}), got {getattr(trees, name).size}")
    outputs = trees.roots.shape[1]
    if trees.base.size != outputs:
        raise TreesError(f"array 'base' must have one entry per output ({outputs}), got {trees.base.size}")
    if trees.feature_count < 1 or trees.feature.min() < 0 or trees.feature.max() >= trees.feature_count:
        raise TreesError(f"array 'feature' must lie in [0, {trees.feature_count}), the number of features")
    for name in ("threshold", "value", "base"):
        if not np.isfinite(getattr(trees, name)).all():
            raise TreesError(f"array {name!r} must be finite")
    _check_shape(trees, nodes)
    end = trees.category_start.astype(np.int64) + trees.category_count
    listed = trees.category_right.size
    if trees.category_start.min() < 0 or trees.category_count.min() < 0 or end.max() > listed:
        raise TreesError(f"categories of every node must lie within 'category_right' ({listed})")
    if trees.category_count.sum(dtype=np.int64) > listed:  # nor may a small file ask for a large memory
        raise TreesError(f"categories of every node must be its own, there are only {listed}")


def _check_shape(trees: Trees, nodes: int) -> None:
    """Every node is the root of a tree or has exactly one parent, which comes before it: so there are no cycles."""
    roots, left = trees.roots.ravel(), trees.left
    if roots.min() < 0 or roots.max() >= nodes or left.min() < 0 or left.max() >= nodes:
        raise TreesError(f"roots and children must be nodes, in [0, {nodes})")
    own = np.arange(nodes, dtype=np.int32)
    leaf = left == own
    if (trees.default_right & leaf).any() or (trees.category_count[leaf] != 0).any():
        raise TreesError("a leaf must have no categories and no way to the right")
    inner = left[~leaf]
    if (inner < own[~leaf]).any():
        raise TreesError("children must come after their parent; a leaf's child is itself")
    if inner.size and inner.max() + 1 >= nodes:
        raise TreesError(f"roots and children must be nodes, in [0, {nodes})")
    # Each of these is counted once: roots, left children, and the right ones that follow them.
    parents = np.bincount(np.concatenate([roots, inner, inner + 1]), minlength=nodes)
    if (parents != 1).any():
        raise TreesError("every node must be the root of one tree or the child of one node")
    if _depth(trees.roots, left) > MAX_DEPTH:
        raise TreesError(f"no tree may be deeper than {MAX_DEPTH}")


def _depth(roots: NDArray[np.int32], left: NDArray[np.int32]) -> int:
    """Steps from a root to the deepest leaf, counted up to one more than `MAX_DEPTH`."""
    at = roots.ravel()
    steps = 0
    while True:
        child = left[at]
        child = child[child != at]
        if not child.size or steps > MAX_DEPTH:
            return steps
        at = np.concatenate([child, child + 1])
        steps += 1

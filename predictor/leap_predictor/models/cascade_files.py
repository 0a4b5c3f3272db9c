"""The cascade as the files of a bundle: `cascade.json` with names and numbers, `cascade.npz` with the trees.

Both are checked on reading: a launcher never walks arrays that do not fit together or are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from numpy.typing import NDArray

from leap_features.columns import Specifications
from leap_predictor.errors import ModelError, TreesError
from leap_predictor.models.arrays import Kinds, from_npz, to_npz
from leap_predictor.models.cascade import Cascade, HalfWidths
from leap_predictor.models.numbers import from_json, to_json
from leap_predictor.models.trees import KINDS, Trees

NUMBERS: Final = "cascade.json"
TREES: Final = "cascade.npz"

REGRESSORS: Final = "regressors"
CLASSIFIER: Final = "classifier"
"""What the names of a forest's arrays begin with."""

HalfWidth = Annotated[float, msgspec.Meta(gt=0, le=1e3)]


class _Numbers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    features: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    categories: dict[str, tuple[str, ...]]
    regressors: Annotated[int, msgspec.Meta(ge=1, le=1000)]
    half_width_with_history: HalfWidth
    half_width_without_history: HalfWidth


def _kinds(*forests: str) -> Kinds:
    return {f"{forest}_{name}": kind for forest in forests for name, kind in KINDS.items()}


def _forests(regressors: int) -> tuple[str, ...]:
    return (REGRESSORS,) if regressors == 1 else (REGRESSORS, CLASSIFIER)


def to_files(model: Cascade) -> dict[str, bytes]:
    """The files of `model`, by name."""
    numbers = _Numbers(
        features=model.features,
        categories={name: tuple(values) for name, values in model.categories.items()},
        regressors=model.regressors.outputs,
        half_width_with_history=model.half_widths.with_history,
        half_width_without_history=model.half_widths.without_history,
    )
    forests = {REGRESSORS: model.regressors} | ({CLASSIFIER: model.classifier} if model.classifier else {})
    arrays = {f"{forest}_{name}": array for forest, trees in forests.items() for name, array in trees.arrays().items()}
    return {NUMBERS: to_json(numbers), TREES: to_npz(arrays, _kinds(*forests))}


def from_files(files: Mapping[str, bytes], specifications: Specifications) -> Cascade:
    """The model in `files`, which may hold others too.

    Args:
        files: content by name.
        specifications: finds those of a hardware type.

    Raises:
        ModelError: a file is not there or not readable, or numbers and trees do not fit together.
    """
    numbers = from_json(files, NUMBERS, TREES, _Numbers, "a cascade")
    forests = _forests(numbers.regressors)
    arrays = from_npz(files[TREES], _kinds(*forests), TREES)
    trees = {forest: _trees(arrays, forest, len(numbers.features), numbers.regressors) for forest in forests}
    return Cascade(
        numbers.features,
        numbers.categories,
        specifications,
        trees[REGRESSORS],
        trees.get(CLASSIFIER),
        HalfWidths(numbers.half_width_with_history, numbers.half_width_without_history),
    )


def _trees(arrays: Mapping[str, NDArray[Any]], forest: str, features: int, regressors: int) -> Trees:
    try:
        trees = Trees(**{name: arrays[f"{forest}_{name}"] for name in KINDS}, feature_count=features)
    except TreesError as error:
        raise ModelError(f"{TREES}: {forest}: {error}") from error
    if trees.outputs != regressors:
        raise ModelError(f"{TREES}: {forest} must have one output per regressor ({regressors}), got {trees.outputs}")
    return trees

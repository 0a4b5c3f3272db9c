"""Quick fits of the cascade and the single regressor, for tests of what is made of a fit."""

from __future__ import annotations

from functools import partial

import msgspec

from leap_features.hardware import CATALOGUE
from leap_training.boosting import SINGLE, single_regressor
from leap_training.cascade import CASCADE, fit_cascade
from leap_training.feature_models import FeatureRecipe
from leap_training.served_trees import FittedTrees, TreeModel, fit_trees
from leap_training.training_set import TrainingSet

_QUICK = msgspec.structs.replace(
    CASCADE,
    bins=4,
    alternations=1,
    regressor=msgspec.structs.replace(CASCADE.regressor, rounds=12, max_depth=5),
    classifier=msgspec.structs.replace(CASCADE.classifier, rounds=8, max_depth=4),
)
QUICK: dict[TreeModel, FeatureRecipe] = {
    "leap": FeatureRecipe(partial(fit_cascade, settings=_QUICK)),
    "xgboost": FeatureRecipe(partial(single_regressor, settings=msgspec.structs.replace(SINGLE, rounds=20))),
}


def small_forests(name: TreeModel, rows: TrainingSet, *, intervals: bool = False) -> FittedTrees:
    """The model of this name with few shallow trees, fitted on `rows`."""
    return fit_trees(name, rows, CATALOGUE, intervals=intervals, recipe=QUICK[name])

"""All models by name: what the judge compares, in the order of its tables, and the parts that `leap` is judged without.

A recipe is light until it is asked to fit: the packages that it needs are imported then.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from leap_features.row import GROUPS
from leap_training import corrected
from leap_training.baselines import BackoffLast, BackoffMean, FamilyMean, Lookup
from leap_training.boosted import catboost_regressor, lightgbm_regressor
from leap_training.boosting import SHALLOW, single_regressor
from leap_training.cascade import CASCADE, fit_cascade
from leap_training.corrected import CorrectedRecipe
from leap_training.feature_models import PAPER_GROUPS, FeatureRecipe
from leap_training.layered import LayeredRecipe
from leap_training.model import Recipe
from leap_training.neighbours import Neighbours
from leap_training.tabpfn import tabpfn_regressor

DEFAULT: Final = "layered"
"""The model that is published unless another is asked for."""

RECIPES: Final[Mapping[str, Recipe]] = {
    "layered": LayeredRecipe(),
    "leap": FeatureRecipe(fit_cascade),
    "xgboost": FeatureRecipe(single_regressor),
    "lightgbm": FeatureRecipe(lightgbm_regressor),
    "catboost": FeatureRecipe(catboost_regressor),
    "tabpfn": FeatureRecipe(tabpfn_regressor),
    "neighbours": Neighbours(),
    "corrected_gaussian": CorrectedRecipe(corrected.gaussian),
    "corrected_trees": CorrectedRecipe(corrected.trees),
    "corrected_ridge": CorrectedRecipe(corrected.ridge),
    "corrected_scale": CorrectedRecipe(corrected.scale),
    "donor": CorrectedRecipe(corrected.donor),
    "backoff_last": BackoffLast(),
    "backoff_mean": BackoffMean(),
    "lookup": Lookup(),
    "lookup_backoff": Lookup(with_backoff=True),
    "family_mean": FamilyMean(),
}
"""Every model, from the shipped one to the simplest."""

_SHALLOW_CASCADE: Final = msgspec.structs.replace(
    CASCADE,
    regressor=msgspec.structs.replace(CASCADE.regressor, max_depth=SHALLOW),
    classifier=msgspec.structs.replace(CASCADE.classifier, max_depth=SHALLOW),
)


def leap_without(group: str) -> FeatureRecipe:
    """`leap` without a group of its features (a key of `leap_features.row.GROUPS`)."""
    return FeatureRecipe(fit_cascade, tuple(each for each in PAPER_GROUPS if each != group))


ABLATIONS: Final[Mapping[str, Recipe]] = {
    "leap-architecture": leap_without("architecture"),
    "leap-history": leap_without("family_history"),
    "leap-ratios": leap_without("ratios"),
    "leap-cascade": FeatureRecipe(single_regressor),
    "leap-depth": FeatureRecipe(partial(fit_cascade, settings=_SHALLOW_CASCADE)),
    "leap+levels": FeatureRecipe(fit_cascade, tuple(GROUPS)),
}
"""`leap` with a part taken away, or (+) added: `leap-cascade` is a single regressor, `leap-depth` has shallow trees."""

"""`leap` and `xgboost` as a launcher runs them: fitted by XGBoost, turned into plain arrays, with intervals measured.

Intervals are split-conformal as those of `layered`, but of two kinds of rows only, those with and those without
history: a model that is fitted on the first three quarters of the rows predicts the last one, as it would have been
served, and the half-width is the 80 % quantile of its errors. One such fit: a cascade takes its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.columns import Columns
from leap_features.hardware import Catalogue
from leap_features.row import feature_row
from leap_predictor.models.basis import Floats
from leap_predictor.models.cascade import Cascade, HalfWidths
from leap_predictor.models.cascade_files import to_files
from leap_predictor.models.layered import Estimate
from leap_predictor.models.served_model import NORMAL, ServedModel
from leap_training import cascade, conformal
from leap_training.boosting import SINGLE, MedianTrees, answers
from leap_training.conversion import side_by_side, trees_of
from leap_training.feature_models import FeatureModel, FeatureRecipe
from leap_training.model import Predictions
from leap_training.models import RECIPES
from leap_training.training_set import TrainingSet

TreeModel = Literal["leap", "xgboost"]

SETTINGS: Final[Mapping[TreeModel, msgspec.Struct]] = {"leap": cascade.CASCADE, "xgboost": SINGLE}

SPLITS: Final = (0.75,)

ROUNDING: Final = 2.0**-24
"""Of one sum in 32 bits, as a share of it."""


@dataclass(frozen=True, eq=False)
class FittedTrees:
    """A fit of XGBoost's, and the same as a launcher runs it."""

    name: TreeModel
    fitted: FeatureModel
    model: Cascade
    settings: dict[str, float | str]
    """Parameters of the fit, by name."""

    @property
    def summary(self) -> str:
        """What was fitted, in a few words."""
        forests = [self.model.regressors, *([self.model.classifier] if self.model.classifier else [])]
        nodes = sum(trees.feature.size for trees in forests)
        regressors = self.model.regressors.outputs
        return f"{regressors} regressor{'' if regressors == 1 else 's'}, {nodes:,} nodes in all trees"

    def files(self) -> dict[str, bytes]:
        """The files of its bundle, by name."""
        return to_files(self.model)

    def predict(self, rows: TrainingSet) -> Predictions:
        """As the judge asks."""
        found = self.model.estimate(self.fitted.features.columns(rows))
        return Predictions(found.log_throughput, found.log_low, found.log_high, found.level)

    def difference(self, served: ServedModel, sample: TrainingSet) -> str | None:
        """Where `served` does otherwise than XGBoost on `sample`, or on it with all categories hidden; None: nowhere.

        The features must be the same to the bit, and every output of every forest within what the order of summation
        can make of a sum in 32 bits (`tolerance`). The regressor that is chosen must be the same, but where two are
        as likely within that.
        """
        if not isinstance(served, Cascade):
            raise TypeError(f"files of {self.name!r} must be read as a cascade, got {type(served).__name__}")
        columns = self.fitted.features.columns(sample)
        nothing = np.full(len(sample), None)
        hidden = {**columns, **dict.fromkeys(self.fitted.features.categories, nothing)}
        for shown, where in ((columns, ""), (hidden, " with its categories hidden")):
            if (said := self._difference(served, shown)) is not None:
                return f"{said}{where}"
        return None

    def _difference(self, served: Cascade, columns: Columns) -> str | None:
        features = self.fitted.features
        matrix = feature_row(columns, features.names, features.categories, features.specifications)
        seen = served.matrix(columns)
        same = (seen == matrix) | (np.isnan(seen) & np.isnan(matrix))
        if not same.all():
            row, column = np.argwhere(~same)[0].tolist()
            return f"another value of {features.names[column]} on sample row {row}"
        regressors, classifier = _boosters(self.fitted)
        if served.regressors.outputs != len(regressors):
            return f"{served.regressors.outputs} regressors instead of {len(regressors)}"
        wanted = np.stack([answers(booster, matrix) for booster in regressors], axis=1)
        got = served.regressors.margins(matrix)
        if (said := _apart(got, wanted, len(served.regressors.roots), "log_throughput of regressor")) is not None:
            return said
        chosen = expected = served.chosen(matrix)
        other = served.estimate(columns).log_throughput != got[np.arange(len(matrix)), chosen]
        if classifier is not None and served.classifier is not None:
            rounds = len(served.classifier.roots)
            margins = np.asarray(classifier.inplace_predict(matrix, predict_type="margin"), dtype=np.float64)
            if (said := _apart(served.classifier.margins(matrix), margins, rounds, "margin of regressor")) is not None:
                return said
            expected = answers(classifier, matrix).argmax(axis=1)
            one, another = (margins[np.arange(len(matrix)), each] for each in (chosen, expected))
            other |= np.abs(one - another) > 2 * tolerance(another, rounds)
        if other.any():
            row = int(np.argmax(other))
            return f"another answer than that of regressor {expected[row]} on sample row {row}"
        return None


def tolerance(wanted: Floats, trees: int) -> Floats:
    """How far two sums of as many trees may lie apart that are summed in 32 bits in another order."""
    result: Floats = trees * ROUNDING * np.maximum(1.0, np.abs(wanted))
    return result


def _apart(got: NDArray[Any], wanted: Floats, trees: int, what: str) -> str | None:
    beyond = ~(np.abs(got - wanted) <= tolerance(wanted, trees))
    if not beyond.any():
        return None
    row, output = np.argwhere(beyond)[0].tolist()
    return f"{what} {output} {float(got[row, output])!r} instead of {float(wanted[row, output])!r} on sample row {row}"


def fit_trees(
    name: TreeModel,
    rows: TrainingSet,
    catalogue: Catalogue,
    *,
    intervals: bool = True,
    recipe: FeatureRecipe | None = None,
) -> FittedTrees:
    """Fit on `rows`.

    Args:
        name: of the model.
        rows: the attempts.
        catalogue: finds the specifications of hardware.
        intervals: measure how wide the intervals must be; without, they are as wide as throughput spreads.
        recipe: how the model is fitted; by default as the judge fits it.

    Raises:
        NotRun: XGBoost is not there.
        NothingToFit: there are no rows.
    """
    recipe = _recipe(name) if recipe is None else recipe
    fitted = recipe.fit(rows, catalogue)
    spread = max(1e-6, NORMAL * float(rows.log_throughput.std()))
    plain = HalfWidths(spread, spread)

    def predicted(earlier: TrainingSet, later: TrainingSet) -> Estimate:
        model = recipe.fit(earlier, catalogue)
        return served(model, HalfWidths(NORMAL, NORMAL)).estimate(model.features.columns(later.hidden()))

    widths = half_widths(*conformal.scores(rows, predicted, SPLITS), plain) if intervals else plain
    return FittedTrees(name, fitted, served(fitted, widths), settings_of(SETTINGS[name]))


def half_widths(away: Floats, level: NDArray[np.int8], plain: HalfWidths) -> HalfWidths:
    """Of later rows' absolute errors and levels of history; `plain` where there are too few rows."""
    if len(away) < conformal.MIN_ROWS:
        return plain
    of_all = conformal.quantile(away)
    return HalfWidths(*(conformal.shrunk(away[chosen], of_all) for chosen in (level >= 0, level < 0)))


def served(fitted: FeatureModel, widths: HalfWidths) -> Cascade:
    """`fitted` as a launcher runs it."""
    regressors, classifier = _boosters(fitted)
    features = fitted.features
    return Cascade(
        features.names,
        {name: tuple(values) for name, values in features.categories.items()},
        features.specifications,
        side_by_side([trees_of(booster) for booster in regressors]),
        None if classifier is None else trees_of(classifier),
        widths,
    )


def settings_of(settings: msgspec.Struct, prefix: str = "") -> dict[str, float | str]:
    """`settings` as a bundle's manifest holds them: numbers by name."""
    found: dict[str, float | str] = {}
    for name, value in msgspec.structs.asdict(settings).items():
        found |= settings_of(value, f"{name}_") if isinstance(value, msgspec.Struct) else {prefix + name: float(value)}
    return found


def _recipe(name: TreeModel) -> FeatureRecipe:
    recipe = RECIPES[name]
    if not isinstance(recipe, FeatureRecipe):
        raise TypeError(f"{name!r} must be a model of the feature matrix, got {type(recipe).__name__}")
    return recipe


def _boosters(fitted: FeatureModel) -> tuple[tuple[Any, ...], Any | None]:
    """XGBoost's regressors, and its classifier if there is one."""
    estimator = fitted.estimator
    if isinstance(estimator, cascade.Cascade):
        return estimator.regressors, estimator.classifier
    if isinstance(estimator, MedianTrees):
        return (estimator.booster,), None
    raise TypeError(f"a launcher runs XGBoost's trees, got {type(estimator).__name__}")

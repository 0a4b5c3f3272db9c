"""Publishes a fitted model as a bundle, once its trees have been found equal to XGBoost's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import xgboost
from numpy.typing import NDArray

from leap_features.columns import CONFIG_PREFIX
from leap_features.events import from_us
from leap_features.hardware import Catalogue
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.bundle import TREES, library_version, publish
from leap_predictor.manifest import (
    FORMAT,
    Manifest,
    TrainingWindow,
    backoff_views,
    hardware_entries,
    history_views,
)
from leap_training.layered import Fitted, matrix
from leap_training.training_set import TrainingSet

SAMPLE_ROWS: Final = 10_000
TOLERANCE: Final = 1e-5
"""Relative: sums of some hundred float32 leaves in another order differ by about 1e-6."""


class TreesDiffer(RuntimeError):
    """The converted trees predict otherwise than XGBoost; the bundle is not published."""


def check_trees(fitted: Fitted, rows: TrainingSet) -> float:
    """Compare the model's trees with the booster on a sample of `rows`; return the greatest difference.

    The sample also goes through with every feature missing in turn, since training rows seldom have all their gaps.

    Raises:
        TreesDiffer: some prediction differs by more than rounding.
    """
    step = max(1, len(rows) // SAMPLE_ROWS)
    sample = rows.where(np.arange(0, len(rows), step))
    keys = [name.removeprefix(CONFIG_PREFIX) for name in fitted.features if name.startswith(CONFIG_PREFIX)]
    values, types = matrix(sample.with_config(keys), fitted.features, fitted.categories)
    gaps = np.tile(values[:1], (len(fitted.features), 1))
    np.fill_diagonal(gaps, np.nan)
    return _compare(fitted, np.concatenate([values, gaps]), types)


def _compare(fitted: Fitted, values: NDArray[np.float32], types: list[str]) -> float:
    data = xgboost.DMatrix(values, feature_names=list(fitted.features), feature_types=types)
    wanted = fitted.booster.predict(data).astype(np.float64)
    got = fitted.model.trees.predict(values)
    difference = np.abs(got - wanted) / np.maximum(1.0, np.abs(wanted))
    worst = int(np.argmax(difference))
    if not difference[worst] <= TOLERANCE:
        raise TreesDiffer(
            f"trees must predict what XGBoost {xgboost.__version__} predicts, got {got[worst]!r} instead of "
            f"{wanted[worst]!r} on sample row {worst}: this release of XGBoost is not understood, install another"
        )
    return float(difference[worst])


def publish_model(
    fitted: Fitted,
    rows: TrainingSet,
    bundles: Path,
    *,
    catalogue: Catalogue,
    project: str,
    family_rule: str,
    family_rules: str,
    before: datetime | None,
    set_aside: int,
    metrics: Mapping[str, float],
    now: datetime,
) -> str:
    """Publish `fitted`, which was fitted on `rows`, in `bundles` and return the bundle's id.

    Args:
        fitted: the model.
        rows: what it was fitted on.
        bundles: directory of all bundles.
        catalogue: hardware that the launcher will know.
        project: Feast project of the history.
        family_rule: version of the family rules, as the online store's meta has it.
        family_rules: their text; empty: the built-in ones.
        before: rows recorded from then on took no part; None: all did.
        set_aside: rows of the file that had no usable throughput.
        metrics: what is known about the model's accuracy.
        now: aware time of publishing.

    Raises:
        TreesDiffer: the trees are not what XGBoost fitted.
        BundleError: the bundle cannot be written.
    """
    check_trees(fitted, rows)
    manifest = Manifest(
        format=FORMAT,
        library_version=library_version(),
        created_at=now.astimezone(UTC),
        project=project,
        history_schema=SCHEMA_VERSION,
        family_rule=family_rule,
        family_rules=family_rules,
        model="layered",
        features=fitted.features,
        categories={name: tuple(values) for name, values in fitted.categories.items()},
        views=history_views(),
        backoff=backoff_views(),
        hardware=hardware_entries(catalogue),
        training=TrainingWindow(
            rows=len(rows),
            set_aside=set_aside,
            first_recorded_at=from_us(int(rows.recorded_at_us.min())),
            last_recorded_at=from_us(int(rows.recorded_at_us.max())),
            before=before,
        ),
        settings=msgspec.structs.asdict(fitted.settings),
        metrics=dict(metrics),
        files={},
    )
    return publish(bundles, manifest, {TREES: fitted.model.trees.to_bytes()})

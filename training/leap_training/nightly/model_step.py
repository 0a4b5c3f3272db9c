"""What the nightly run asks of the model that ships: fit and stage it as a bundle, load one, predict, publish.

A fit is staged: published to a directory of the night's own. What is judged is therefore read back from a bundle, as a
launcher reads it, and publishing is a copy of bytes, which comes to the same bundle however often it is begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from leap_features import family
from leap_features.hardware import CATALOGUE
from leap_features.settings import Settings
from leap_predictor import bundle
from leap_predictor.bundle import Bundle
from leap_predictor.errors import BundleError
from leap_training.feature_set import FeatureSet
from leap_training.layered import ConfigKeyError, fit
from leap_training.model import NotRun, Predictions
from leap_training.publish import ServedDiffers, publish_model
from leap_training.training_set import TrainingSet

ERRORS: Final = (NotRun, ConfigKeyError, ServedDiffers, BundleError)
"""What can go wrong here and has a message for whoever runs the night."""


def stage(
    rows: TrainingSet,
    staging: Path,
    *,
    settings: Settings,
    rules: family.Rules,
    config_keys: Sequence[str],
    before: datetime,
    set_aside: int,
    metrics: Mapping[str, float],
    now: datetime,
) -> str:
    """Fit the model on `rows` and write it to `staging` as a bundle; return the bundle's id.

    Args:
        config_keys: keys of the jobs' configuration that take part.
        before: rows recorded from then on are not among `rows`.
        set_aside: rows that could not be used.
        metrics: what is known of its accuracy.
        now: aware time of the bundle.

    Raises:
        NothingToFit: there are no rows.
        ConfigKeyError: a configuration key cannot take part.
        ServedDiffers, BundleError: the bundle cannot be made.
    """
    return publish_model(
        fit(rows, CATALOGUE, config_keys=config_keys),
        rows,
        staging,
        catalogue=CATALOGUE,
        project=settings.project,
        family_rule=rules.version,
        family_rules=Path(settings.family_rules).read_text(encoding="utf-8") if settings.family_rules else "",
        before=before,
        set_aside=set_aside,
        metrics=metrics,
        now=now,
    )


def predict(loaded: Bundle, rows: TrainingSet) -> Predictions:
    """What a launcher with this bundle would have said of each attempt at its submission."""
    model = loaded.model
    seen = FeatureSet(model.features, model.categories, bundle.specifications_of(loaded.catalogue))
    estimate = model.estimate(seen.columns(rows))
    return Predictions(estimate.log_throughput, estimate.log_low, estimate.log_high, estimate.level)


def publish_staged(staging: Path, bundles: Path) -> str:
    """Publish the bundle in `staging` in `bundles` as the current one, byte for byte, and return its id.

    Killed at any instant and called again it comes to the same.

    Raises:
        BundleError: it is damaged, or cannot be read or written.
    """
    bundle_id = bundle.load(staging).bundle_id
    try:
        files = {file.name: file.read_bytes() for file in (staging / bundle_id).iterdir()}
    except OSError as error:
        raise BundleError(f"bundle {bundle_id} cannot be read from {staging}: {error}") from error
    bundle.place(bundles, bundle_id, files)
    return bundle_id

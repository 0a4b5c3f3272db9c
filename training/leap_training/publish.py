"""Publishes a fitted model as a bundle, once its files have been found to predict what was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from leap_features.events import from_us
from leap_features.hardware import Catalogue
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.bundle import library_version, publish, read_model
from leap_predictor.manifest import (
    FORMAT,
    Manifest,
    ModelName,
    TrainingWindow,
    backoff_views,
    hardware_entries,
    history_views,
)
from leap_predictor.models.served_model import ServedModel
from leap_training.model import FittedModel
from leap_training.training_set import TrainingSet

SAMPLE_ROWS: Final = 2_000


class ServedDiffers(RuntimeError):
    """The files of a bundle predict otherwise than the model that they were made of; it is not published."""


class Publishable(FittedModel, Protocol):
    """A fit that can be published, beside the same as a launcher runs it."""

    @property
    def name(self) -> ModelName:
        """Of the model."""

    @property
    def model(self) -> ServedModel:
        """As a launcher runs it."""

    @property
    def settings(self) -> dict[str, float | str]:
        """Parameters of the fit, by name."""

    @property
    def summary(self) -> str:
        """What was fitted, in a few words."""

    def files(self) -> dict[str, bytes]:
        """The files of its bundle, by name."""

    def difference(self, served: ServedModel, sample: TrainingSet) -> str | None:
        """Where `served` predicts a row of `sample` otherwise than was fitted, for a person; None: nowhere."""


def check_served(fitted: Publishable, files: Mapping[str, bytes], catalogue: Catalogue, rows: TrainingSet) -> None:
    """Read the model back from `files`, as a launcher does, and compare what it predicts on a sample of `rows`.

    Raises:
        ModelError: the files are refused.
        ServedDiffers: it predicts a row otherwise than was fitted.
    """
    sample = rows.where(np.arange(0, len(rows), max(1, len(rows) // SAMPLE_ROWS)))
    difference = fitted.difference(read_model(fitted.name, files, catalogue), sample)
    if difference is not None:
        raise ServedDiffers(
            f"a bundle must predict what the fit predicts, got {difference}: this is a fault of leap-throughput"
        )


def publish_model(
    fitted: Publishable,
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
        ServedDiffers: the files do not predict what was fitted.
        BundleError: the bundle cannot be written.
    """
    files = fitted.files()
    check_served(fitted, files, catalogue, rows)
    manifest = Manifest(
        format=FORMAT,
        library_version=library_version(),
        created_at=now.astimezone(UTC),
        project=project,
        history_schema=SCHEMA_VERSION,
        family_rule=family_rule,
        family_rules=family_rules,
        model=fitted.name,
        features=fitted.model.features,
        categories={name: tuple(values) for name, values in fitted.model.categories.items()},
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
        settings=fitted.settings,
        metrics=dict(metrics),
        files={},
    )
    return publish(bundles, manifest, files)

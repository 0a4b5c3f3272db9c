"""A small model bundle made by hand, for tests that need a launcher but no fit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from leap_features.family import DEFAULT_RULES
from leap_features.hardware import CATALOGUE, Catalogue
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.bundle import publish, specifications_of
from leap_predictor.manifest import (
    FORMAT,
    Manifest,
    TrainingWindow,
    backoff_views,
    hardware_entries,
    history_views,
)
from leap_predictor.models.basis import BANDWIDTH_SLOPE, COMPUTE_SLOPE, TRAINERS_SLOPE, Basis, HardwareTable
from leap_predictor.models.layered import FAMILY_TERMS, Layered, ModelType
from leap_predictor.models.layered_files import served, to_files
from leap_predictor.models.points import LEVEL_COUNT
from leap_predictor.models.repeat_noise import RepeatNoise
from leap_predictor.models.settings_columns import Setting, SettingsEncoder

CREATED_AT = datetime(2026, 3, 1, 4, tzinfo=UTC)

SLOW, FAST = 10.0, 20.0
"""Samples per second and trainer, on hardware below 500 dense TFLOPS and above."""

NOISE = 1e-9
"""So little that history corrects a prediction fully."""


def small_model(
    catalogue: Catalogue = CATALOGUE,
    *,
    settings: tuple[Setting, ...] = (),
    model_types: tuple[str, ...] = (),
    widths: tuple[float, ...] = (1.0,) * (LEVEL_COUNT + 1),
) -> Layered:
    """A model of any model type that gives `SLOW` or `FAST` per trainer, whatever else; settings have no effect.

    What is uncertain are constants of the model type and of the family, so an estimate is f(x) + last − f(x_last).
    """
    specifications = specifications_of(catalogue)
    table = HardwareTable.of({name: specifications(name) or {} for name in catalogue})
    encoder = SettingsEncoder(settings)
    basis = Basis(table, 0.0, 0.0, np.zeros(3), *encoder.widths)
    mean = np.zeros(basis.width)
    mean[basis.blocks["trainers"]] = 1.0 - TRAINERS_SLOPE
    guess = COMPUTE_SLOPE * table.log_specs[:, 0] + BANDWIDTH_SLOPE * table.log_specs[:, 1]
    mean[basis.blocks["hardware"]] = np.log(np.where(table.log_specs[:, 0] < np.log(500.0), SLOW, FAST)) - guess
    covariance = np.zeros((basis.width, basis.width))
    covariance[0, 0] = 1.0
    anything = ModelType(served(mean), np.zeros((basis.width, 1)), np.zeros(sum(encoder.widths)))
    weights = np.array([1.0 if name == "constant" else 0.0 for name in FAMILY_TERMS])
    return Layered(
        basis,
        catalogue.canonical,
        encoder,
        0.0,
        covariance,
        anything,
        dict.fromkeys(model_types, anything),
        weights,
        RepeatNoise(NOISE, NOISE, 0.0),
        np.array(widths),
    )


def small_files(**changes: Any) -> dict[str, bytes]:
    """The files of `small_model`."""
    return to_files(small_model(**changes))


def small_manifest(model: Layered | None = None, **changes: Any) -> Manifest:
    """A manifest of the default project, of this release's catalogue and family rules."""
    model = small_model() if model is None else model
    manifest = Manifest(
        format=FORMAT,
        library_version="0.1.0",
        created_at=CREATED_AT,
        project="leap",
        history_schema=SCHEMA_VERSION,
        family_rule=DEFAULT_RULES.version,
        model="layered",
        features=model.features,
        categories={name: tuple(values) for name, values in model.categories.items()},
        views=history_views(),
        backoff=backoff_views(),
        hardware=hardware_entries(CATALOGUE),
        training=TrainingWindow(1, 0, CREATED_AT, CREATED_AT, None),
        files={},
    )
    return msgspec.structs.replace(manifest, **changes)


def publish_small_bundle(
    bundles: Path, *, model: Layered | None = None, files: Mapping[str, bytes] | None = None, **changes: Any
) -> str:
    """Publish `model`, by default `small_model`, as a bundle; return its id."""
    model = small_model() if model is None else model
    return publish(bundles, small_manifest(model, **changes), to_files(model) if files is None else files)

"""Fits the layered model: cells, variances, posterior, and the widths of its intervals.

The model itself, as the launcher runs it, is `leap_predictor.models.layered`; each step has a module of its own:

1. `cells`: rows that repeat a cell become one, with their mean;
2. `variances`: how much model types, hardware, families and runs differ, by marginal likelihood on a sample;
3. `posterior`: what the cells say of every model type's coefficients, exactly, in two layers;
4. `conformal`: how wide the intervals must be, from fits on earlier rows that predict later ones.

Nothing is drawn at random: the same rows give the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import CONFIG_PREFIX, Columns, numbers
from leap_features.hardware import CATALOGUE, Catalogue
from leap_predictor.bundle import specifications_of
from leap_predictor.manifest import ModelName
from leap_predictor.models.basis import Basis, Floats, HardwareTable
from leap_predictor.models.layered import Estimate, Layered
from leap_predictor.models.layered_files import to_files
from leap_predictor.models.served_model import NORMAL, ServedModel
from leap_predictor.models.settings_columns import Setting, SettingsEncoder, signed_logarithm
from leap_training import conformal, variances
from leap_training.cells import Cells, cells_of
from leap_training.feature_set import feature_set, objection_to_config_key
from leap_training.model import NothingToFit, Predictions
from leap_training.posterior import posterior
from leap_training.repeats import repeat_noise
from leap_training.training_set import TrainingSet
from leap_training.variances import Variances

MIN_SHARE: Final = 0.5
"""A number of the architecture must be in so many of the rows: where it is missing, it counts as its mean."""


class ConfigKeyError(ValueError):
    """A configuration key that cannot be a feature; the message says why."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model beside what it was made of."""

    name: ClassVar[ModelName] = "layered"

    model: Layered
    """As the launcher will run it."""
    variances: Variances
    cells: int

    @property
    def settings(self) -> dict[str, float | str]:
        """The variances by name, as a bundle's manifest holds them."""
        layers = {"shared": self.variances.shared, "by_type": self.variances.by_type, "family": self.variances.family}
        plain: dict[str, float | str] = {
            f"{layer}_{name}": value for layer, values in layers.items() for name, value in values.items()
        }
        return {**plain, "noise": self.variances.noise, "cells": float(self.cells)}

    @property
    def summary(self) -> str:
        """What was fitted, in a few words."""
        return f"{self.cells:,} cells of {len(self.model.model_types):,} model types"

    def files(self) -> dict[str, bytes]:
        """The files of its bundle, by name."""
        return to_files(self.model)

    def difference(self, served: ServedModel, sample: TrainingSet) -> str | None:
        """Where `served` estimates a row of `sample` otherwise, in any bit; None: nowhere."""
        columns = with_settings(sample, self.model.encoder)
        wanted, got = self.model.estimate(columns), served.estimate(columns)
        for name in ("log_throughput", "log_low", "log_high"):
            differs = getattr(got, name) != getattr(wanted, name)
            if differs.any():
                row = int(np.argmax(differs))
                return (
                    f"{name} {getattr(got, name)[row]!r} instead of {getattr(wanted, name)[row]!r} on sample row {row}"
                )
        return None

    def estimate(self, rows: TrainingSet) -> Estimate:
        """The live estimate of every row."""
        return self.model.estimate(with_settings(rows, self.model.encoder))

    def predict(self, rows: TrainingSet) -> Predictions:
        """As the judge asks."""
        found = self.estimate(rows)
        return Predictions(found.log_throughput, found.log_low, found.log_high, found.level)


@dataclass(frozen=True)
class LayeredRecipe:
    """How the shipped model is fitted."""

    config_keys: tuple[str, ...] = ()

    def fit(self, rows: TrainingSet, catalogue: Catalogue = CATALOGUE) -> Fitted:
        """As `fit`."""
        return fit(rows, catalogue, config_keys=self.config_keys)


def fit(rows: TrainingSet, catalogue: Catalogue, *, config_keys: Sequence[str] = (), intervals: bool = True) -> Fitted:
    """Fit on `rows`.

    Args:
        rows: the attempts.
        catalogue: finds the specifications of hardware.
        config_keys: keys of the job's configuration that take part, none by default. History does not say under which
            configuration it was measured: a family's runs are taken to have had the one that is asked about.
        intervals: measure how wide the intervals must be; without, they are those of a normal distribution.

    Raises:
        NothingToFit: there are no rows.
        ConfigKeyError: a configuration key cannot be a feature.
    """
    if not len(rows):
        raise NothingToFit("the training set has no row in this window: widen it, or see what `leap dataset` left out")
    encoder = _encoder(rows, tuple(dict.fromkeys(config_keys)), catalogue)
    table = hardware_table(rows, catalogue)
    basis, cells = _basis(rows, table, encoder, catalogue)
    chosen = variances.choose(basis, cells)

    noise = repeat_noise(rows, chosen.noise)

    def made(basis: Basis, cells: Cells, widths: Floats) -> Layered:
        found = posterior(basis, cells, chosen)
        return Layered(
            basis,
            catalogue.canonical,
            encoder,
            found.intercept,
            found.covariance,
            found.never_seen,
            found.model_types,
            chosen.family_weights,
            noise,
            widths,
        )

    plain = np.full(conformal.LEVELS, NORMAL)

    def predicted(earlier: TrainingSet, later: TrainingSet) -> Estimate:
        return made(*_basis(earlier, table, encoder, catalogue), plain).estimate(with_settings(later, encoder))

    widths = conformal.widths(rows, predicted) if intervals else plain
    return Fitted(made(basis, cells, widths), chosen, len(cells))


def with_settings(rows: TrainingSet, encoder: SettingsEncoder) -> Columns:
    """The columns of `rows`, with those that `encoder` asks for."""
    config = [setting.column.removeprefix(CONFIG_PREFIX) for setting in encoder.configuration]
    architecture = [setting.column.partition("__")[2] for setting in encoder.architecture]
    columns = dict(rows.with_config(config))
    return {**columns, **rows.with_architecture(architecture)} if architecture else columns


def _basis(
    rows: TrainingSet, table: HardwareTable, encoder: SettingsEncoder, catalogue: Catalogue
) -> tuple[Basis, Cells]:
    hardware = table.codes(rows.columns["hardware_type"], catalogue.canonical)
    cells = cells_of(rows, hardware, encoder.encode(with_settings(rows, encoder)))
    known_batch = cells.log_batch[~np.isnan(cells.log_batch)]
    basis = Basis(
        table,
        float(cells.log_trainers.mean()),
        float(known_batch.mean()) if len(known_batch) else 0.0,
        table.log_specs[np.unique(hardware)].mean(axis=0),
        *encoder.widths,
    )
    return basis, cells


def hardware_table(rows: TrainingSet, catalogue: Catalogue) -> HardwareTable:
    """Every type of the catalogue, and those that were run on."""
    specifications = specifications_of(catalogue)
    names = [*catalogue, *sorted(set(map(str, rows.columns["hardware_type"].tolist())))]
    different = dict.fromkeys(catalogue.canonical(name) or name for name in names)
    return HardwareTable.of({name: specifications(name) or {} for name in different})


def _encoder(rows: TrainingSet, config_keys: tuple[str, ...], catalogue: Catalogue) -> SettingsEncoder:
    for key in config_keys:
        if (objection := objection_to_config_key(rows, key)) is not None:
            raise ConfigKeyError(objection)
    found = feature_set(rows, ("configuration", "architecture"), config_keys=config_keys, catalogue=catalogue)
    columns = found.columns(rows)
    configuration = tuple(
        Setting(CONFIG_PREFIX + key, tuple(found.categories[CONFIG_PREFIX + key]))
        if CONFIG_PREFIX + key in found.categories
        else _number(CONFIG_PREFIX + key, columns[CONFIG_PREFIX + key])
        for key in config_keys
    )
    architecture = tuple(
        _number(name, columns[name])
        for name in found.names
        if name.startswith("architecture__") and np.isfinite(numbers(columns, name)).mean() >= MIN_SHARE
    )
    return SettingsEncoder(configuration, architecture)


def _number(name: str, values: NDArray[Any]) -> Setting:
    logarithms = signed_logarithm(values)
    known = logarithms[np.isfinite(logarithms)]
    return Setting(name, centre=float(known.mean()), scale=float(known.std()) or 1.0)

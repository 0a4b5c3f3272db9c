"""What the layered model is compared with: other scaling models f, corrected by one run alone.

The estimate is f(x) + last − f(x_last), with the latest run of the first level that has one; without history f(x).

- scale: f = 0.9 · ln trainers, and nothing else; without history the mean of the training rows;
- ridge: linear in ln trainers, ln batch size and ln specifications, with intercept and slopes by model type;
- trees: boosted trees (pinball loss) on the same inputs and readers per trainer, monotone in peak, bandwidth and scale;
- gaussian: the layered model's own f, so that what its conditioning on all runs is worth can be seen;
- donor: ridge, corrected by the nearest run of the model type, be it of history or of training.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.backoff import at_latest_conditions, backoff
from leap_features.columns import SPECS_PREFIX, Columns, as_launched, logarithm, numbers
from leap_features.hardware import SPECS, Catalogue
from leap_features.row import Categories, feature_row
from leap_predictor.bundle import specifications_of
from leap_predictor.models.basis import TRAINERS_SLOPE, Floats, HardwareTable, Ints
from leap_predictor.models.points import OWN, points_of
from leap_predictor.models.trees import Trees
from leap_training.cells import Cells, cells_of
from leap_training.conversion import trees_of
from leap_training.layered import Fitted as LayeredFitted
from leap_training.layered import fit, hardware_table
from leap_training.model import NothingToFit, Predictions
from leap_training.training_set import TrainingSet

Scaling = Callable[[Columns], Floats]
"""f: ln throughput of every row, by its conditions alone."""


@dataclass(frozen=True, eq=False)
class Corrected:
    """f, corrected by the latest run of the first level that has one."""

    scaling: Scaling
    catalogue: Catalogue

    def predict(self, rows: TrainingSet) -> Predictions:
        """As the judge asks."""
        specifications = specifications_of(self.catalogue)
        columns = as_launched(rows.columns, specifications)
        found = backoff(columns)
        now = self.scaling(columns)
        then = self.scaling(at_latest_conditions(columns, found, specifications, SPECS))
        return Predictions(np.where(found.level >= 0, now + found.last - then, now), level=found.level)


def scale(rows: TrainingSet, catalogue: Catalogue) -> Corrected:
    """Normalisation by scale alone."""
    _require(rows)
    typical = float(np.median(rows.log_throughput - TRAINERS_SLOPE * _log_trainers(rows.columns)))
    return Corrected(lambda columns: typical + TRAINERS_SLOPE * _log_trainers(columns), catalogue)


def ridge(rows: TrainingSet, catalogue: Catalogue) -> Corrected:
    """Ridge regression with slopes by model type."""
    return Corrected(_Ridge.of(rows, catalogue), catalogue)


def trees(rows: TrainingSet, catalogue: Catalogue) -> Corrected:
    """Boosted trees."""
    return Corrected(_BoostedScaling.of(rows, catalogue), catalogue)


def gaussian(rows: TrainingSet, catalogue: Catalogue) -> Corrected:
    """The layered model's f."""
    fitted = fit(rows, catalogue, intervals=False)
    return Corrected(lambda columns: fitted.model.estimate(_without_settings(columns, fitted)).uncorrected, catalogue)


@dataclass(frozen=True)
class CorrectedRecipe:
    """One of the functions above as the judge asks for it."""

    how: Callable[[TrainingSet, Catalogue], Any]

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> Any:
        """Fit on `rows`.

        Raises:
            NothingToFit: there are no rows.
        """
        return self.how(rows, catalogue)


def _require(rows: TrainingSet) -> None:
    if not len(rows):
        raise NothingToFit("the training set has no row in this window")


def _log_trainers(columns: Columns) -> Floats:
    return logarithm(numbers(columns, "trainer_count"))


def _without_settings(columns: Columns, fitted: LayeredFitted) -> Columns:
    """`columns` with missing values for the settings, which a comparison of f alone leaves out."""
    missing = np.full(len(columns["model_type"]), np.nan)
    return {**dict.fromkeys(fitted.model.encoder.names, missing), **columns}


@dataclass(frozen=True, eq=False)
class _Ridge:
    """Coefficients of [1, ln trainers, ln batch, ln specifications]: what all model types share, and each one's own."""

    table: HardwareTable
    catalogue: Catalogue
    centres: Floats
    shared: Floats
    own: dict[str, Floats]

    # Of a model type's own coefficients, in cells; a hundredth of it for the shared ones.
    PENALTY: ClassVar[Floats] = np.array([0.001, 1.0, 1.0, 2.0, 2.0, 2.0])

    @classmethod
    def of(cls, rows: TrainingSet, catalogue: Catalogue) -> _Ridge:
        _require(rows)
        table = hardware_table(rows, catalogue)
        names = rows.columns["model_type"]
        inputs = _inputs(table, *_conditions(rows.columns, table, catalogue))
        known = np.isfinite(inputs[:, 1:])  # of a column that is missing everywhere, the mean is any number
        centres = np.append(0.0, np.where(known, inputs[:, 1:], 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
        inputs = np.nan_to_num(inputs - centres)
        weights = cell_weights(rows.columns)
        target = rows.log_throughput - TRAINERS_SLOPE * inputs[:, 1]
        shared = np.zeros(len(centres))
        own: dict[str, Floats] = {}
        for _ in range(5):  # backfitting: shared coefficients and own ones in turn
            shared = _solved(inputs, weights, target - _own(inputs, names, own), cls.PENALTY / 100.0)
            rest = target - inputs @ shared
            for name in sorted(set(names.tolist())):
                at = names == name
                own[name] = _solved(inputs[at], weights[at], rest[at], cls.PENALTY)
        slope = np.eye(len(centres))[1] * TRAINERS_SLOPE
        return cls(table, catalogue, centres, shared + slope, own)

    def at(self, names: NDArray[Any], hardware: Ints, log_trainers: Floats, log_batch: Floats) -> Floats:
        """ln throughput of model types under conditions; all of one length."""
        inputs = np.nan_to_num(_inputs(self.table, hardware, log_trainers, log_batch) - self.centres)
        result: Floats = inputs @ self.shared + _own(inputs, names, self.own)
        return result

    def __call__(self, columns: Columns) -> Floats:
        return self.at(columns["model_type"], *_conditions(columns, self.table, self.catalogue))


def _conditions(columns: Columns, table: HardwareTable, catalogue: Catalogue) -> tuple[Ints, Floats, Floats]:
    hardware = table.codes(columns["hardware_type"], catalogue.canonical)
    return hardware, _log_trainers(columns), logarithm(numbers(columns, "batch_size"))


def _inputs(table: HardwareTable, hardware: Ints, log_trainers: Floats, log_batch: Floats) -> Floats:
    return np.column_stack([np.ones(len(hardware)), log_trainers, log_batch, table.log_specs[hardware]])


def _own(inputs: Floats, names: NDArray[Any], own: dict[str, Floats]) -> Floats:
    """What each row's model type adds of its own; 0 for one that is not known."""
    result = np.zeros(len(inputs))
    for name, coefficients in own.items():
        at = names == name
        result[at] = inputs[at] @ coefficients
    return result


def _solved(inputs: Floats, weights: Floats, target: Floats, penalty: Floats) -> Floats:
    weighted = inputs * weights[:, None]
    return np.linalg.solve(weighted.T @ inputs + np.diag(penalty), weighted.T @ target).astype(np.float64, copy=False)


def cell_weights(columns: Columns) -> Floats:
    """1 ÷ number of rows in the same cell (job family, hardware, trainers, batch size): a cell weighs 1 in all."""
    names = ("job_family", "hardware_type", "trainer_count", "batch_size")
    cells = pd.DataFrame({name: columns[name] for name in names})
    sizes = cells.groupby(list(names), sort=False, dropna=False)["job_family"].transform("size")
    return 1.0 / sizes.to_numpy(dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _BoostedScaling:
    """Trees of ln throughput per trainer."""

    trees: Trees
    categories: Categories

    FEATURES: ClassVar = (
        *("model_type", "log_trainers", "log_batch", "readers_per_trainer"),
        *(SPECS_PREFIX + name for name in SPECS),
    )
    RISES_WITH: ClassVar = frozenset(
        SPECS_PREFIX + name for name in ("dense_bf16_or_fp16_tflops", "memory_bandwidth_gbs")
    )
    ROUNDS: ClassVar = 300
    DEPTH: ClassVar = 4
    # On few rows threads wait for one another more than they work.
    ROWS_PER_THREAD: ClassVar = 20_000

    @classmethod
    def of(cls, rows: TrainingSet, catalogue: Catalogue) -> _BoostedScaling:
        import xgboost  # noqa: PLC0415  # slow to import, and only this comparison needs it

        _require(rows)
        columns = as_launched(rows.columns, specifications_of(catalogue))
        categories = {"model_type": tuple(sorted(set(columns["model_type"].tolist())))}
        data = xgboost.QuantileDMatrix(
            feature_row(columns, cls.FEATURES, categories),
            rows.log_throughput - _log_trainers(columns),
            weight=cell_weights(columns),
            feature_names=list(cls.FEATURES),
            feature_types=["c" if name in categories else "q" for name in cls.FEATURES],
        )
        constraints = [1 if n in cls.RISES_WITH else -1 if n == "log_trainers" else 0 for n in cls.FEATURES]
        parameters = {
            "objective": "reg:quantileerror",
            "quantile_alpha": 0.5,
            "tree_method": "hist",
            "nthread": max(1, min(len(rows) // cls.ROWS_PER_THREAD, os.cpu_count() or 1)),
            "max_depth": cls.DEPTH,
            "learning_rate": 0.1,
            "monotone_constraints": f"({','.join(map(str, constraints))})",
        }
        return cls(trees_of(xgboost.train(parameters, data, cls.ROUNDS)), categories)

    def __call__(self, columns: Columns) -> Floats:
        rows = feature_row(columns, self.FEATURES, self.categories)
        return self.trees.predict(rows) + _log_trainers(columns)


@dataclass(frozen=True, eq=False)
class _Donor:
    """Ridge, corrected by the nearest run of the model type, of history or of training."""

    ridge: _Ridge
    cells: dict[str, Cells]
    """Those of training, by model type."""

    # Distances are in units of ln trainers: ln batch size counts half, each ln specification whole.
    OTHER_FAMILY: ClassVar[float] = 0.5
    OTHER_HARDWARE: ClassVar[float] = 0.25

    def predict(self, rows: TrainingSet) -> Predictions:
        """As the judge asks."""
        points = points_of(rows.columns, self.ridge.table, self.ridge.catalogue.canonical)
        result = self.ridge(rows.columns)
        names, families = rows.columns["model_type"], rows.columns["job_family"]
        for at in range(len(rows)):
            asked = (points.hardware[at, 0], points.log_trainers[at, 0], points.log_batch[at, 0])
            known = np.flatnonzero(points.known[at])
            donors = [(points.hardware[at, known], points.log_trainers[at, known], points.log_batch[at, known])]
            own, value = [OWN[known]], [points.value[at, known]]
            cells = self.cells.get(names[at])
            if cells is not None:
                donors.append((cells.hardware, cells.log_trainers, cells.log_batch))
                own.append(np.array([name == families[at] for name in cells.families])[cells.family])
                value.append(cells.value)
            together = [np.concatenate(parts) for parts in zip(*donors, strict=True)]
            if not len(together[0]):
                continue
            nearest = int(np.argmin(self._distances(asked, together, np.concatenate(own))))
            conditions = [part[nearest : nearest + 1] for part in together]
            result[at] += np.concatenate(value)[nearest] - self.ridge.at(names[at : at + 1], *conditions)[0]
        return Predictions(result, level=points.level)

    def _distances(self, asked: tuple[Any, Any, Any], donors: list[NDArray[Any]], own: NDArray[np.bool_]) -> Floats:
        specs = self.ridge.table.log_specs
        batch = np.nan_to_num(np.abs(donors[2] - asked[2]))
        apart = np.abs(donors[1] - asked[1]) + batch / 2.0 + np.abs(specs[donors[0]] - specs[asked[0]]).sum(axis=1)
        result: Floats = apart + self.OTHER_HARDWARE * (donors[0] != asked[0]) + self.OTHER_FAMILY * ~own
        return result


def donor(rows: TrainingSet, catalogue: Catalogue) -> _Donor:
    """Ridge, corrected by the nearest of all runs."""
    found = _Ridge.of(rows, catalogue)
    hardware = found.table.codes(rows.columns["hardware_type"], catalogue.canonical)
    cells = cells_of(rows, hardware, np.zeros((len(rows), 0)))
    return _Donor(found, {name: cells.where(cells.model_type == code) for code, name in enumerate(cells.model_types)})

"""Nearest configurations as a baseline: what the most similar ones of the same model type reached per trainer.

A configuration is a hardware type, a number of trainers and a batch size; its value is the median log throughput per
trainer of its training rows. Distance is Euclidean in natural logarithms of trainers, batch size per trainer, and what
is published of the hardware; so a doubling counts the same in each. The nearest ones are averaged, weighted by
1 ÷ distance, and the trainers asked about multiply the result. A model type that no training row has gets no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_features.row import feature_row
from leap_predictor.bundle import specifications_of
from leap_training.feature_set import FeatureSet
from leap_training.model import NothingToFit, Predictions
from leap_training.training_set import TrainingSet

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

COORDINATES: Final = ("log_trainers", "log_batch", "log_peak_tflops", "log_memory_bandwidth_gbs", "log_memory_gib")

NEIGHBOURS: Final = 3

NEAR: Final = 0.05
"""Added to a distance before it divides: nearer than 5 % is as good as the same."""


@dataclass(frozen=True, eq=False)
class Configurations:
    """The configurations of one model type."""

    tree: cKDTree
    per_trainer: NDArray[np.float64]
    """Log throughput per trainer of each configuration of `tree`."""

    def answers(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted mean of the nearest configurations' values."""
        count = min(NEIGHBOURS, len(self.per_trainer))
        distances, nearest = self.tree.query(places, k=np.arange(1, count + 1))
        weights = 1.0 / (distances + NEAR)
        result: NDArray[np.float64] = (weights * self.per_trainer[nearest]).sum(axis=1) / weights.sum(axis=1)
        return result


@dataclass(frozen=True, eq=False)
class NeighboursModel:
    """Configurations by model type."""

    coordinates: FeatureSet
    centre: NDArray[np.float64]
    """Mean of every coordinate in training, which stands in where one is missing."""
    configurations: dict[str, Configurations]

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row of a known model type."""
        places, log_trainers = _places(self.coordinates, rows)
        places = np.where(np.isnan(places), self.centre, places)
        result = np.full(len(rows), np.nan)
        model_types = rows.columns["model_type"]
        for model_type in dict.fromkeys(model_types.tolist()):
            known = self.configurations.get(model_type)
            if known is not None:
                chosen = model_types == model_type
                result[chosen] = known.answers(places[chosen]) + log_trainers[chosen]
        return Predictions(result)


@dataclass(frozen=True)
class Neighbours:
    """How configurations are gathered."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> NeighboursModel:
        """Gather the configurations of `rows`.

        Raises:
            NothingToFit: there are no rows.
        """
        from scipy.spatial import cKDTree  # noqa: PLC0415  # a registry of models must not cost what its models cost

        if not len(rows):
            raise NothingToFit(
                "the training set has no row in this window: widen it, or see what `leap dataset` left out"
            )
        coordinates = FeatureSet(COORDINATES, {}, specifications_of(catalogue))
        places, log_trainers = _places(coordinates, rows)
        known = ~np.isnan(places)
        centre = np.where(known, places, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        frame = pd.DataFrame(np.where(known, places, centre), columns=list(COORDINATES))
        frame = frame.assign(model_type=rows.columns["model_type"], per_trainer=rows.log_throughput - log_trainers)
        cells = frame.groupby(["model_type", *COORDINATES], sort=True)["per_trainer"].median().reset_index()
        configurations = {
            str(model_type): Configurations(
                cKDTree(group[list(COORDINATES)].to_numpy()), group["per_trainer"].to_numpy(dtype=np.float64)
            )
            for model_type, group in cells.groupby("model_type", sort=False)
        }
        return NeighboursModel(coordinates, centre, configurations)


def _places(coordinates: FeatureSet, rows: TrainingSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where every row lies, NaN where unknown, and the logarithm of its trainers."""
    columns = coordinates.columns(rows)
    found = feature_row(columns, coordinates.names, coordinates.categories, coordinates.specifications)
    places = found.astype(np.float64)
    return places, places[:, COORDINATES.index("log_trainers")]

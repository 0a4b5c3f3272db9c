"""A small cascade made by hand, and its bundle, for tests that need a launcher but no fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from numpy.typing import NDArray

from layered_oracle import Attempt, columns_of
from leap_features.columns import specification_columns
from leap_features.hardware import CATALOGUE, SPECS
from leap_predictor.bundle import publish, specifications_of
from leap_predictor.models.cascade import Cascade, HalfWidths
from leap_predictor.models.cascade_files import to_files
from small_bundle import small_manifest
from small_trees import forest

FEATURES = ("model_type", "log_dense_bf16_or_fp16_tflops", "family_history__last")
CATEGORIES = {"model_type": ("bert", "dlrm")}

SLOW, FAST, KNOWN = 2.0, 3.0, 5.0
"""ln throughput on hardware below 500 dense TFLOPS and above, of jobs without history; of jobs with history."""

HALF_WIDTHS = HalfWidths(with_history=0.1, without_history=0.7)


def small_cascade(**changes: Any) -> Cascade:
    """Two regressors: of jobs without history, by peak, and of those with some, which is what the classifier tells."""
    given: dict[str, Any] = {
        "features": FEATURES,
        "categories": CATEGORIES,
        "specifications": specifications_of(CATALOGUE),
        "regressors": forest(
            roots=[[0, 1]],
            feature=[1, 0, 0, 0],
            threshold=[6.2146, 0.0, 0.0, 0.0],
            left=[2, 1, 2, 3],
            value=[0.0, 4.5, 2.0, 3.0],
            base=[0.0, 0.5],
            feature_count=3,
        ),
        "classifier": forest(
            roots=[[0, 1]],
            feature=[2, 0, 0, 0],
            threshold=[0.0, 0.0, 0.0, 0.0],
            left=[2, 1, 2, 3],
            # Missing history is sent left, and so below every history: the first regressor's.
            value=[0.0, 0.0, 1.0, -1.0],
            base=[0.0, 0.0],
            feature_count=3,
        ),
        "half_widths": HALF_WIDTHS,
    }
    return Cascade(**given | changes)


def single_regressor() -> Cascade:
    """A cascade of one regressor."""
    return small_cascade(regressors=forest(value=[2.5], feature_count=3), classifier=None)


def publish_small_cascade(bundles: Path, cascade: Cascade | None = None, **changes: Any) -> str:
    """Publish `cascade`, by default `small_cascade`, as a bundle of `leap`; return its id."""
    cascade = small_cascade() if cascade is None else cascade
    named = {"model": "leap", "features": cascade.features, "categories": dict(cascade.categories)}
    return publish(bundles, msgspec.structs.replace(small_manifest(), **named | changes), to_files(cascade))


def launched(attempts: list[Attempt]) -> dict[str, NDArray[Any]]:
    """The columns of `attempts`, with the specifications that a launcher finds."""
    columns = columns_of(attempts)
    return {**columns, **specification_columns(columns["hardware_type"], specifications_of(CATALOGUE), SPECS)}

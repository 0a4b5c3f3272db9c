"""A small model bundle made by hand, for tests that need a launcher but no fit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from leap_features.family import DEFAULT_RULES
from leap_features.hardware import CATALOGUE
from leap_features.meta import SCHEMA_VERSION
from leap_predictor.bundle import TREES, publish
from leap_predictor.manifest import (
    FORMAT,
    Manifest,
    TrainingWindow,
    backoff_views,
    hardware_entries,
    history_views,
)
from leap_predictor.trees import Trees

CREATED_AT = datetime(2026, 3, 1, 4, tzinfo=UTC)
PEAK = "hardware_specs__dense_bf16_or_fp16_tflops"


def stump(threshold: float, below: float, above: float) -> Trees:
    """One tree of one split on one feature; a missing value counts as below."""
    return forest(
        feature=[0, 0, 0],
        threshold=[threshold, np.inf, np.inf],
        children=[1, 2, 1, 1, 2, 2],
        value=[0.0, below, above],
    )


def forest(**changes: Any) -> Trees:
    """Trees from plain lists; by default one leaf of value 0 over one feature."""
    nodes = len(changes.get("feature", [0]))
    plain: dict[str, Any] = {
        "roots": [0],
        "feature": [0],
        "threshold": [np.inf],
        "default_right": [False] * nodes,
        "children": [0, 0],
        "value": [0.0],
        "category_start": [0] * nodes,
        "category_count": [0] * nodes,
        "category_right": [],
        "base": 0.0,
        "feature_count": 1,
    } | changes
    kinds = {
        "roots": np.int32,
        "feature": np.int32,
        "threshold": np.float32,
        "default_right": np.bool_,
        "children": np.int32,
        "value": np.float32,
        "category_start": np.int32,
        "category_count": np.int32,
        "category_right": np.bool_,
    }
    return Trees(**{name: np.array(value, kinds[name]) if name in kinds else value for name, value in plain.items()})


def small_manifest(**changes: Any) -> Manifest:
    """A manifest of the default project, of this release's catalogue and family rules."""
    manifest = Manifest(
        format=FORMAT,
        library_version="0.1.0",
        created_at=CREATED_AT,
        project="leap",
        history_schema=SCHEMA_VERSION,
        family_rule=DEFAULT_RULES.version,
        model="layered",
        features=(PEAK,),
        categories={},
        views=history_views(),
        backoff=backoff_views(),
        hardware=hardware_entries(CATALOGUE),
        training=TrainingWindow(1, 0, CREATED_AT, CREATED_AT, None),
        files={},
    )
    return msgspec.structs.replace(manifest, **changes)


def publish_small_bundle(
    bundles: Path, *, trees: Trees | None = None, files: Mapping[str, bytes] | None = None, **changes: Any
) -> str:
    """Publish a bundle whose f is ln 10 per trainer below 500 dense TFLOPS and ln 20 above; return its id."""
    trees = stump(500.0, float(np.log(10.0)), float(np.log(20.0))) if trees is None else trees
    return publish(bundles, small_manifest(**changes), {TREES: trees.to_bytes()} if files is None else files)

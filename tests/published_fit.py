"""A fitted model, published as `leap train` publishes it but for what a test wants otherwise."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leap_features.family import DEFAULT_RULES
from leap_features.hardware import CATALOGUE
from leap_training.publish import Publishable, publish_model
from leap_training.training_set import TrainingSet

PUBLISHED_AT = datetime(2026, 3, 1, tzinfo=UTC)


def publish_fit(fitted: Publishable, rows: TrainingSet, bundles: Path, **changes: Any) -> str:
    """Publish `fitted`, which was fitted on `rows`, in `bundles`; return the bundle's id."""
    plain: dict[str, Any] = {
        "catalogue": CATALOGUE,
        "project": "leap",
        "family_rule": DEFAULT_RULES.version,
        "family_rules": "",
        "before": None,
        "set_aside": 0,
        "metrics": {},
        "now": PUBLISHED_AT,
    }
    return publish_model(fitted, rows, bundles, **(plain | changes))

"""Scores a fit on the latest rows before the published model takes them in, so that a bundle says how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from leap_features.hardware import Catalogue
from leap_training.evaluate import Evaluation, judge
from leap_training.layered import fit
from leap_training.training_set import TrainingSet

HOLDOUT_SHARE: Final = 0.2
"""Share of the rows, the latest recorded, that a first fit is scored on."""

MIN_HOLDOUT_ROWS: Final = 50
"""Accuracy of fewer rows says nothing."""


def held_out(rows: TrainingSet, catalogue: Catalogue, config_keys: Sequence[str]) -> Evaluation | None:
    """Score a fit without the latest rows on those rows; None where there are too few."""
    if not len(rows):
        return None
    cut = int(np.quantile(rows.recorded_at_us, 1 - HOLDOUT_SHARE, method="lower"))
    later = rows.where(rows.submitted_at_us >= cut)
    earlier = rows.where(rows.recorded_at_us < cut)
    if len(later) < MIN_HOLDOUT_ROWS or not len(earlier):
        return None
    return judge(fit(earlier, catalogue, config_keys=config_keys), len(earlier), later)


def metrics(evaluation: Evaluation) -> dict[str, float]:
    """`evaluation` as a bundle's manifest holds it."""
    return {
        f"held_out_{of}_{method}_{name}": float(value)
        for of, judgement in (("all", evaluation.scored), ("first_runs", evaluation.first_runs))
        for method, result in (("model", judgement.model), ("backoff_last", judgement.backoff_last))
        for name, value in msgspec.structs.asdict(result).items()
        if value is not None
    }

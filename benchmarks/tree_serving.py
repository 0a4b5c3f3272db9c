"""How long do trees take in a launcher, for 22 candidates of one job: in numpy, and by XGBoost itself?

Fits the single regressor (300 trees of depth 10) and the paper's cascade on a training set, turns both into the plain
arrays that a bundle holds, and asks them about one job after another, each on 22 hardware types: from the same matrix
of features in numpy and by XGBoost's `inplace_predict` (on one thread), call by call in turn. Beside it the whole
estimate, from columns of history to intervals. The last line is one JSON object, times in milliseconds at the median.

    python benchmarks/tree_serving.py --data training.parquet     # a training set of your own (`leap dataset`)
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from layered_serving import synthetic

from leap_features.hardware import CATALOGUE
from leap_training.feature_models import FeatureModel
from leap_training.served_trees import FittedTrees, TreeModel, fit_trees
from leap_training.training_set import TrainingSet, read_training_set

CANDIDATES = 22
JOBS = 100
"""So many different ones, that no answer is in the processor's caches only because it was asked for before."""
ROUNDS = 10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="training set; by default one of a small synthetic fleet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = read_training_set(arguments.data or synthetic(Path(name))).rows
    jobs = [on_all_hardware(rows, at) for at in np.linspace(0, len(rows) - 1, JOBS).astype(int)]
    result: dict[str, object] = {"rows": len(rows), "candidates": CANDIDATES}
    for model, trees, boosters in (("xgboost", "trees", "xgboost"), ("leap", "cascade", "xgboost_cascade")):
        found = measured(fitted_on(rows, model), jobs)  # type: ignore[arg-type]
        result |= {
            f"{trees}_p50_ms": found["numpy"],
            f"{boosters}_p50_ms": found["xgboost"],
            f"{trees}_estimate_p50_ms": found["estimate"],
            f"{trees}_ratio": round(found["numpy"] / found["xgboost"], 3),
        }
    print(json.dumps(result))


def fitted_on(rows: TrainingSet, name: TreeModel) -> FittedTrees:
    """The model of this name, whose boosters predict on one thread."""
    began = time.monotonic()
    fitted = fit_trees(name, rows, CATALOGUE, intervals=False)
    print(f"{name}: {fitted.summary}, fitted in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for booster in boosters_of(fitted.fitted):
        booster.set_param({"nthread": 1})
    return fitted


def boosters_of(fitted: FeatureModel) -> Sequence[Any]:
    """All boosters of a fit."""
    estimator: Any = fitted.estimator
    return [estimator.booster] if hasattr(estimator, "booster") else [*estimator.regressors, estimator.classifier]


def on_all_hardware(rows: TrainingSet, at: int) -> TrainingSet:
    """One attempt as if on the first hardware types of the catalogue, with the family's history that it had."""
    one = rows.where(np.full(CANDIDATES, at))
    return replace(one, columns={**one.columns, "hardware_type": np.array(list(CATALOGUE)[:CANDIDATES], dtype=object)})


def measured(fitted: FittedTrees, jobs: Sequence[TrainingSet]) -> Mapping[str, float]:
    """Medians of a call, by what is called."""
    model = fitted.model
    columns = [fitted.fitted.features.columns(job) for job in jobs]
    matrices = [model.matrix(each) for each in columns]
    calls: dict[str, Callable[[int], Any]] = {
        "numpy": lambda at: model.regressors.predict(matrices[at], model.chosen(matrices[at])),
        "xgboost": lambda at: fitted.fitted.predict_matrix(matrices[at]),
        "estimate": lambda at: model.estimate(columns[at]).log_throughput,
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for at in range(len(jobs)):
            answers = {}
            for name, call in calls.items():
                start = time.perf_counter()
                answers[name] = call(at)
                taken[name].append(1e3 * (time.perf_counter() - start))
            if not (np.array_equal(answers["numpy"], answers["xgboost"])):
                raise SystemExit(f"numpy and XGBoost differ on job {at}")
    return {name: round(float(np.median(times)), 3) for name, times in taken.items()}


if __name__ == "__main__":
    main()

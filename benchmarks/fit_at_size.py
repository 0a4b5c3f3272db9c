"""How long does a nightly fit take at the paper's size, 750,000 attempts × 80 features, and how much memory?

Makes a synthetic fleet's training set (35 days of 25,000 attempts; `--data` takes one that is there), keeps 750,000
rows, and fits `leap`, the paper's cascade, on 80 features of them, and `layered`, the shipped model. Each fit has a
process of its own, so that its peak of memory is its own. The last line is one JSON object; `layered_share` is how much
of the time of `leap` `layered` takes.

    python benchmarks/fit_at_size.py --rows 100000 --days 5
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from leap_features.hardware import CATALOGUE
from leap_features.row import GROUPS
from leap_training.cascade import fit_cascade
from leap_training.feature_models import Sample, hide_categories
from leap_training.feature_set import FeatureSet, feature_set
from leap_training.layered import LayeredRecipe
from leap_training.training_set import TrainingSet, read_training_set

MODELS = ("leap", "layered")


def training_set(folder: Path, days: int, attempts_per_day: int) -> Path:
    """The training set of a synthetic fleet."""
    environment = os.environ | {
        "LEAP_ARCHIVE": str(folder / "archive"),
        "LEAP_HISTORY": str(folder / "history"),
        "LEAP_REDIS_URL": "redis://localhost:1/0",  # nothing listens there: no online store is needed
    }

    def leap(*command: object) -> None:
        print(f"$ leap {' '.join(map(str, command))}", file=sys.stderr, flush=True)
        program = [str(Path(sys.executable).with_name("leap")), *map(str, command)]
        subprocess.run(program, env=environment, stdout=sys.stderr, check=True)

    fleet = folder / "fleet"
    leap("fleet", "generate", "--out", fleet, "--days", days, "--attempts-per-day", attempts_per_day)
    leap("import", fleet / "completions.parquet")
    leap("dataset", "--out", folder / "training.parquet")
    return folder / "training.parquet"


def sample_of(rows: TrainingSet, features: int) -> Sample:
    """The first `features` of all there are: those of `leap`, and of the other levels of history."""
    known = feature_set(rows, tuple(GROUPS), catalogue=CATALOGUE)
    if len(known.names) < features:
        raise SystemExit(f"these rows have {len(known.names)} features, {features} are asked for")
    names = known.names[:features]
    categories = {name: values for name, values in known.categories.items() if name in names}
    chosen = FeatureSet(names, categories, known.specifications)
    sample = Sample(chosen.matrix(rows), chosen.types(), rows.log_throughput, rows.submitted_at_us)
    hide_categories(sample)
    return sample


def fitted(model: str, data: Path, count: int, features: int) -> dict[str, Any]:
    """Fit `model` in this process, and say what it took."""
    rows = read_training_set(data).rows
    if len(rows) < count:
        raise SystemExit(f"{data} has {len(rows):,} usable rows, {count:,} are asked for: give more --days")
    rows = rows.where(slice(0, count))
    began = time.monotonic()
    if model == "leap":
        sample = sample_of(rows, features)
        made = fit_cascade(sample)
        found: dict[str, Any] = {"shape": sample.matrix.shape, "regressors": len(made.regressors), "moved": made.moved}
    else:
        found = {"shape": (count,), "cells": LayeredRecipe().fit(rows).cells}
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found | {"seconds": round(seconds, 1), "cpu_seconds": round(time.process_time(), 1), "peak_mib": round(peak)}


def main() -> None:
    """Make the data, fit each model, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a training set of `leap dataset`; by default one is made")
    parser.add_argument("--days", type=int, default=35)
    parser.add_argument("--attempts-per-day", type=int, default=25_000)
    parser.add_argument("--rows", type=int, default=750_000)
    parser.add_argument("--features", type=int, default=80)
    parser.add_argument("--model", choices=MODELS, help="fit this one alone, and print its JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        data = arguments.data or training_set(Path(name), arguments.days, arguments.attempts_per_day)
        if arguments.model:
            print(json.dumps(fitted(arguments.model, data, arguments.rows, arguments.features)))
            return
        models: dict[str, Any] = {}
        for model in MODELS:
            print(f"fitting {model}", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--data", data, "--model", model]
            command += ["--rows", arguments.rows, "--features", arguments.features]
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # as the command `leap` has it
            done = subprocess.run(
                list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            models[model] = json.loads(done.stdout.splitlines()[-1])
            print(f"{model}: {models[model]}", file=sys.stderr, flush=True)
    share = models["layered"]["seconds"] / models["leap"]["seconds"]
    print(json.dumps({**models, "layered_share": round(share, 3)}))


if __name__ == "__main__":
    main()

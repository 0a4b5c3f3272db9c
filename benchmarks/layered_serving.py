"""How long does the model's part of a ranking take, for 1, 8 and 22 candidates of one job?

Fits the layered model on a made-up training set, then predicts one job's candidates again and again: from columns of
history to estimates with intervals. Beside it, in the same run: the back-off's last value from the same columns. The
last line is one JSON object, times in milliseconds.

    python benchmarks/layered_serving.py --data training.parquet     # a training set of your own (`leap dataset`)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from leap_features.backoff import backoff
from leap_features.hardware import CATALOGUE
from leap_training.layered import fit, with_settings
from leap_training.training_set import TrainingSet, read_training_set

REPEATS = 500
CANDIDATES = (1, 8, 22)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="training set; by default one of a small synthetic fleet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = read_training_set(arguments.data or synthetic(Path(name))).rows
    model = fit(rows, CATALOGUE, intervals=False).model
    columns = with_settings(latest_of_commonest(rows, max(CANDIDATES)), model.encoder)
    result: dict[str, object] = {"model_types": len(model.model_types), "columns_of_basis": model.basis.width}
    for count in CANDIDATES:
        part = {column: values[:count] for column, values in columns.items()}
        estimate = milliseconds(lambda part=part: model.estimate(part))
        result[f"candidates_{count}"] = {
            **estimate,
            "backoff_p50": milliseconds(lambda part=part: backoff(part))["p50"],
        }
    print(json.dumps(result))


def latest_of_commonest(rows: TrainingSet, count: int) -> TrainingSet:
    """The latest rows of the commonest model type: as many, and with as much history, as a job's candidates have."""
    names = rows.columns["model_type"].tolist()
    commonest = Counter(names).most_common(1)[0][0]
    return rows.where(np.array([at for at, name in enumerate(names) if name == commonest])[-count:])


def milliseconds(call: Callable[[], object]) -> dict[str, float]:
    """Median and 95th percentile of a call."""
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    return {"p50": round(float(np.median(taken)), 3), "p95": round(float(np.quantile(taken, 0.95)), 3)}


def synthetic(directory: Path) -> Path:
    """A training set of a small fleet, made by the commands that a team would run."""
    env = {
        "LEAP_ARCHIVE": str(directory / "archive"),
        "LEAP_HISTORY": str(directory / "history"),
        "LEAP_FEATURE_REPO": str(Path(__file__).resolve().parent.parent / "feature_repo"),
    }
    program = str(Path(sys.executable).with_name("leap"))
    for command in (
        ["fleet", "generate", "--days", "14", "--attempts-per-day", "2000", "--out", "fleet"],
        ["import", "fleet/completions.parquet"],
        ["dataset", "--out", "dataset.parquet"],
    ):
        print(f"$ leap {' '.join(command)}", file=sys.stderr, flush=True)
        subprocess.run([program, *command], env=env, cwd=directory, check=True, stdout=sys.stderr)
    return directory / "dataset.parquet"


if __name__ == "__main__":
    main()

"""How good are predictions of a whole MLPerf round that the model has never seen, history as of each run's submission?

Imports the runs of a table of MLPerf results (its columns: `docs/mappings/mlperf.toml`) into an archive of its own,
makes the training set through Feast, fits on what was recorded before the round's first submission, and predicts every
run from then on: the round, and whichever the table has after it. Beside it: the last value of the back-off. The last
line is one JSON object.

    python benchmarks/mlperf_round.py RUNS.csv --round v4.0
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Run the commands that a team would run, and print what `leap evaluate` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", type=Path, nargs="?", default=os.environ.get("LEAP_TEST_MLPERF"), help="CSV of MLPerf results"
    )
    parser.add_argument("--round", default="v4.0", help="the round to predict")
    arguments = parser.parse_args()
    if arguments.runs is None:
        print(json.dumps({"not_run": "it needs a CSV of MLPerf results: name it, or set LEAP_TEST_MLPERF"}))
        return
    with arguments.runs.open(newline="") as file:
        starts = [row["start_time"] for row in csv.DictReader(file) if row["round"] == arguments.round]
    if not starts:
        raise SystemExit(f"{arguments.runs} has no run of round {arguments.round}")
    first = f"{min(starts)}Z"
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        env = {n: v for n, v in os.environ.items() if not n.startswith("LEAP_")} | {
            "LEAP_ARCHIVE": str(directory / "archive"),
            "LEAP_HISTORY": str(directory / "history"),
            "LEAP_BUNDLES": str(directory / "bundles"),
            "LEAP_FEATURE_REPO": str(ROOT / "feature_repo"),
        }

        def leap(*command: str) -> str:
            print(f"$ leap {' '.join(command)}", file=sys.stderr, flush=True)
            program = [str(Path(sys.executable).with_name("leap")), *command]
            done = subprocess.run(program, env=env, cwd=directory, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"leap {command[0]} ended with {done.returncode}\n{done.stdout}")
            return done.stdout

        mapping = str(ROOT / "docs" / "mappings" / "mlperf.toml")
        print(leap("import", str(arguments.runs.resolve()), "--mapping", mapping), file=sys.stderr)
        leap("history", "build")
        print(leap("dataset", "--out", "runs.parquet"), file=sys.stderr)
        print(leap("train", "runs.parquet", "--before", first), file=sys.stderr)
        verdict = json.loads(leap("evaluate", "runs.parquet", "--from", first, "--json"))
    print(json.dumps({"round": arguments.round, "first_submission": first, **verdict}))


if __name__ == "__main__":
    main()

"""How good are predictions of whole MLPerf rounds that the models have never seen, history as of each run's submission?

Judges every model on a table of MLPerf results (its columns: `docs/mappings/mlperf.toml`) with `leap evaluate`, round
by round: fitted on what was recorded before a round's first submission, scored on the round, from v2.0 on. The table
goes to standard error; the last line is one JSON object. Shares are in percent.

    python benchmarks/mlperf_rounds.py RUNS.csv
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SLICES = ("all", "first_in_cell", "new_hardware_first", "new_family")
HISTORIES = ("live", "nightly", "frozen")
FIGURES = ("rows", "within20", "within10", "median_error")


def of_model(entry: dict[str, Any]) -> dict[str, Any]:
    """What is said of one model."""
    if "not_run" in entry:
        return entry
    return {
        history: {
            name: {
                each: value if (value := entry[history][name][each]) is None else round(value, 1) for each in FIGURES
            }
            for name in SLICES
        }
        for history in HISTORIES
    } | {"fit_seconds": entry["fit_seconds"]}


def main() -> None:
    """Run `leap evaluate`, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", type=Path, nargs="?", default=os.environ.get("LEAP_TEST_MLPERF"), help="CSV of MLPerf results"
    )
    parser.add_argument("--models", help="names, separated by commas; by default all")
    parser.add_argument("--out", type=Path, help="keep the judge's directory here, for `leap report`")
    arguments = parser.parse_args()
    if arguments.runs is None:
        print(json.dumps({"not_run": "it needs a CSV of MLPerf results: name it, or set LEAP_TEST_MLPERF"}))
        return
    mapping = ROOT / "docs" / "mappings" / "mlperf.toml"
    command = ["evaluate", "--data", str(arguments.runs), "--mapping", str(mapping), "--by", "round", "--json"]
    command += ["--models", arguments.models] if arguments.models else []
    command += ["--out", str(arguments.out)] if arguments.out else []
    print(f"$ leap {' '.join(command)}", file=sys.stderr, flush=True)
    env = {**os.environ, "LEAP_FEATURE_REPO": str(ROOT / "feature_repo")}
    began = time.monotonic()
    program = [str(Path(sys.executable).with_name("leap")), *command]
    done = subprocess.run(program, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"leap evaluate ended with {done.returncode}\n{done.stdout}")
    judged = json.loads(done.stdout)
    models = {name: of_model(entry) for name, entry in judged["models"].items()}
    print(f"{'within ±20 %, live':20}{'all':>8}{'first':>8}{'new hw':>8}{'family':>8}", file=sys.stderr)
    for name, found in models.items():
        shown = [found["live"][each]["within20"] if "live" in found else "not run" for each in SLICES]
        print(f"{name:20}{''.join(f'{value:>8}' for value in shown)}", file=sys.stderr)
    result = {
        "rounds": [window["name"] for window in judged["windows"]],
        "default": judged["default"],
        "models": models,
        "intervals": judged["intervals"].get(judged["default"]),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

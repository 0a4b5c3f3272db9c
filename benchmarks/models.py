"""How good is each model on a synthetic fleet like the paper's, night after night, and how far from the noise floor?

Generates a fleet (61 days of 2,500 attempts) and judges every model with `leap evaluate`: 30 windows of the 30 days
before a midnight (75,000 attempts) and the day after it. The table goes to standard error; the last line is one JSON
object. Shares are in percent; `below_floor` is what the truth's own expected throughput reaches beyond the model.

    python benchmarks/models.py --nights 3 --models layered,backoff_last
    python benchmarks/models.py --days 31 --attempts-per-day 25000 --nights 1     the paper's size
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SLICES = ("all", "first_in_cell", "new_family", "head", "tail")


def of_model(name: str, judged: dict[str, Any]) -> dict[str, Any]:
    """What is said of one model."""
    entry = judged["models"][name]
    if "not_run" in entry:
        return {"not_run": entry["not_run"]}
    live, floor = entry["live"], judged["noise_floor"]
    over = judged["over_windows"][name]["all"]
    result: dict[str, Any] = {
        "nights_median": over["median"],
        "nights_low": over["low"],
        "nights_high": over["high"],
        "within10": live["all"]["within10"],
        "median_error": live["all"]["median_error"],
        "by_device_hours": live["all"]["within20_device_hours"],
        "frozen": entry["frozen"]["all"]["within20"],
        "below_floor": floor["all"]["within20"] - live["all"]["within20"],
        "pairs_right": judged["pairs"][name]["right"],
        "value_lost": judged["regret"][name]["lost"],
        "fit_seconds": entry["fit_seconds"],
    }
    result |= {f"within20_{each}": live[each]["within20"] for each in SLICES}
    if name in judged["against_table"]:
        result["where_table_answers"] = judged["against_table"][name]["within20"]
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in result.items()}


def main() -> None:
    """Generate the fleet, judge the models, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=61)
    parser.add_argument("--attempts-per-day", type=int, default=2_500)
    parser.add_argument("--nights", type=int, default=30, help="the last so many days are scored")
    parser.add_argument("--models", help="names, separated by commas; by default all")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, help="keep the judge's directory here, for `leap report`")
    parser.add_argument(
        "--studies", action="store_true", help="also ablations, importance and hold-outs, of the last night"
    )
    arguments = parser.parse_args()

    def leap(*command: object) -> str:
        print(f"$ leap {' '.join(map(str, command))}", file=sys.stderr, flush=True)
        program = [str(Path(sys.executable).with_name("leap")), *map(str, command)]
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"leap {command[0]} ended with {done.returncode}\n{done.stdout}")
        return done.stdout

    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet"
        leap(
            "fleet", "generate", "--out", fleet, "--days", arguments.days,
            "--attempts-per-day", arguments.attempts_per_day, "--seed", arguments.seed,
        )  # fmt: skip
        options = ["--windows", arguments.nights, "--truth", fleet / "truth.parquet", "--costs", fleet / "fleet.json"]
        options += ["--models", arguments.models] if arguments.models else []
        options += ["--out", arguments.out] if arguments.out else []
        options += ["--ablations", "--importance", "--holdouts"] if arguments.studies else []
        began = time.monotonic()
        judged = json.loads(leap("evaluate", "--data", fleet / "completions.parquet", "--json", *options))
        seconds = time.monotonic() - began
    models = {name: of_model(name, judged) for name in judged["models"]}
    print(f"{'':18}{'median of nights':>18}{'first in cell':>18}{'below the floor':>18}", file=sys.stderr)
    for name, found in models.items():
        shown = [found.get(key, "not run") for key in ("nights_median", "within20_first_in_cell", "below_floor")]
        print(f"{name:18}{''.join(f'{value!s:>18}' for value in shown)}", file=sys.stderr)
    floor = judged["noise_floor"]
    result = {
        "seed": arguments.seed,
        "nights": len(judged["windows"]),
        "scored": sum(window["scored_rows"] for window in judged["windows"]),
        "default": judged["default"],
        "noise_floor": {name: round(floor[name]["within20"], 2) for name in SLICES if floor[name]["rows"]},
        "as_run_value_lost": round(judged["regret"]["as run"]["lost"], 2),
        "models": models,
        "seconds": round(seconds, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

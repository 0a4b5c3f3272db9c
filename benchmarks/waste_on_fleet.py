"""How near is the estimate of waste to the truth on a synthetic fleet, and how long does it take?

Generates a fleet, measures its waste with `leap waste`, and holds each model type's interval against the truth beside
the fleet. The last line is one JSON object: `coverage` is the share of the model types with 200 jobs or more, on two
hardware types or more, whose 90 % interval holds the truth; waste, half-widths and errors are shares of cost.

    python benchmarks/waste_on_fleet.py --seed 7
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


def main() -> None:
    """Run the two commands, and print what the second says of the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=31)
    parser.add_argument("--attempts-per-day", type=int, default=25_000)
    parser.add_argument("--hardware", type=int, default=22)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()

    def leap(*command: str) -> str:
        print(f"$ leap {' '.join(command)}", file=sys.stderr, flush=True)
        program = [str(Path(sys.executable).with_name("leap")), *command]
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"leap {command[0]} ended with {done.returncode}\n{done.stdout}")
        return done.stdout

    with tempfile.TemporaryDirectory() as name:
        fleet = Path(name) / "fleet"
        leap(
            "fleet", "generate", "--out", str(fleet), "--days", str(arguments.days),
            "--attempts-per-day", str(arguments.attempts_per_day),
            "--hardware", str(arguments.hardware), "--seed", str(arguments.seed),
        )  # fmt: skip
        began = time.monotonic()
        answer = leap("waste", str(fleet / "completions.parquet"), "--truth", str(fleet / "truth.parquet"), "--json")
        seconds = time.monotonic() - began
    found = json.loads(answer)
    verdict, total = found["verdict"], found["report"]["total"]
    result = {name: verdict[name] for name in ("model_types", "coverage", "coverage_seen", "median_half_width", "bias")}
    result |= {
        "seed": arguments.seed,
        "jobs": total["jobs"],
        "compared_share_of_cost": total["compared_cost_usd"] / total["cost_usd"],
        "total_waste": total["waste"],
        "total_truth": verdict["total_truth"],
        "seconds": round(seconds, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""How large is what a launcher installs, and how long does its import take?

A wheel of this checkout is built and installed, without extras, into a fresh virtual environment. There, and in one
loop, so that whatever else the machine does meets all alike: `import leap_predictor`, `import numpy, redis`, and a
Python that imports nothing, whose time is taken off the others'. Feast and XGBoost are imported in the same loop by the
interpreter that runs this program.

The bounds are 120 MB for the environment, pip and all, and 1.5 times the import of numpy and redis. The last line is
one JSON object: sizes in MB (10⁶ bytes on disk), times in seconds, medians; the exit status is 1 where a bound is
missed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
LIMIT_MB = 120.0
LIMIT_RATIO = 1.5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=40, help="rounds of the loop")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        python = installed(directory)
        base = directory / "env"
        taken = imports(
            {
                "nothing": (python, "pass"),
                "leap": (python, "import leap_predictor"),
                "numpy_redis": (python, "import numpy, redis"),
                "own_nothing": (Path(sys.executable), "pass"),
                "feast": (Path(sys.executable), "import feast"),
                "xgboost": (Path(sys.executable), "import xgboost"),
            },
            arguments.repeats,
        )
        leap, numpy_redis = (taken[name] - taken["nothing"] for name in ("leap", "numpy_redis"))
        result = {
            "base_mb": megabytes(files_below(base)),
            "base_packages": sorted(packages(base)),
            "without_pip_mb": megabytes(path for path in files_below(base) if "/pip" not in str(path)),
            "import_s": round(leap, 4),
            "numpy_redis_import_s": round(numpy_redis, 4),
            "ratio": round(leap / numpy_redis, 3),
            "feast_import_s": round(taken["feast"] - taken["own_nothing"], 4),
            "xgboost_import_s": round(taken["xgboost"] - taken["own_nothing"], 4),
            "feast_mb": megabytes(files_of("feast")),
            "xgboost_mb": megabytes(files_of("xgboost-cpu", "xgboost")),
            "numpy_redis_mb": megabytes(files_of("numpy", "redis")),
        }
    result["within_bounds"] = result["base_mb"] < LIMIT_MB and result["ratio"] <= LIMIT_RATIO
    print(json.dumps(result))
    sys.exit(0 if result["within_bounds"] else 1)


def installed(directory: Path) -> Path:
    """The interpreter of a fresh environment with this checkout's base installation, as constraints.txt has it."""
    env = directory / "env"
    venv.create(env, with_pip=True)
    python = env / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", directory, ROOT], check=True, stdout=sys.stderr)
    (wheel,) = directory.glob("leap_throughput-*.whl")
    subprocess.run([*pip, "install", "-c", ROOT / "constraints.txt", wheel], check=True, stdout=sys.stderr)
    return python


def imports(programs: dict[str, tuple[Path, str]], repeats: int) -> dict[str, float]:
    """Median seconds of a fresh process for each program; the first round, which compiles, does not count."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for round_ in range(repeats + 1):
        for name, (python, program) in programs.items():
            if name in ("feast", "xgboost") and round_ > repeats // 4 + 1:
                continue  # they take seconds, and are there for comparison
            start = time.perf_counter()
            subprocess.run([str(python), "-c", program], check=True, env=env, cwd="/")
            if round_:
                taken[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in taken.items()}


def files_below(directory: Path) -> list[Path]:
    """Every file, compiled ones too: an import writes them."""
    return [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]


def packages(env: Path) -> set[str]:
    """Names of what is installed in `env`."""
    (site,) = env.glob("lib/python*/site-packages")
    return {str(each.metadata["Name"]) for each in importlib.metadata.distributions(path=[str(site)])}


def files_of(*names: str) -> set[Path]:
    """Files of those distributions that are installed here, and of all that they need."""
    found: set[Path] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found |= {Path(str(distribution.locate_file(file))) for file in distribution.files or ()}
        for need in distribution.requires or ():
            if "extra ==" not in need:
                waiting.append(re.split(r"[^A-Za-z0-9._-]", need, maxsplit=1)[0])
    return found


def megabytes(paths: Iterable[Path]) -> float:
    """Together, on disk."""
    return round(sum(path.stat().st_blocks * 512 for path in paths if path.is_file()) / 1e6, 1)


if __name__ == "__main__":
    main()

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

HEAVY = ("feast", "faust", "pandas", "pyarrow", "xgboost", "duckdb", "confluent_kafka", "aiokafka")

PROGRAM = f"""
import sys
import leap_predictor
from leap_predictor import Job, Predictor
with Predictor.open("absent", "redis://127.0.0.1:1/0") as predictor:
    assert predictor.rank(Job("job", "bert", 8), ["H100"]) == []
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""


def test_launcher_imports_nothing_heavy_though_it_is_installed() -> None:
    assert set(HEAVY) <= set(importlib.metadata.packages_distributions())
    parents = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(parents), "PATH": ""},
    )
    assert done.stdout.strip() == "[]"


def test_public_names_are_what_all_says() -> None:
    import leap_predictor

    for name in leap_predictor.__all__:
        assert getattr(leap_predictor, name).__module__.startswith("leap_predictor")

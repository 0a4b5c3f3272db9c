"""Real MLPerf runs, judged round by round, where their file is given: LEAP_TEST_MLPERF=mlperf_runs.csv.

What must hold is stated in `docs/models.md`, beside what is easy about these data: most runs repeat a cell.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leap_features.command import leap

RUNS = os.environ.get("LEAP_TEST_MLPERF", "")
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.skipif(not RUNS, reason="opt-in: LEAP_TEST_MLPERF names no file of MLPerf runs")


@pytest.fixture(scope="module")
def judged() -> dict[str, Any]:
    command = ["evaluate", "--data", RUNS, "--mapping", str(ROOT / "docs" / "mappings" / "mlperf.toml")]
    command += ["--by", "round", "--models", "layered,leap,backoff_last", "--json"]
    result = CliRunner().invoke(leap, command, env={"LEAP_FEATURE_REPO": str(ROOT / "feature_repo")})
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_rounds_from_v2_0_on_are_scored(judged: dict[str, Any]) -> None:
    assert [window["name"] for window in judged["windows"]] == ["v2.0", "v2.1", "v3.0", "v3.1", "v4.0"]


def test_the_shipped_default_reaches_its_marks_with_live_history(judged: dict[str, Any]) -> None:
    live = judged["models"][judged["default"]]["live"]
    assert live["all"]["within20"] >= 98.8
    assert live["first_in_cell"]["within20"] >= 85
    assert live["new_hardware_first"]["within20"] >= 75


def test_the_papers_cascade_reaches_its_mark(judged: dict[str, Any]) -> None:
    assert judged["models"]["leap"]["live"]["all"]["within20"] >= 80


def test_intervals_hold_four_in_five_overall_and_on_every_level(judged: dict[str, Any]) -> None:
    overall, *levels = judged["intervals"][judged["default"]]
    assert 78 <= overall["covered"] <= 82
    for level in levels:
        if level["rows"] >= 100:
            assert 70 <= level["covered"] <= 90, level


def test_live_history_is_worth_more_than_frozen(judged: dict[str, Any]) -> None:
    entry = judged["models"][judged["default"]]
    assert entry["live"]["all"]["within20"] > entry["nightly"]["all"]["within20"] > entry["frozen"]["all"]["within20"]

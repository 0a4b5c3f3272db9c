"""`leap evaluate` on tables of past runs: three nights of a small synthetic fleet, and runs in MLPerf's columns."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from leap_features.columns import history_column
from leap_features.command import leap
from leap_features.levels import LEVELS
from leap_features.settings import Settings
from leap_training.judge import data
from leap_training.judge.as_known import RECOMPUTED, RecordedRuns
from leap_training.judge.leaks import check_history
from leap_training.judge.slices import SLICES

ROOT = Path(__file__).parents[3]
MODELS = ("layered", "backoff_last", "lookup", "family_mean")
NIGHTS = 3


def run(*arguments: object, root: Path) -> str:
    environment = {
        "LEAP_FEATURE_REPO": str(ROOT / "feature_repo"),
        "LEAP_ARCHIVE": str(root / "archive"),
        "LEAP_HISTORY": str(root / "history"),
    }
    result = CliRunner().invoke(leap, [str(argument) for argument in arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    run("fleet", "generate", "--days", 8, "--attempts-per-day", 250, "--seed", 7, "--out", root / "fleet", root=root)
    return root


@pytest.fixture(scope="module")
def judged(root: Path) -> dict[str, Any]:
    fleet = root / "fleet"
    command = ["evaluate", "--data", fleet / "completions.parquet", "--windows", NIGHTS, "--models", ",".join(MODELS)]
    command += ["--truth", fleet / "truth.parquet", "--costs", fleet / "fleet.json", "--out", root / "judged", "--json"]
    found: dict[str, Any] = json.loads(run(*command, root=root))
    return found


def test_a_table_of_runs_is_judged_without_touching_the_deployment(root: Path, judged: dict[str, Any]) -> None:
    assert not (root / "archive").exists()
    assert not (root / "history").exists()
    assert len(judged["windows"]) == NIGHTS
    assert list(judged["models"]) == list(MODELS)
    assert pq.read_metadata(root / "judged" / "rows.parquet").num_rows == sum(
        window["scored_rows"] for window in judged["windows"]
    )


def test_every_model_has_every_slice_on_the_same_rows(judged: dict[str, Any]) -> None:
    for name in SLICES:
        counts = {
            judged["models"][model][history][name]["rows"]
            for model in MODELS
            for history in ("live", "nightly", "frozen")
        }
        assert counts == {judged["noise_floor"][name]["rows"]}


def test_no_model_is_above_the_noise_floor(judged: dict[str, Any]) -> None:
    floor = judged["noise_floor"]["all"]
    for model in MODELS:
        for history in ("live", "nightly", "frozen"):
            found = judged["models"][model][history]["all"]
            assert found["within20_low"] <= floor["within20_high"], (model, history)
    right = judged["pairs"]["truth"]["right"]
    assert all(order["right"] <= right + 5 for order in judged["pairs"].values())


def test_frozen_history_answers_no_more_than_live_history(judged: dict[str, Any]) -> None:
    entry = judged["models"]["backoff_last"]
    live, frozen = entry["live"]["all"], entry["frozen"]["all"]
    assert frozen["unanswered"] >= live["unanswered"]
    assert frozen["within20_low"] <= live["within20_high"]
    assert judged["models"]["lookup"]["live"] == judged["models"]["lookup"]["frozen"]  # a table has no history


def test_each_pick_loses_some_value_and_the_owners_more_than_none(judged: dict[str, Any]) -> None:
    for regret in judged["regret"].values():
        assert 0 <= regret["lost"] <= 100
        assert 0 <= regret["best"] <= 100
    assert judged["regret"]["as run"]["lost"] > 0


def test_history_recomputed_as_of_each_submission_is_the_join(root: Path) -> None:
    settings = Settings(feature_repo=str(ROOT / "feature_repo"))
    rows = data.read(root / "fleet" / "completions.parquet", None, settings, lambda _line: None)
    runs = RecordedRuns(rows)
    again = runs.as_known(rows, rows.submitted_at_us)
    for level in LEVELS:
        for name in RECOMPUTED:
            column = history_column(level.view, name)
            given, known = rows.columns[column], again.columns[column]
            if name == "count":  # where all runs of a key failed, the join says 0 and the runs that succeeded nothing
                given, known = np.nan_to_num(given), np.nan_to_num(known)
            np.testing.assert_array_equal(given, known, err_msg=column)
    check_history(rows, runs)


def result(number: int) -> dict[str, object]:
    """A row as `docs/mappings/mlperf.toml` reads it: 20 a round, one round a year, an hour apart."""
    year, hour = divmod(number, 20)
    accelerators = 8 * (1 + number % 3)
    return {
        "round": f"v{1 + year}.0",
        "org": "org",
        "benchmark": ("bert", "dlrm")[number % 2],
        "hw": ("A30", "L4")[number % 2],
        "n_accel": accelerators,
        "number_of_nodes": 1,
        "accelerators_per_node": 8,
        "framework": "any",
        "division": "closed",
        "host_processor_model_name": "any",
        "system": "any",
        "global_batch_size": 64 * accelerators,
        "throughput": 100 * accelerators + number,
        "status": "success",
        "start_time": f"{2021 + year}-05-01T{hour:02}:00:00",
        "end_time": f"{2021 + year}-05-01T{hour:02}:30:00",
        "path": f"result_{number}",
    }


def test_a_table_with_a_mapping_is_judged_round_by_round(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    with runs.open("w", newline="") as file:
        writer = csv.DictWriter(file, result(0).keys())
        writer.writeheader()
        writer.writerows(result(number) for number in range(80))
    command = ["evaluate", "--data", runs, "--mapping", ROOT / "docs" / "mappings" / "mlperf.toml", "--by", "round"]
    found = json.loads(run(*command, "--models", "backoff_last,lookup", "--json", root=tmp_path))
    assert [(window["name"], window["train_rows"]) for window in found["windows"]] == [("v3.0", 40), ("v4.0", 60)]
    for model in ("backoff_last", "lookup"):
        for history in ("live", "nightly", "frozen"):
            for name in ("all", "first_in_cell", "new_hardware_first", "new_family"):
                assert {"within20", "within10", "median_error"} <= set(found["models"][model][history][name])
    assert found["models"]["backoff_last"]["live"]["all"]["within20"] == 100.0

"""Waste in real runs, where their files are given: LEAP_TEST_MLPERF=mlperf_runs.csv, LEAP_TEST_GAVEL=gavel_flat.csv."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from leap_features.command import leap
from leap_features.hardware import CATALOGUE

MLPERF = os.environ.get("LEAP_TEST_MLPERF", "")
GAVEL = os.environ.get("LEAP_TEST_GAVEL", "")
MAPPINGS = Path(__file__).parents[3] / "docs" / "mappings"


def report(runs: str, mapping: str) -> dict[str, Any]:
    done = CliRunner().invoke(leap, ["waste", runs, "--mapping", str(MAPPINGS / mapping), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)["report"]
    return found


@pytest.mark.skipif(not GAVEL, reason="opt-in: LEAP_TEST_GAVEL names no file of Gavel's throughputs")
def test_the_estimate_is_what_gavels_equal_conditions_give_by_hand() -> None:
    prices = {kind: CATALOGUE[kind.upper()].hourly_cost_usd or 0.0 for kind in ("k80", "p100", "v100")}
    values: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    with Path(GAVEL).open(newline="") as file:
        for row in csv.DictReader(file):
            if (kind := row["hw"]) in prices:
                rate = float(row["iters_per_s"]) / float(row["scale"])
                values[row["model"], row["batch"], row["scale"]][kind] = rate / prices[kind]
    lost: dict[str, float] = defaultdict(float)
    cost: dict[str, float] = defaultdict(float)
    for (model, _, scale), by_kind in values.items():
        for kind, value in by_kind.items():
            cost[model] += prices[kind] * float(scale)
            lost[model] += prices[kind] * float(scale) * (1 - value / max(by_kind.values()))
    found = report(GAVEL, "gavel.toml")
    # Runs alone of their condition have no one to be compared with by hand; they are few.
    assert found["total"]["waste"]["value"] == pytest.approx(sum(lost.values()) / sum(cost.values()), abs=0.02)
    judged = [line for line in found["by_model"] if line["waste"]]
    assert len(judged) == 5
    for line in judged:
        name = line["model_type"]
        assert line["waste"]["value"] == pytest.approx(lost[name] / cost[name], abs=0.03)
    assert any("device hours" in note for note in found["notes"])
    assert any("K80-spread" in note for note in found["notes"])


@pytest.mark.skipif(not MLPERF, reason="opt-in: LEAP_TEST_MLPERF names no file of MLPerf runs")
def test_mlperf_runs_are_compared_at_like_scale_only_and_what_is_assumed_is_said() -> None:
    found = report(MLPERF, "mlperf.toml")
    with Path(MLPERF).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "success"]
    assert found["total"]["jobs"] == len(rows)
    # A scale at which a benchmark ran on one type alone, and at no scale near it on another, is not compared.
    scales: dict[tuple[str, int], set[str]] = defaultdict(set)
    for row in rows:
        scales[row["benchmark"], round(float(row["n_accel"]))].add(row["hw"])
    comparable = 0
    for row in rows:
        trainers = round(float(row["n_accel"]))
        # Neighbouring powers of two, rounded: at most a factor of 2√2 · √2.
        near = [kinds for (name, n), kinds in scales.items() if name == row["benchmark"] and 1 / 4 <= n / trainers <= 4]
        comparable += len(set().union(*near)) > 1
    assert 0 < found["total"]["compared_jobs"] <= comparable < len(rows)
    notes = " ".join(found["notes"])
    for said in ("do not say which hardware was eligible", "not compared", "framework", "failed"):
        assert said in notes

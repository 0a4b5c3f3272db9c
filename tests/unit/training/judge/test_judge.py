"""The whole judge on a small fleet with models whose answers are plain, and the directory that it writes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from leap_features.hardware import CATALOGUE
from leap_training.judge import table, written
from leap_training.judge.judge import Outcome, Studies, judge
from leap_training.judge.slices import SLICES
from leap_training.judge.truth import Truth
from leap_training.judge.windows import by_day
from leap_training.training_set import TrainingSet, read_training_set
from small_recipes import ABLATIONS, RECIPES
from small_training_set import rows, write

TYPES = ("A100-SXM-80", "H100-SXM-80", "L4", "A30")
WINDOWS = 3
SCORED = 24 * (WINDOWS - 1) + 16  # an hour apart; the last day is not over


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(400))).rows


@pytest.fixture(scope="module")
def truth(training: TrainingSet) -> Truth:
    """Every type is eligible and twice the peak is twice the throughput, as `small_training_set` makes it."""
    peak = np.array([CATALOGUE[name].dense_bf16_or_fp16_tflops or 1.0 for name in TYPES])
    used = np.array([CATALOGUE[name].dense_bf16_or_fp16_tflops or 1.0 for name in training.columns["hardware_type"]])
    return Truth(TYPES, (np.exp(training.log_throughput) / used)[:, None].astype(np.float32) * peak)


@pytest.fixture(scope="module")
def outcome(training: TrainingSet, truth: Truth) -> Outcome:
    return judge(
        training,
        by_day(training, windows=WINDOWS),
        RECIPES,
        CATALOGUE,
        default="backoff_last",
        by="day",
        truth=truth,
        studies=Studies(ablations=ABLATIONS, importance=True, holdouts={"leap": RECIPES["leap"]}),
    )


@pytest.fixture(scope="module")
def document(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(outcome.judged))
    return found


def test_the_document_has_every_model_history_and_slice(document: dict[str, Any]) -> None:
    assert document["default"] == "backoff_last"
    assert [window["name"] for window in document["windows"]] == ["2026-01-15", "2026-01-16", "2026-01-17"]
    assert sum(window["scored_rows"] for window in document["windows"]) == SCORED
    assert list(document["models"]) == list(RECIPES)
    for name, entry in document["models"].items():
        if name == "absent":
            assert entry == {"not_run": "needs the package 'absent': pip install absent"}
            continue
        assert set(entry) == {"live", "nightly", "frozen", "fit_seconds"}
        for history in ("live", "nightly", "frozen"):
            assert set(entry[history]) == set(SLICES)
            assert entry[history]["all"]["rows"] == SCORED


def test_all_models_are_scored_on_the_same_rows_in_every_slice(document: dict[str, Any]) -> None:
    for name in SLICES:
        counts = {
            entry[history][name]["rows"]
            for entry in document["models"].values()
            for history in ("live", "nightly", "frozen")
            if history in entry
        }
        assert len(counts) == 1, name


def test_the_truth_is_the_noise_floor_and_nothing_is_above_it(document: dict[str, Any]) -> None:
    assert document["noise_floor"]["all"]["within20"] == 100.0
    assert document["pairs"]["truth"]["right"] == 100.0
    assert document["regret"]["as run"]["lost"] > 0
    jobs = {regret["jobs"] for regret in document["regret"].values()}
    assert jobs == {SCORED}


def test_figures_are_those_of_the_predictions(outcome: Outcome, document: dict[str, Any]) -> None:
    predicted = outcome.pooled.answers["backoff_last", "live"].log_throughput
    measured = outcome.pooled.scored.log_throughput
    near = np.abs(np.exp(predicted - measured) - 1) <= 0.2
    found = document["models"]["backoff_last"]["live"]["all"]
    assert found["within20"] == pytest.approx(100 * near.mean())
    assert found["within20_low"] < found["within20"] < found["within20_high"]
    assert found["unanswered"] == np.isnan(predicted).sum()


def test_older_history_is_no_better(document: dict[str, Any]) -> None:
    entry = document["models"]["backoff_last"]
    live, frozen = (entry[history]["all"]["within20"] for history in ("live", "frozen"))
    assert live >= frozen
    assert entry["nightly"] == entry["frozen"]  # a day is refreshed at the midnight that it begins with


def test_differences_are_paired_and_hold_the_point(document: dict[str, Any]) -> None:
    models = document["models"]
    for name, slices in document["differences"].items():
        for of, found in slices.items():
            shares = [models[each]["live"][of]["within20"] for each in ("backoff_last", name)]
            assert found["points"] == pytest.approx(shares[0] - shares[1])
    found = document["differences"]["lookup"]["all"]
    assert found["low"] <= found["points"] <= found["high"]


def test_every_night_has_figures_and_the_median_is_over_nights(document: dict[str, Any]) -> None:
    nights = document["nights"]["family_mean"]
    assert [night["window"] for night in nights] == [window["name"] for window in document["windows"]]
    shares = [night["all"]["within20"] for night in nights]
    assert document["over_windows"]["family_mean"]["all"] == {
        "windows": WINDOWS,
        "median": pytest.approx(np.median(shares)),
        "low": min(shares),
        "high": max(shares),
    }


def test_against_the_table_only_rows_that_it_covers_count(document: dict[str, Any]) -> None:
    against = document["against_table"]
    lookup = document["models"]["lookup"]["live"]["all"]
    assert {figures["rows"] for figures in against.values()} == {lookup["rows"] - lookup["unanswered"]}
    assert against["lookup"]["unanswered"] == 0
    assert against["lookup"]["within20"] > lookup["within20"]


def test_intervals_are_judged_by_level(document: dict[str, Any]) -> None:
    assert list(document["intervals"]) == ["backoff_last"]
    levels = document["intervals"]["backoff_last"]
    assert levels[0]["level"] == "all"
    assert levels[0]["rows"] == sum(each["rows"] for each in levels[1:])


def test_studies_are_of_the_last_window(document: dict[str, Any]) -> None:
    ablation = document["ablations"]["leap-history"]
    assert (ablation["of"], ablation["windows"]) == ("leap", ["2026-01-17"])
    last = document["nights"]["leap"][-1]["all"]
    assert ablation["points"]["all"]["points"] == pytest.approx(
        ablation["figures"]["all"]["within20"] - last["within20"]
    )
    assert {each["feature"] for each in document["importance"]} > {None, "family_history__last"}
    assert {each["kind"] for each in document["holdouts"]} == {"hardware_type", "job_family"}
    assert {each["window"] for each in document["holdouts"]} == {"2026-01-17"}


def test_the_directory_holds_every_row_and_prediction(outcome: Outcome, tmp_path: Path) -> None:
    written.write(outcome, tmp_path / "judged")
    document = json.loads((tmp_path / "judged" / "judged.json").read_text())
    scored = pq.read_table(tmp_path / "judged" / "rows.parquet").to_pydict()
    predictions = pq.read_table(tmp_path / "judged" / "predictions.parquet").to_pandas()
    assert len(scored["attempt_id"]) == len(set(scored["attempt_id"])) == SCORED
    assert len(predictions) == 3 * 4 * SCORED
    assert sum(scored["first_in_cell"]) == document["models"]["leap"]["live"]["first_in_cell"]["rows"]
    assert scored["log_expected"] == pytest.approx(scored["log_measured"], abs=1e-5)
    lookup = predictions[(predictions["model"] == "lookup") & (predictions["history"] == "live")]
    assert lookup["attempt_id"].tolist() == scored["attempt_id"]
    assert lookup["log_predicted"].isna().sum() == document["models"]["lookup"]["live"]["all"]["unanswered"]
    assert lookup["level"].isna().all()
    backoff = predictions[(predictions["model"] == "backoff_last") & (predictions["history"] == "live")]
    assert set(backoff["level"].dropna()) <= {each["level"] for each in document["intervals"]["backoff_last"]}
    assert (backoff["log_high"] - backoff["log_low"]).dropna().round(6).unique().tolist() == [0.2]


def test_the_same_is_found_again(training: TrainingSet, truth: Truth, outcome: Outcome) -> None:
    recipes = {name: RECIPES[name] for name in ("backoff_last", "leap", "lookup", "family_mean")}
    again = judge(
        training, by_day(training, windows=WINDOWS), recipes, CATALOGUE, default="backoff_last", by="day", truth=truth
    )
    for name in ("regret", "pairs", "differences", "nights", "noise_floor"):
        assert getattr(again.judged, name) == getattr(outcome.judged, name)


def test_the_table_names_every_model_and_marks_the_default(outcome: Outcome) -> None:
    text = "\n".join(table.lines(outcome.judged))
    assert "backoff_last*" in text
    assert "absent not run: needs the package 'absent'" in text
    assert "(noise floor)" in text
    for part in (
        "history live",
        "history frozen",
        "by device-hours",
        "pairs of hardware types",
        "value for money",
        "80 % intervals",
    ):
        assert part in text
    assert "nan" not in text


def test_without_a_truth_there_is_no_floor_and_no_regret(training: TrainingSet) -> None:
    recipes = {"backoff_last": RECIPES["backoff_last"]}
    found = judge(
        training, by_day(training, windows=1), recipes, CATALOGUE, default="layered", by="day", modes=["live"]
    ).judged
    assert (found.noise_floor, found.regret, found.differences, found.against_table) == (None, {}, {}, {})
    assert found.models["backoff_last"].frozen is msgspec.UNSET
    assert math.isfinite(found.models["backoff_last"].live["all"].within20)  # type: ignore[index, arg-type]
    assert list(table.lines(found))

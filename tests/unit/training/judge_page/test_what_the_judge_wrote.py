"""The page of what the judge itself wrote, not of a made-up directory: both sides keep to one form."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from html_tree import Node, parsed
from leap_features.hardware import CATALOGUE
from leap_training.judge import written
from leap_training.judge.judge import Outcome, Studies, judge
from leap_training.judge.truth import Truth
from leap_training.judge.windows import by_day
from leap_training.judge_page.page import page
from leap_training.judge_page.reading import Judged, read
from leap_training.page import percent
from leap_training.training_set import read_training_set
from small_recipes import ABLATIONS, RECIPES
from small_training_set import rows, write

TYPES = ("A100-SXM-80", "H100-SXM-80", "L4", "A30")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    training = read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(400))).rows
    peak = np.array([CATALOGUE[name].dense_bf16_or_fp16_tflops or 1.0 for name in TYPES])
    used = np.array([CATALOGUE[name].dense_bf16_or_fp16_tflops or 1.0 for name in training.columns["hardware_type"]])
    return judge(
        training,
        by_day(training, windows=3),
        RECIPES,
        CATALOGUE,
        default="backoff_last",
        by="day",
        truth=Truth(TYPES, (np.exp(training.log_throughput) / used)[:, None].astype(np.float32) * peak),
        studies=Studies(ablations=ABLATIONS, importance=True, holdouts={"backoff_last": RECIPES["backoff_last"]}),
    )


@pytest.fixture(scope="module")
def judged(outcome: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    directory = tmp_path_factory.mktemp("judged")
    written.write(outcome, directory)
    return read(directory)


@pytest.fixture(scope="module")
def root(judged: Judged) -> Node:
    return parsed(page(judged))


def identities(root: Node) -> Collection[str]:
    return [node.attributes["id"] for node in root.find("figure")]


def test_every_figure_can_be_drawn_of_it(root: Node) -> None:
    assert {
        *("models-all", "models-first-in-cell", "ahead-all", "windows", "windows-first", "ranges", "slices"),
        *("model-types", "most-run", "scatter", "scatter-first", "calibration", "calibration-over-time", "levels"),
        *("against-table", "importance-groups", "importance", "ablations", "holdouts", "pairs", "regret"),
    } <= set(identities(root))
    assert not any(node.attributes.get("id") == "not-measured" for node in root.walk())


def test_what_is_counted_from_the_rows_is_what_the_judge_says(outcome: Outcome, judged: Judged) -> None:
    for name, entry in outcome.judged.models.items():
        if not isinstance(entry.live, dict):
            continue
        for window, said in zip(judged.measured.windows, outcome.judged.nights[name], strict=True):
            assert window.window == said["window"]
            assert window.everything[name].within20 == pytest.approx(said["all"].within20)  # type: ignore[union-attr]
            assert window.everything[name].rows == said["all"].rows  # type: ignore[union-attr]
    for level in judged.measured.levels:
        found = [each for each in outcome.judged.intervals["backoff_last"] if each.level == (level.level or "none")]
        assert [each.rows for each in found] == [level.rows] or not found


def test_the_headline_is_the_judges(outcome: Outcome, root: Node) -> None:
    live = outcome.judged.models["backoff_last"].live
    assert isinstance(live, dict)
    assert [node.text for node in root.one("headline").find("p", "amount")] == [
        percent((live[name].within20 or 0.0) / 100) for name in ("all", "first_in_cell")
    ]

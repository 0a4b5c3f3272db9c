from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leap_training.judge.intervals import Coverage
from leap_training.nightly.comparison import Difference
from leap_training.nightly.gate import Evidence, refusals

CUT = datetime(2026, 1, 31, tzinfo=UTC)

TIE = Difference(2_000, 0.0, 0.0, 0.0)
SURELY_WORSE = Difference(2_000, -1.0, -1.5, -0.2)
PERHAPS_WORSE = Difference(2_000, -1.0, -2.5, 0.4)
AHEAD = Difference(400, 20.0, 15.0, 25.0)

QUIET: dict[str, Any] = {
    "cut": CUT,
    "judge_days": 1,
    "dataset_rows": 75_000,
    "dataset_rows_before": 74_000,
    "newest_recorded_at": CUT - timedelta(minutes=1),
    "train_rows": 72_000,
    "judged_rows": 2_000,
    "above_backoff": {"all": AHEAD, "first_in_cell": AHEAD},
    "above_published": {"all": TIE, "first_in_cell": TIE},
    "published_before": CUT - timedelta(days=1),
    "intervals": Coverage("all", 2_000, 80.0, 5.0),
}


def rules_broken(**changes: Any) -> list[str]:
    return [refusal.rule for refusal in refusals(Evidence(**QUIET | changes))]


def test_a_tie_with_the_published_model_is_published() -> None:
    assert rules_broken() == []


def test_the_first_night_is_compared_with_the_back_off_alone() -> None:
    first = {"above_published": {}, "published_before": None, "dataset_rows_before": None, "intervals": None}
    assert rules_broken(**first) == []
    assert rules_broken(**first, above_backoff={"all": AHEAD, "first_in_cell": SURELY_WORSE}) == [
        "not_above_backoff_first_in_cell"
    ]


@pytest.mark.parametrize("slice_name", ["all", "first_in_cell"])
def test_a_model_that_is_surely_worse_than_the_published_one_is_not_published(slice_name: str) -> None:
    compared = {"all": TIE, "first_in_cell": TIE}
    assert rules_broken(above_published=compared | {slice_name: SURELY_WORSE}) == [f"behind_published_{slice_name}"]
    assert rules_broken(above_published=compared | {slice_name: PERHAPS_WORSE}) == []


def test_a_refusal_says_by_how_much_and_on_how_many_attempts() -> None:
    (refusal,) = refusals(Evidence(**QUIET | {"above_published": {"all": SURELY_WORSE}}))
    assert (
        refusal.why
        == "all attempts: within ±20 % 1.0 points behind (-1.5 to -0.2 on 2,000 attempts) of the published model"
    )


def test_a_model_must_beat_the_back_off_on_first_runs_in_a_new_cell() -> None:
    def above(points: float, rows: int = 400) -> dict[str, Difference]:
        return {"all": TIE, "first_in_cell": Difference(rows, points, points - 3, points + 3)}

    assert rules_broken(above_backoff=above(0.1)) == []
    assert rules_broken(above_backoff=above(0.0)) == ["not_above_backoff_first_in_cell"]
    assert rules_broken(above_backoff=above(-0.1)) == ["not_above_backoff_first_in_cell"]


def test_a_handful_of_first_runs_only_stops_a_model_that_is_surely_worse_on_them() -> None:
    def above(high: float) -> dict[str, Difference]:
        return {"all": TIE, "first_in_cell": Difference(19, -20.0, -60.0, high)}

    assert rules_broken(above_backoff=above(5.0)) == []
    assert rules_broken(above_backoff=above(-1.0)) == ["not_above_backoff_first_in_cell"]


def test_a_model_that_spoils_what_the_back_off_knows_is_not_published() -> None:
    assert rules_broken(above_backoff={"all": SURELY_WORSE, "first_in_cell": AHEAD}) == ["behind_backoff_all"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"train_rows": 199}, "few_training_rows"),
        ({"judged_rows": 49}, "few_judged_rows"),
        ({"dataset_rows": 36_999}, "shrunken_dataset"),
        ({"newest_recorded_at": CUT - timedelta(hours=6, seconds=1)}, "stale_dataset"),
        ({"published_before": CUT + timedelta(seconds=1)}, "older_than_published"),
        ({"intervals": Coverage("all", 100, 59.9, 1.0)}, "interval_coverage"),
    ],
)
def test_each_rule_is_named(changes: dict[str, Any], rule: str) -> None:
    assert rules_broken(**changes) == [rule]


@pytest.mark.parametrize(
    "changes",
    [
        {"train_rows": 200, "judged_rows": 50, "dataset_rows": 37_000},
        {"newest_recorded_at": CUT - timedelta(hours=6)},
        {"newest_recorded_at": CUT - timedelta(hours=40), "judge_days": 7},
        {"published_before": CUT},
        {"intervals": Coverage("all", 100, 60.0, 1.0)},
        {"intervals": Coverage("all", 99, 0.0, 1.0)},
        {"intervals": Coverage("all", 2_000, 100.0, 1.0)},
    ],
)
def test_at_its_bound_a_rule_is_kept(changes: dict[str, Any]) -> None:
    assert rules_broken(**changes) == []


def test_every_reason_is_given_and_not_the_first_alone() -> None:
    nothing = {"train_rows": 0, "judged_rows": 0, "above_backoff": {}, "above_published": {}, "intervals": None}
    assert rules_broken(**nothing) == ["few_training_rows", "few_judged_rows"]

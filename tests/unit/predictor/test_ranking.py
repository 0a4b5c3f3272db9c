from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leap_features.hardware import Catalogue, Hardware
from leap_predictor.history.request import StoredRow
from leap_predictor.models.layered import Estimate
from leap_predictor.policy import MICROSECONDS_PER_HOUR, Candidates, Confidence, Demotion, History, Policy
from leap_predictor.ranking import Eligible, Rows, eligible, order, recent

CATALOGUE = Catalogue(
    [
        Hardware("H100-80", ("H100",), hourly_cost_usd=4.0),
        Hardware("A100-80", ("A100",), hourly_cost_usd=2.0),
        Hardware("Secret", hourly_cost_usd=None),
    ]
)
NOW = 1000 * MICROSECONDS_PER_HOUR

COLD: Rows = {
    "family_history": None,
    "family_hardware_history": None,
    "family_scale_history": None,
    "model_scale_history": None,
}


def estimate(throughputs: list[float], level: int = -1, half_width: float = 0.1) -> Estimate:
    logs = np.log(np.array(throughputs))
    nothing, levels = np.zeros(len(logs)), np.full(len(logs), level, dtype=np.int8)
    return Estimate(logs, logs, nothing, nothing + 0.1, logs - half_width, logs + half_width, levels, logs)


def failed(count: int) -> StoredRow:
    return StoredRow({"failures_since_success": count}, 0)


def test_score_is_throughput_per_cost_and_the_best_comes_first() -> None:
    choices, dropped = order(
        [Eligible("H100", 4.0), Eligible("A100", 2.0)],
        8,
        estimate([320.0, 200.0], level=0),
        [COLD, COLD],
        Policy(),
        NOW,
    )
    assert [(choice.hardware_type, choice.score) for choice in choices] == [
        ("A100", pytest.approx(200 / (8 * 2.0))),
        ("H100", pytest.approx(320 / (8 * 4.0))),
    ]
    assert choices[0].throughput == pytest.approx(200.0)
    assert choices[0].level == "family_scale_history"
    assert dropped == {}


def test_choice_carries_its_interval_within_what_a_float_holds() -> None:
    for half_width, low, high in ((np.log(2), 50.0, 200.0), (1000.0, np.exp(-300.0), np.exp(300.0))):
        given = estimate([100.0], half_width=half_width)
        ((choice,), _) = order([Eligible("H100", 4.0)], 8, given, [COLD], Policy(), NOW)
        assert (choice.throughput_low, choice.throughput_high) == pytest.approx((low, high))


def test_equal_scores_are_ordered_by_name() -> None:
    names = ["b", "c", "a"]
    choices, _ = order([Eligible(name, 1.0) for name in names], 1, estimate([5.0] * 3), [COLD] * 3, Policy(), NOW)
    assert [choice.hardware_type for choice in choices] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("view", "failures", "limit", "demoted"),
    [
        ("family_hardware_history", 3, 3, True),
        ("family_scale_history", 3, 3, True),
        ("family_hardware_history", 2, 3, False),
        ("family_hardware_history", 16, 0, False),
        # The whole family's or another family's failures say nothing about this candidate.
        ("family_history", 16, 3, False),
        ("model_scale_history", 16, 3, False),
    ],
)
def test_candidate_on_which_the_family_keeps_failing_comes_last(
    view: str, failures: int, limit: int, demoted: bool
) -> None:
    rows: list[Rows] = [COLD | {view: failed(failures)}, COLD]  # type: ignore[operator]
    policy = Policy(demotion=Demotion(failures=limit))
    choices, _ = order([Eligible("best", 1.0), Eligible("second", 1.0)], 1, estimate([9.0, 1.0]), rows, policy, NOW)
    assert [choice.hardware_type for choice in choices] == (["second", "best"] if demoted else ["best", "second"])
    assert {choice.hardware_type: choice.demoted for choice in choices}["best"] is demoted


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1000.0])
def test_candidate_without_a_usable_prediction_is_dropped_alone(value: float) -> None:
    guess = estimate([1.0, 1.0])
    guess.log_throughput[0] = value
    choices, dropped = order([Eligible("odd", 1.0), Eligible("good", 1.0)], 1, guess, [COLD, COLD], Policy(), NOW)
    assert [choice.hardware_type for choice in choices] == ["good"]
    assert "no usable prediction" in dropped["odd"]


def test_unknown_hardware_and_hardware_without_cost_are_dropped_alone() -> None:
    good, dropped = eligible(["H100", "Warp9", "Secret", "A100-80"], CATALOGUE, Policy())
    assert good == (Eligible("H100", 4.0), Eligible("A100-80", 2.0))
    assert "no specification" in dropped["Warp9"]
    assert "no cost" in dropped["Secret"]


@pytest.mark.parametrize("name", ["H100", "H100-80", "h100_80"])
def test_policy_names_hardware_by_any_of_its_names(name: str) -> None:
    policy: Any = Policy(costs={name: 1.5})
    for asked in ("H100", "h100-80"):
        assert eligible([asked], CATALOGUE, policy)[0] == (Eligible(asked, 1.5),)
    never = Policy(candidates=Candidates(never=frozenset({name})))
    assert eligible(["H100"], CATALOGUE, never) == ((), {"H100": "the policy says never"})


@pytest.mark.parametrize(
    ("asked", "kept"), [(["h100-80", "H100"], "h100-80"), (["H100", "h100-80", "H100-80"], "H100-80")]
)
def test_hardware_asked_about_by_several_names_stands_once_by_the_catalogues_own_if_it_is_there(
    asked: list[str], kept: str
) -> None:
    good, dropped = eligible(asked, CATALOGUE, Policy())
    assert [one.hardware_type for one in good] == [kept]
    why = f"another name of {kept}: ask about each hardware type once"
    assert dropped == {name: why for name in asked if name != kept}


def test_cost_of_the_policy_stands_in_where_the_catalogue_has_none() -> None:
    assert eligible(["Secret"], CATALOGUE, Policy(costs={"Secret": 9.0}))[0] == (Eligible("Secret", 9.0),)


def test_demotion_is_over_when_the_policy_says_how_long_it_lasts() -> None:
    rows: list[Rows] = [COLD | {"family_scale_history": failed(3)}, COLD]  # type: ignore[operator]
    for hours, first in ((1000.0, "second"), (999.0, "best")):
        policy = Policy(demotion=Demotion(for_hours=hours))
        candidates = [Eligible("best", 1.0), Eligible("second", 1.0)]
        choices, _ = order(candidates, 1, estimate([9.0, 1.0]), rows, policy, NOW)
        assert choices[0].hardware_type == first


@pytest.mark.parametrize(("most", "kept"), [(None, True), (4.01, True), (3.99, False)])
def test_candidate_with_too_wide_an_interval_is_dropped_alone(most: float | None, kept: bool) -> None:
    guess = estimate([1.0, 1.0], half_width=0.1)
    guess.log_low[0], guess.log_high[0] = -np.log(2), np.log(2)
    policy = Policy(confidence=Confidence(max_interval_ratio=most))
    choices, dropped = order([Eligible("wide", 1.0), Eligible("good", 1.0)], 1, guess, [COLD, COLD], policy, NOW)
    assert [choice.hardware_type for choice in choices] == (["good", "wide"] if kept else ["good"])
    if not kept:
        assert dropped["wide"] == "not confident: its 80 % interval spans a factor of 4, the policy allows 3.99"


@pytest.mark.parametrize("half_width", [np.inf, np.nan, 1e300])
def test_interval_without_an_end_is_never_confident(half_width: float) -> None:
    policy = Policy(confidence=Confidence(max_interval_ratio=1e9))
    choices, dropped = order([Eligible("a", 1.0)], 1, estimate([1.0], half_width=half_width), [COLD], policy, NOW)
    assert (choices, list(dropped)) == ((), ["a"])


def test_history_that_is_too_old_is_as_good_as_none_level_by_level() -> None:
    hour = MICROSECONDS_PER_HOUR
    young, old, never = (StoredRow({"last_seen": seen}, 0) for seen in (NOW - hour, NOW - 3 * hour, None))
    rows: list[Rows] = [{"family_history": old, "family_scale_history": young, "model_history": never, "other": None}]
    assert recent(rows, Policy(), NOW) == rows
    assert recent(rows, Policy(history=History(max_age_hours=2)), NOW) == [
        {"family_history": None, "family_scale_history": young, "model_history": never, "other": None}
    ]

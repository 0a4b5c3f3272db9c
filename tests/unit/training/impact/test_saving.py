"""The saving against the control group: exact where it can be counted by hand, and held against planted effects."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from impact_fleet import impact_fleet
from leap_training.impact.measure import Options, measure
from leap_training.impact.report import ImpactReport
from leap_training.impact.saving import MIN_FAMILIES, Measured, measured_saving, predicted_share

FLEETS = 20


def report(seed: int, advantage: float, **fleet: float) -> tuple[ImpactReport, float]:
    made = impact_fleet(seed, advantage=advantage, **fleet)  # type: ignore[arg-type]
    options = Options(draws=400)
    return measure(made.attempts, made.decided(), lambda _: 2.0, "fleet", options), made.saving


def saving(families: int = 8, factor: float = 0.9, **changes: object) -> Measured:
    """Of families with a ranked and a control job each, the ranked one `factor` times as costly per sample."""
    rng = np.random.default_rng(3)
    base = rng.normal(0, 3, families)
    given: dict[str, object] = {
        "model": np.zeros(2 * families, np.int64),
        "family": np.tile(np.arange(families), 2),
        "ranked": np.repeat([True, False], families),
        "log_cost": np.concatenate([base + math.log(factor), base]),
        "log_predicted": np.tile(rng.normal(0, 1, families), 2),
        "weights": np.ones(1),
    }
    return measured_saving(**given | changes, confidence=0.95, draws=200, seed=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("advantage", [0.0, 0.3, -0.2])
def test_intervals_hold_the_planted_saving(advantage: float) -> None:
    found = [report(seed, advantage) for seed in range(FLEETS)]
    held = [
        made.total.saving is not None and made.total.saving.low <= planted <= made.total.saving.high
        for made, planted in found
    ]
    # Of 20 intervals at 95 % fewer than 17 hold once in 390 times; these seeds are fixed.
    assert sum(held) >= 17
    mean = np.mean([made.total.saving.value for made, _ in found if made.total.saving])
    assert mean == pytest.approx(found[0][1], abs=0.02)


def test_an_effect_that_is_there_is_told_from_none() -> None:
    made, planted = report(1, 0.5, families=40)
    assert made.total.saving is not None
    assert 0 < made.total.saving.low < planted < made.total.saving.high
    none, _ = report(1, 0.0, families=40)
    assert none.total.saving is not None
    assert none.total.saving.low < 0 < none.total.saving.high


def test_twins_that_differ_by_a_factor_give_that_saving_exactly() -> None:
    found = saving(factor=0.8)
    assert found.total is not None
    assert found.total.value == pytest.approx(0.2)
    assert (found.total.low, found.total.high) == pytest.approx((0.2, 0.2))


def test_the_total_weighs_model_types_by_their_weights() -> None:
    model = np.tile(np.repeat([0, 1], 8), 2)
    base = np.zeros(16)
    log_cost = np.concatenate([base + np.repeat([math.log(0.5), 0.0], 8), base])
    found = saving(
        families=16, model=model, log_cost=log_cost, log_predicted=np.zeros(32), weights=np.array([3.0, 1.0])
    )
    assert found.total is not None
    assert found.by_model[0].value == pytest.approx(0.5)
    assert found.by_model[1].value == pytest.approx(0.0)
    assert found.total.value == pytest.approx(1 - 0.5**0.75)


def test_predictions_made_beforehand_narrow_the_interval_and_do_not_move_it() -> None:
    rng = np.random.default_rng(5)
    families, jobs = 30, 10
    family = np.repeat(np.arange(families), jobs)
    ranked = rng.random(family.size) < 0.5
    base = rng.normal(0, 2, family.size)
    log_cost = base + rng.normal(0, 0.1, family.size) + np.where(ranked, math.log(0.9), 0.0)
    common = {"model": np.zeros(family.size, np.int64), "family": family, "ranked": ranked, "log_cost": log_cost}
    with_them = saving(**common, log_predicted=base).total  # type: ignore[arg-type]
    without = saving(**common, log_predicted=np.zeros(family.size)).total  # type: ignore[arg-type]
    assert with_them is not None
    assert without is not None
    assert with_them.high - with_them.low < (without.high - without.low) / 5
    assert with_them.low < 0.1 < with_them.high


def test_where_predictions_explain_everything_the_saving_is_exact_though_groups_differ() -> None:
    rng = np.random.default_rng(7)
    families = 20
    ranked = np.repeat([True, False], families)
    predicted = rng.normal(0, 2, 2 * families) + np.where(ranked, 3.0, 0.0)
    found = saving(
        families=families, log_predicted=predicted, log_cost=predicted + np.where(ranked, math.log(0.8), 0.0)
    ).total
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.2, 0.2))


def test_the_interval_is_that_of_a_slow_bootstrap_widened_for_few_families() -> None:
    # Five families with two ranked jobs and one of the control group each. 2.7764 is Student's t at 97.5 % for 4
    # degrees of freedom, 1.9600 the normal's.
    rng = random.Random(11)
    ranked_costs = [[rng.gauss(family * 0.2, 0.3) for _ in range(2)] for family in range(5)]
    control_costs = [rng.gauss(family * 0.2, 0.3) for family in range(5)]

    def difference(chosen: list[int]) -> float:
        ranked = [cost for family in chosen for cost in ranked_costs[family]]
        control = [control_costs[family] for family in chosen]
        return sum(ranked) / len(ranked) - sum(control) / len(control)

    whole = difference([0, 1, 2, 3, 4])
    drawn = sorted(difference(rng.choices(range(5), k=5)) for _ in range(20_000))
    widening = 2.7764 / 1.9600 * math.sqrt(5 / 4)
    low, high = (whole + widening * (drawn[place] - whole) for place in (500, 19_500))
    columns = {
        "model": np.zeros(15, np.int64),
        "family": np.array([*np.repeat(np.arange(5), 2), *range(5)]),
        "ranked": np.repeat([True, False], [10, 5]),
        "log_cost": np.array([*np.ravel(ranked_costs), *control_costs]),
        "log_predicted": np.zeros(15),
    }
    found = measured_saving(**columns, weights=np.ones(1), confidence=0.95, draws=20_000, seed=0).total
    assert found is not None
    assert found.value == pytest.approx(1 - math.exp(whole))
    assert found.low == pytest.approx(1 - math.exp(high), abs=0.02)
    assert found.high == pytest.approx(1 - math.exp(low), abs=0.02)


def test_families_not_attempts_decide_how_sure_it_is() -> None:
    # A thousand copies of every attempt tell nothing new about families.
    rng = np.random.default_rng(5)
    families = 12
    base = rng.normal(0, 1, 2 * families)
    common = {"family": np.arange(2 * families), "ranked": np.repeat([True, False], families), "log_cost": base}
    zeros = {"model": np.zeros(2 * families, np.int64), "log_predicted": np.zeros(2 * families)}
    once = saving(**common, **zeros)  # type: ignore[arg-type]
    often = saving(**{name: np.repeat(column, 1000) for name, column in (common | zeros).items()})  # type: ignore[arg-type]
    assert once.total is not None
    assert often.total is not None
    numbers = (often.total.value, often.total.low, often.total.high)
    assert numbers == pytest.approx((once.total.value, once.total.low, once.total.high))


@pytest.mark.parametrize("families", range(1, MIN_FAMILIES))
def test_too_few_families_give_no_saving(families: int) -> None:
    assert saving(families=families) == Measured(None, {})


def test_no_attempt_gives_no_saving() -> None:
    empty = np.zeros(0, np.int64)
    found = saving(
        model=empty,
        family=empty,
        ranked=np.zeros(0, np.bool_),
        log_cost=np.zeros(0),
        log_predicted=np.zeros(0),
        weights=np.zeros(0),
    )
    assert found == Measured(None, {})


def test_a_predicted_share_is_that_of_the_sums() -> None:
    family = np.arange(6)
    part, whole = np.array([1.0, 0, 0, 0, 0, 0]), np.array([1.0, 1, 1, 1, 1, 5])
    found = predicted_share(family, part, whole, confidence=0.95, draws=200, seed=0)
    assert found is not None
    assert found.value == 0.1
    assert found.low < 0.1 < found.high
    assert predicted_share(family, part, np.zeros(6), confidence=0.95, draws=200, seed=0) is None
    assert predicted_share(np.zeros(6, np.int64), part, whole, confidence=0.95, draws=200, seed=0) is None

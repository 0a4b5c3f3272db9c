"""The synthetic fleet as a whole: its rules, its truth, and that the seed says everything."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.events import to_us
from leap_features.hardware import CATALOGUE, Catalogue
from leap_training.fleet.attempts import Attempts
from leap_training.fleet.launches import DAY_US, LONGEST_HOURS, STATUSES
from leap_training.fleet.popularity import TAIL_SHARE, TOP_SHARE, popularity
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.simulate import Fleet
from leap_training.fleet.workloads import KINDS

SMALL = FleetSettings(days=9, attempts_per_day=1_500, seed=3)


@cache
def small() -> tuple[Fleet, Attempts]:
    return made(SMALL)


def made(asked: FleetSettings, catalogue: Catalogue = CATALOGUE) -> tuple[Fleet, Attempts]:
    fleet = Fleet(asked, catalogue)
    return fleet, joined(list(fleet.batches()))


def joined(batches: list[Attempts]) -> Attempts:
    columns = {}
    for field in fields(Attempts):
        parts = [getattr(batch, field.name) for batch in batches]
        columns[field.name] = list(chain(*parts)) if isinstance(parts[0], list) else np.concatenate(parts)
    return Attempts(**columns)


def same(one: Attempts, other: Attempts) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name), equal_nan=False)
               if not np.issubdtype(np.asarray(getattr(one, f.name)).dtype, np.floating)
               else np.array_equal(getattr(one, f.name), getattr(other, f.name), equal_nan=True)
               for f in fields(Attempts))  # fmt: skip


def test_a_fleet_has_exactly_the_attempts_asked_for_each_with_an_id_of_its_own() -> None:
    fleet, attempts = small()

    assert len(attempts) == fleet.attempts == 9 * 1_500
    assert len(set(attempts.attempt_id)) == len(attempts)


def test_attempts_come_in_order_of_completion_across_all_batches() -> None:
    _, attempts = small()

    assert (np.diff(attempts.completed_us) >= 0).all()


def test_times_of_an_attempt_are_in_order_and_bounded() -> None:
    _, attempts = small()
    begin = to_us(SMALL.start)

    assert (attempts.submitted_us >= begin).all()
    assert (attempts.submitted_us <= begin + 9 * DAY_US).all()
    assert (attempts.submitted_us <= attempts.started_us).all()
    assert (attempts.started_us < attempts.completed_us).all()
    assert (attempts.completed_us - attempts.started_us <= LONGEST_HOURS * 3_600_000_000).all()


def test_device_hours_are_trainers_times_the_length_of_the_run() -> None:
    _, attempts = small()
    hours = (attempts.completed_us - attempts.started_us) / 3.6e9

    assert attempts.device_hours == pytest.approx(attempts.trainer_count * hours, rel=1e-5)


def test_every_attempt_ran_on_a_candidate_of_its_own() -> None:
    _, attempts = small()

    assert attempts.eligible[np.arange(len(attempts)), attempts.hardware].all()


def test_truth_is_known_for_the_candidates_and_for_nothing_else() -> None:
    _, attempts = small()

    assert (np.isnan(attempts.expected) == ~attempts.eligible).all()
    assert (attempts.expected[attempts.eligible] >= 0).all()


def test_measured_throughput_scatters_around_the_truth_with_a_median_near_one_and_heavy_tails() -> None:
    _, attempts = small()
    ok = attempts.status == STATUSES.index("succeeded")
    truth = attempts.expected[np.arange(len(attempts)), attempts.hardware]
    error = np.log(attempts.throughput[ok] / truth[ok])

    assert abs(np.median(error)) < 0.01
    assert 0.85 < np.mean(np.abs(error) < np.log(1.2)) < 0.97
    assert np.mean(np.abs(error) > 5 * np.std(error[np.abs(error) < 0.2])) > 0.002  # a normal distribution: 6e-7


def test_only_attempts_that_do_not_fit_run_out_of_memory_and_they_always_do() -> None:
    _, attempts = small()
    truth = attempts.expected[np.arange(len(attempts)), attempts.hardware]
    out_of_memory = np.array([reason == "out_of_memory" for reason in attempts.failure])

    assert out_of_memory.any()
    assert (out_of_memory == (truth == 0)).all()


def test_failed_attempts_and_no_others_lack_a_throughput() -> None:
    _, attempts = small()
    failed = attempts.status == STATUSES.index("failed")

    assert (np.isnan(attempts.throughput) == failed).all()
    assert [bool(reason) for reason in attempts.failure] == failed.tolist()
    assert {STATUSES[i] for i in attempts.status} == set(STATUSES)


def test_one_seed_gives_one_fleet_and_another_seed_another() -> None:
    asked = FleetSettings(days=3, attempts_per_day=400, hardware=6, seed=11)

    assert same(made(asked)[1], made(asked)[1])
    other = made(FleetSettings(days=3, attempts_per_day=400, hardware=6, seed=12))[1]
    assert not np.array_equal(made(asked)[1].throughput, other.throughput)


def test_memory_is_bounded_by_the_day_since_batches_hold_about_one() -> None:
    fleet = Fleet(FleetSettings(days=12, attempts_per_day=600))

    sizes = [len(batch) for batch in fleet.batches()]

    assert max(sizes) < 2 * 600
    assert sum(sizes) == 12 * 600


def test_new_hardware_is_the_newest_and_runs_nothing_before_its_day() -> None:
    fleet, attempts = made(FleetSettings(days=12, attempts_per_day=2_000, new_hardware_days=(5, 8)))
    day = (attempts.submitted_us - to_us(fleet.settings.start)) // DAY_US
    released = {name: CATALOGUE[name].released for name in fleet.hardware}
    new = [h for h, first in enumerate(fleet.available_from_day) if first]

    assert sorted(fleet.available_from_day[h] for h in new) == [5, 8]
    assert sorted(released[fleet.hardware[h]] for h in new) == sorted(released.values())[-2:]
    for h in new:
        assert not attempts.eligible[day < fleet.available_from_day[h], h].any()
        assert attempts.eligible[day >= fleet.available_from_day[h], h].any()


def test_availability_changes_by_day() -> None:
    fleet, attempts = made(FleetSettings(days=25, attempts_per_day=1_000))
    day = (attempts.submitted_us - to_us(fleet.settings.start)) // DAY_US
    offered = np.array([attempts.eligible[day == d].any(axis=0) for d in range(25)])

    assert (offered.any(axis=0) & ~offered.all(axis=0)).any()


def test_names_change_from_run_to_run_while_the_family_stays() -> None:
    _, attempts = small()
    names: dict[int, set[str]] = {}
    for family, name in zip(attempts.family.tolist(), attempts.job_name, strict=True):
        names.setdefault(family, set()).add(name)
    runs = Counter(attempts.family.tolist())
    often = [family for family, count in runs.items() if count >= 10]

    assert len(often) > 20
    assert np.mean([len(names[family]) > 1 for family in often]) > 0.95


def test_every_kind_of_architecture_is_there_and_says_its_size() -> None:
    fleet = Fleet(FleetSettings(days=31, attempts_per_day=5_000))

    assert {model.kind for model in fleet.models} == {kind.name for kind in KINDS}
    assert len({model.name for model in fleet.models}) == len(fleet.models)
    for model in fleet.models:
        assert "/" not in model.name
        assert model.architecture["parameters"] >= model.architecture["active_parameters"] > 0


def test_four_types_share_the_launches_of_the_most_common_model_type() -> None:
    fleet, attempts = made(FleetSettings(days=10, attempts_per_day=8_000, seed=5))
    top = attempts.model == 0
    value = np.nan_to_num(attempts.expected[top] / fleet.hourly_cost_usd, nan=-1.0)
    shares = np.sort(np.bincount(value.argmax(axis=1), minlength=len(fleet.hardware)) / top.sum())[::-1]

    assert (shares[:4] > 0.14).all()
    assert (shares[:4] < 0.33).all()


@pytest.mark.parametrize("count", [2, 8, 47, 200, 660, 900])
def test_popularity_is_a_distribution_that_falls(count: int) -> None:
    share = popularity(count)

    assert share.sum() == pytest.approx(1)
    assert (np.diff(share) <= 1e-12).all()
    assert (share > 0).all()


def test_popularity_has_the_papers_two_figures() -> None:
    share = popularity(660)

    assert share[0] == pytest.approx(TOP_SHARE, rel=1e-6)
    assert share[-560:].sum() == pytest.approx(TAIL_SHARE, rel=1e-6)


@settings(max_examples=12)
@given(
    days=st.integers(1, 4),
    per_day=st.integers(1, 60),
    hardware=st.integers(2, 30),
    model_types=st.one_of(st.none(), st.integers(2, 40)),
    seed=st.integers(0, 2**40),
)
def test_fleets_of_any_size_keep_the_rules(
    days: int, per_day: int, hardware: int, model_types: int | None, seed: int
) -> None:
    asked = FleetSettings(days=days, attempts_per_day=per_day, hardware=hardware, model_types=model_types, seed=seed)
    fleet, attempts = made(asked)
    rows = np.arange(len(attempts))

    assert len(attempts) == days * per_day
    assert len(fleet.hardware) == hardware
    assert attempts.eligible[rows, attempts.hardware].all()
    assert (np.diff(attempts.completed_us) >= 0).all()
    ok = attempts.status == STATUSES.index("succeeded")
    assert (attempts.throughput[ok] > 0).all()
    assert np.isfinite(attempts.throughput[ok]).all()
    assert np.isfinite(attempts.device_hours).all()
    assert (attempts.expected[rows, attempts.hardware][ok] > 0).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"days": 0}, "days must be 1 or more, got 0"),
        ({"attempts_per_day": 0}, "attempts_per_day must be 1 or more, got 0"),
        ({"attempts_per_day": 10**8}, "100,000,000 at most, got 3,100,000,000"),
        ({"hardware": 1}, "hardware must be 2 or more, got 1"),
        ({"hardware": 400}, "the catalogue has no more types"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"model_types": 1}, "model_types must be 2 or more, got 1"),
        ({"new_hardware_days": (31,)}, "within the days 1 to 30, got 31"),
        ({"new_hardware_days": (0,)}, "within the days 1 to 30, got 0"),
        ({"new_hardware_days": tuple(range(1, 25))}, "at least two types must be there from the start"),
        ({"start": datetime(2026, 1, 1)}, "start must have an offset"),  # noqa: DTZ001  # that is the fault
        ({"start": datetime(2026, 1, 1, 5, tzinfo=UTC)}, "start must be midnight UTC"),
        ({"start": datetime(9999, 12, 1, tzinfo=UTC)}, "before the year 9999"),
    ],
)
def test_settings_that_make_no_fleet_are_refused_with_value_rule_and_mend(
    changed: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Fleet(FleetSettings(**changed))  # type: ignore[arg-type]  # wrong values are the point


def test_a_start_in_another_zone_is_the_same_fleet_if_it_is_the_same_midnight() -> None:
    zone = timezone(timedelta(hours=5))
    asked = FleetSettings(days=2, attempts_per_day=50, hardware=4)
    moved = FleetSettings(days=2, attempts_per_day=50, hardware=4, start=datetime(2026, 1, 1, 5, tzinfo=zone))

    assert same(made(asked)[1], made(moved)[1])


def test_a_catalogue_of_ones_own_is_taken() -> None:
    own = Catalogue([row for row in CATALOGUE.values() if row.vendor == "NVIDIA"])

    fleet = Fleet(FleetSettings(days=2, attempts_per_day=50, hardware=5), own)

    assert all(CATALOGUE[name].vendor == "NVIDIA" for name in fleet.hardware)

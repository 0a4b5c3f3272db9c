"""Measures waste in histories of which the true waste is known, and says where there is nothing to measure."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from leap_features.hardware import Catalogue, Hardware
from leap_training.waste.jobs import JobsBuilder
from leap_training.waste.likeness import config_keys
from leap_training.waste.measure import NothingToMeasure, Options, measure
from waste_history import CATALOGUE, DAY_US, START_US, History, history
from waste_runs import PRICES, build, on, report_of


def held(seeds: Sequence[int], **settings: float) -> tuple[list[bool], list[float], list[float]]:
    """For each model type with 200 jobs: whether the interval holds the truth, half its width, estimate − truth."""
    inside, halves, errors = [], [], []
    for seed in seeds:
        made: History = history(seed, jobs_per_model=(200, 800), **settings)  # type: ignore[arg-type]
        measured = measure(made.jobs, CATALOGUE, "runs")
        for number, line in enumerate(measured.report.by_model):
            if line.jobs < 200:
                continue
            assert line.waste is not None
            truth = made.waste((made.jobs.model == number) & measured.compared, measured.cost)
            inside.append(line.waste.low <= truth <= line.waste.high)
            halves.append((line.waste.high - line.waste.low) / 2)
            errors.append(line.waste.value - truth)
    return inside, halves, errors


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"family_deviation": 0.0, "condition_deviation": 0.0},
        {"family_deviation": 0.3},
        {"noise": 0.2},
        {"placed": 3.0},
    ],
    ids=["as the fleet", "families alike", "families unlike", "much noise", "placed by value"],
)
def test_intervals_hold_the_truth_and_are_narrow(made: dict[str, float]) -> None:
    inside, halves, errors = held([1, 2], models=10, **made)
    assert np.mean(inside) >= 0.85
    assert np.median(halves) <= 0.05
    # Neither the maximum over noisy values nor the mean over unlike families may pull all estimates one way.
    assert abs(np.mean(errors)) < 0.01


def test_the_total_holds_the_truth() -> None:
    made = history(5)
    measured = measure(made.jobs, CATALOGUE, "runs")
    waste = measured.report.total.waste
    assert waste is not None
    assert waste.low <= made.waste(measured.compared, measured.cost) <= waste.high


def test_hardware_that_gives_half_the_value_wastes_half_of_its_cost() -> None:
    # Per dollar: 100/8/1 on cheap, 100/8/2 on fast.
    report = report_of(build(on("cheap", 100.0, 30) + on("fast", 100.0, 30)))
    by_hardware = {line.hardware_type: line for line in report.by_hardware}
    assert by_hardware["fast"].waste is not None
    assert by_hardware["fast"].waste.value == pytest.approx(0.5, abs=0.02)
    assert by_hardware["cheap"].waste is not None
    assert by_hardware["cheap"].waste.value == pytest.approx(0.0, abs=0.01)
    assert by_hardware["fast"].misplaced is not None
    assert by_hardware["fast"].misplaced.value > 0.95
    # cheap cost 30 × $8, fast 30 × $16.
    assert report.total.cost_usd == pytest.approx(720)
    assert report.total.waste is not None
    assert report.total.waste.value == pytest.approx(240 / 720, abs=0.02)
    shares = {entry.hardware_type: entry.share.value for entry in report.best}
    assert shares["cheap"] > 0.95


def test_a_family_suited_by_other_hardware_than_its_model_type_is_judged_by_its_own_runs() -> None:
    suited = on("cheap", 100.0, 40) + on("fast", 100.0, 40)
    other = on("cheap", 100.0, 40, family="m/g") + on("fast", 400.0, 40, family="m/g")
    measured = measure(build(suited + other), PRICES, "runs")
    # Every job on the wrong type of its family wastes half; on their average both types have equal value.
    assert measured.report.total.waste is not None
    wasted = 40 * 16 * 0.5 + 40 * 8 * 0.5
    assert measured.report.total.waste.value == pytest.approx(wasted / (80 * 16 + 80 * 8), abs=0.03)


def test_a_job_for_which_nothing_else_was_eligible_had_nothing_to_waste() -> None:
    report = report_of(build(on("cheap", 100.0) + on("fast", 100.0, eligible=("fast",))))
    by_hardware = {line.hardware_type: line for line in report.by_hardware}
    assert by_hardware["fast"].compared_jobs == 10
    assert by_hardware["cheap"].compared_jobs == 10
    (model,) = report.by_model
    assert model.compared_cost_usd == model.cost_usd
    freely = report_of(build(on("cheap", 100.0) + on("fast", 100.0)))
    assert model.waste is not None
    assert model.waste.value < 0.05
    assert freely.total.waste is not None
    assert freely.total.waste.value > 0.3
    assert any("10 of 20 jobs had one eligible hardware type" in note for note in report.notes)
    assert {entry.hardware_type: round(entry.share.value) for entry in report.best} == {"cheap": 1, "fast": 0}


def test_where_no_job_had_a_choice_there_is_no_figure() -> None:
    report = report_of(build(on("cheap", 100.0, eligible=("cheap",)) + on("fast", 100.0, eligible=("fast",))))
    assert report.total.waste is None
    assert report.total.note.startswith("not enough overlap")
    assert report.best == []


def test_jobs_of_unlike_scale_are_not_compared() -> None:
    far = report_of(build(on("cheap", 100.0) + on("fast", 100.0, trainers=64)))
    near = report_of(build(on("cheap", 100.0) + on("fast", 100.0, trainers=16)))
    assert far.total.waste is None
    assert far.total.note.startswith("not enough overlap")
    assert near.total.compared_jobs == 20


def test_jobs_of_unlike_configuration_are_not_compared_where_eligibility_is_unknown() -> None:
    unlike = on("cheap", 100.0, config='{"precision":"fp32"}', eligible=()) + on(
        "fast", 100.0, config='{"precision":"fp8"}', eligible=()
    )
    report = report_of(build(unlike), Options(config_keys=("precision",)))
    assert report.total.waste is None


def test_other_families_are_compared_only_where_several_of_their_runs_show_it() -> None:
    def compared(runs: int) -> int:
        return report_of(build(on("cheap", 100.0) + on("fast", 100.0, runs, family="m/g"))).total.compared_jobs

    assert compared(2) == 2  # those two have ten of the other family
    assert compared(3) == 13


def test_hardware_on_which_such_jobs_only_fail_is_no_alternative() -> None:
    runs = on("fast", 100.0, 10, batch=64.0) + on("cheap", 100.0, 10, batch=32.0)
    fails = [{"batch": 64.0}]
    assert report_of(build(runs)).total.compared_jobs == 20
    by_hardware = {line.hardware_type: line for line in report_of(build(runs, fails)).by_hardware}
    assert by_hardware["fast"].compared_jobs == 0
    assert by_hardware["cheap"].compared_jobs == 10


def test_a_failure_where_such_jobs_succeed_too_changes_nothing() -> None:
    runs = on("cheap", 100.0) + on("fast", 100.0)
    assert report_of(build(runs, [{}, {}])).total.compared_jobs == 20


def test_hardware_that_came_later_is_no_alternative_where_eligibility_is_unknown() -> None:
    late = START_US + 100 * DAY_US
    runs = on("fast", 100.0, eligible=()) + on("cheap", 100.0, eligible=(), completed_us=late)
    by_hardware = {line.hardware_type: line for line in report_of(build(runs)).by_hardware}
    assert by_hardware["fast"].compared_jobs == 0
    assert by_hardware["cheap"].compared_jobs == 10


def test_unknown_eligibility_is_assumed_and_said() -> None:
    report = report_of(build(on("cheap", 100.0, eligible=()) + on("fast", 100.0, eligible=())))
    assert report.total.compared_jobs == 20 - 10  # the first ten completed before anything ran on the other type
    assert any("do not say which hardware was eligible" in note for note in report.notes)


def test_hardware_without_a_price_is_left_out_and_named() -> None:
    report = report_of(build(on("cheap", 100.0) + on("fast", 100.0) + on("free", 100.0, 3)))
    assert report.total.jobs == 20
    assert any("3 jobs left out" in note and "free" in note for note in report.notes)


def test_runs_without_times_count_as_an_hour_of_their_trainers() -> None:
    report = report_of(build(on("cheap", 100.0, device_hours=0.0) + on("fast", 100.0, device_hours=0.0)))
    assert report.total.cost_usd == pytest.approx(10 * 8 * 1 + 10 * 8 * 2)
    assert any("device hours" in note for note in report.notes)


def test_one_hardware_type_alone_gives_no_figure() -> None:
    report = report_of(build(on("cheap", 100.0)))
    assert report.total.waste is None
    assert report.total.note == "not enough overlap: all jobs ran on one hardware type"


def test_a_single_job_gives_no_figure() -> None:
    assert report_of(build(on("cheap", 100.0, 1))).total.waste is None


def test_nothing_to_measure_is_said() -> None:
    with pytest.raises(NothingToMeasure, match="only attempts that succeeded can be measured, got 1 failed"):
        report_of(build([], [{}]))
    with pytest.raises(NothingToMeasure, match="no hardware type of these jobs has a price"):
        report_of(build(on("free", 100.0)))


def test_the_same_seed_gives_the_same_figures_and_lines_add_up() -> None:
    jobs = history(6, models=4).jobs
    report = measure(jobs, CATALOGUE, "runs").report
    assert report == measure(jobs, CATALOGUE, "runs").report
    for lines in (report.by_model, report.by_hardware, report.by_model_hardware):
        assert sum(line.jobs for line in lines) == report.total.jobs
        assert sum(line.compared_jobs for line in lines) == report.total.compared_jobs
        assert sum(line.cost_usd for line in lines) == pytest.approx(report.total.cost_usd)
    for line in [report.total, *report.by_model, *report.by_hardware, *report.by_model_hardware]:
        for share in (line.waste, line.misplaced):
            assert share is None or 0 <= share.low <= share.value <= share.high <= 1
    for name in {entry.model_type for entry in report.best}:
        shares = [entry.share.value for entry in report.best if entry.model_type == name]
        assert sum(shares) == pytest.approx(1)


def test_configuration_that_goes_along_with_the_hardware_is_not_asked_to_agree() -> None:
    def config(number: int, hardware: str) -> str:
        return json.dumps({"image": f"{hardware}-image", "precision": ("bf16", "fp32")[number % 2], "seed": number})

    runs = [
        run | {"config": config(number, name)}
        for name in ("cheap", "fast")
        for number, run in enumerate(on(name, 100.0), start=0 if name == "cheap" else 100)
    ]
    keys = config_keys(build(runs))
    assert keys.alike == ("precision",)
    assert keys.tied == ("image", "seed")


def test_names_of_one_hardware_type_are_one() -> None:
    catalogue = Catalogue([Hardware("fast", aliases=("quick",), hourly_cost_usd=2.0)])
    builder = JobsBuilder(catalogue)
    for name in ("fast", "quick", "QUICK"):
        builder.add(
            model_type="m", family="m/f", hardware_type=name, config="{}", eligible=(name,), trainers=1, readers=0,
            batch=1.0, throughput=1.0, device_hours=1.0, completed_us=0,
        )  # fmt: skip
    jobs = builder.jobs()
    assert jobs.hardware_types == ("fast",)
    assert jobs.eligible_sets == (frozenset({0}),)


def test_jobs_are_the_same_in_whichever_order_they_came() -> None:
    runs = on("cheap", 100.0, 3, eligible=("fast", "cheap")) + on("fast", 90.0, 3, family="m/a", eligible=("fast",))
    one, other = build(runs), build(runs[::-1])
    assert one.families == other.families
    assert one.eligible_sets == other.eligible_sets
    assert one.eligible.tolist() == other.eligible.tolist()[::-1]
    assert one.family.tolist() == other.family.tolist()[::-1]

"""The fast ways of measuring waste equal slow, obvious ones, and figures depend on nothing that they must not."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from leap_training.waste import measure as measuring
from leap_training.waste.hierarchy import LEVELS, Design, Fit, Runs, Variances, design
from leap_training.waste.jobs import Jobs
from leap_training.waste.likeness import MIN_RUNS, Conditions, Failing, Measured
from leap_training.waste.measure import Options, measure
from waste_history import CATALOGUE, history

FEW = Options(draws=40)
COLUMNS = (
    *("model", "family", "hardware", "config", "eligible", "trainers", "readers", "batch", "throughput"),
    *("device_hours", "completed_us"),
)


def permuted(jobs: Jobs, order: NDArray[np.int64]) -> Jobs:
    return dataclasses.replace(jobs, **{name: getattr(jobs, name)[order] for name in COLUMNS})


@st.composite
def some_runs(draw: st.DrawFn) -> Runs:
    """Runs of a model type: some families, conditions and hardware types, in any combination."""
    count = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    families, types = draw(st.integers(1, 6)), draw(st.integers(1, 4))

    def ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.unique(values, return_inverse=True)[1]

    conditions = np.stack([ranks(random.integers(0, size, count)) for size in (3, 2, 2, 1)], axis=1)
    return Runs(
        random.normal(2, 1, count),
        np.sort(ranks(random.integers(0, families, count))),
        ranks(conditions @ np.array([100, 10, 1, 0])),
        conditions,
        random.integers(0, types, count),
        random.uniform(0, draw(st.sampled_from([1.0, 40.0, 900.0])), count),
        random.normal(0, 1, types),
    )


def dense(fit: Fit, layout: Design) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of all effects, shared ones first: one equation for each, solved at once."""
    count = len(layout.runs.y)
    shared, own = len(layout.level), len(layout.own_level)
    matrix = np.zeros((count, shared + own))
    loading = fit._loading()
    for run in range(count):
        for column in layout.columns[run]:
            matrix[run, column] += 1
        for term, column in enumerate(layout.own_columns[run]):
            if column < own:
                matrix[run, shared + column] += loading[run, term]
    variance = fit.variances.effects[np.concatenate((layout.level, layout.own_level))]
    variance[shared:] /= fit._own_scales()
    weights = fit.weights / fit.variances.noise
    covariance = np.linalg.inv((matrix.T * weights) @ matrix + np.diag(1 / variance))
    return covariance @ (matrix.T @ (weights * (layout.runs.y - np.median(layout.runs.y)))), covariance


@given(some_runs(), st.integers(0, 2**32))
@settings(max_examples=40)
def test_solving_by_families_equals_solving_all_at_once(runs: Runs, seed: int) -> None:
    random = np.random.default_rng(seed)
    layout = design(runs, len(runs.log_price))
    fit = Fit(layout, Variances(random.uniform(0.01, 1, len(LEVELS)), 0.04), random)
    fit.weights = random.uniform(0.2, 1.5, len(runs.y))
    fit.scales = random.uniform(0.3, 2, len(fit.scales))
    mean, _ = dense(fit, layout)
    found = fit.draw(1)
    np.testing.assert_allclose(np.concatenate((found.shared[:, 0], found.own[:-1, 0])), mean, atol=1e-7)


def test_draws_spread_as_the_equations_say() -> None:
    random = np.random.default_rng(5)
    count = 40
    conditions = np.zeros((count, 4), np.int64)
    conditions[:, 0] = random.integers(0, 2, count)
    conditions[:2, 0] = 0, 1
    runs = Runs(
        random.normal(0, 1, count),
        np.repeat(np.arange(4), 10),
        conditions[:, 0],
        conditions,
        random.integers(0, 3, count),
        random.uniform(0, 30, count),
        random.normal(0, 1, 3),
    )
    layout = design(runs, 3)
    fit = Fit(layout, Variances(np.full(len(LEVELS), 0.3), 0.1), random)
    _, covariance = dense(fit, layout)
    draws = 20_000
    found = fit.draw(draws)
    both = np.concatenate((found.shared, found.own[:-1]))
    drawn = both[:, 1:] - both[:, :1]
    # Each entry of a covariance of n draws is off by about √(2/n) of the variances: 4 times that is far.
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert np.abs((drawn @ drawn.T / draws - covariance) / scale).max() < 5 * np.sqrt(2 / draws)


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_what_was_measured_equals_a_count_run_by_run(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, types = 40, 3
    family = random.integers(0, 4, count)
    model = family // 2
    hardware = random.integers(0, types, count)
    at = Conditions(*(random.integers(low, high, count) for low, high in ((0, 4), (-2, 2), (0, 2), (0, 1))))
    known = random.random(count) < 0.5
    found = Measured(family, model, hardware, at, types).on(np.arange(count), known)
    for run in range(count):
        near = (np.abs(at.trainers - at.trainers[run]) <= 1) & (np.abs(at.batch - at.batch[run]) <= 1)
        alike = near & (at.config == at.config[run])
        for kind in range(types):
            there = hardware == kind
            expected = (alike & there & (family == family[run])).any()
            others = near if known[run] else alike
            expected |= (others & there & (model == model[run])).sum() >= MIN_RUNS
            assert found[run, kind] == expected


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_where_jobs_only_fail_equals_a_search_job_by_job(seed: int) -> None:
    random = np.random.default_rng(seed)
    made = history(0, models=1, jobs_per_model=(30, 31)).jobs
    count, failures, types = len(made), 12, len(made.hardware_types)
    configs = tuple({"precision": name, "length": length} for name in ("bf16", "fp32") for length in (512, 1024))
    jobs = dataclasses.replace(
        made,
        configs=configs,
        config=random.integers(0, len(configs), count),
        model=random.integers(0, 2, count),
        batch=2.0 ** random.integers(0, 4, count),
        failures=type(made.failures)(
            random.integers(0, 2, failures),
            random.integers(0, types, failures),
            random.integers(0, len(configs), failures),
            made.trainers[random.integers(0, count, failures)],
            2.0 ** random.integers(0, 4, failures),
        ),
    )
    found = Failing(jobs, ("precision", "length")).on(np.arange(count))

    def needs_no_less(config: int, trainers: float, batch: float, than: tuple[int, float, float]) -> bool:
        longer = configs[config]["length"] >= configs[than[0]]["length"]  # type: ignore[operator]
        return longer and trainers <= than[1] and batch >= than[2]

    def alike(one: int, other: int) -> bool:
        return configs[one]["precision"] == configs[other]["precision"]

    def fits(model: int, kind: int, job: tuple[int, float, float], any_precision: bool = False) -> bool:
        """Whether a job that needs no less memory succeeded."""
        return any(
            jobs.model[j] == model
            and jobs.hardware[j] == kind
            and (any_precision or alike(jobs.config[j], job[0]))
            and needs_no_less(jobs.config[j], jobs.trainers[j], jobs.batch[j], job)
            for j in range(count)
        )

    failed = [(model, kind, tuple(job)) for model, kind, *job in zip(*jobs.failures, strict=True)]
    suspects = [(model, kind, job) for model, kind, job in failed if not fits(model, kind, job)]
    for j in range(count):
        model, job = jobs.model[j], (jobs.config[j], jobs.trainers[j], jobs.batch[j])
        for kind in range(types):
            here = [other for of_model, of_kind, other in suspects if (of_model, of_kind) == (model, kind)]
            no_more = any(alike(job[0], other[0]) and needs_no_less(*job, other) for other in here)
            expected = no_more and not fits(model, kind, job)
            expected |= bool(here) and not fits(model, kind, job, any_precision=True)
            assert found[j, kind] == expected


@given(st.integers(0, 2**32))
@settings(max_examples=40)
def test_what_jobs_lose_on_a_draw_equals_the_sum_over_jobs(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, cells, types, draws, margin = 25, 3, 5, 4, 0.05
    own_types = np.array([0, 1, 3])
    relative = random.normal(0, 0.2, (cells, 3, draws)).astype(np.float32)
    cell, hardware = random.integers(0, cells, count), own_types[random.integers(0, 3, count)]
    may = np.zeros((count, types), bool)
    may[:, own_types] = random.random((count, 3)) < 0.6
    may[np.arange(count), hardware] = True
    cost = random.uniform(1, 10, count)
    zeros = [np.zeros((types, draws)) for _ in range(4)]
    found = measuring._Found(*zeros, np.zeros(types, np.int64), np.ones(count, bool), np.ones(count, bool), may)
    measuring._evaluate(relative, cell, hardware, may, cost, own_types, margin, found)
    lost, misplaced, best = (np.zeros((types, draws)) for _ in range(3))
    for job in range(count):
        for draw in range(draws):
            values = {h: np.exp(relative[cell[job], at, draw]) for at, h in enumerate(own_types) if may[job, h]}
            most = max(values, key=lambda h: values[h])
            share = values[hardware[job]] / values[most]
            lost[hardware[job], draw] += cost[job] * (1 - share)
            misplaced[hardware[job], draw] += cost[job] * (share < 1 - margin)
            best[most, draw] += 1
    np.testing.assert_allclose(found.lost, lost, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.misplaced, misplaced, rtol=1e-9)
    np.testing.assert_allclose(found.best, best)


def test_figures_do_not_depend_on_the_order_of_the_jobs() -> None:
    jobs = history(3, models=3, jobs_per_model=(60, 120)).jobs
    order = np.random.default_rng(0).permutation(len(jobs))
    one = measure(jobs, CATALOGUE, "runs", FEW).report
    other = measure(permuted(jobs, order), CATALOGUE, "runs", FEW).report
    assert one == other


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@settings(max_examples=8)
def test_units_of_throughput_and_time_do_not_matter(samples: float, hours: float) -> None:
    jobs = history(4, models=2, jobs_per_model=(60, 90)).jobs
    scaled = dataclasses.replace(jobs, throughput=jobs.throughput * samples, device_hours=jobs.device_hours * hours)
    one = measure(jobs, CATALOGUE, "runs", FEW).report
    other = measure(scaled, CATALOGUE, "runs", FEW).report
    for left, right in zip([one.total, *one.by_model], [other.total, *other.by_model], strict=True):
        assert left.waste is not None
        assert right.waste is not None
        np.testing.assert_allclose(right.cost_usd, left.cost_usd * hours)
        np.testing.assert_allclose(
            (right.waste.value, right.waste.low, right.waste.high),
            (left.waste.value, left.waste.low, left.waste.high),
            atol=1e-4,
        )

"""The posterior beside the same model as one Gaussian process over all cells: its whole covariance, solved at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_predictor.models.layered import FAMILY_TERMS
from leap_training.cells import Cells
from leap_training.posterior import MAX_CELLS_OF_FAMILY, RANK, Posterior, posterior
from leap_training.variances import JITTER, USUAL, Variances, covariance
from small_cells import BASIS, SETTINGS, TABLE, random_cells

Floats = NDArray[np.float64]

SEEDS = range(12)


def random_variances(seed: int) -> Variances:
    random = np.random.default_rng(seed)

    def scattered(values: dict[str, float]) -> dict[str, float]:
        return {name: value * float(random.lognormal(sigma=1.0)) for name, value in values.items()}

    return Variances(scattered(USUAL.shared), scattered(USUAL.by_type), scattered(USUAL.family), 0.004)


class Queries(NamedTuple):
    """Points of one model type, as rows of the basis."""

    phi: Floats
    offset: Floats


def random_queries(seed: int, count: int = 10) -> Queries:
    random = np.random.default_rng(100 + seed)
    hardware = random.integers(0, len(TABLE.names), count)
    log_trainers, log_batch = random.uniform(0, 7, count), random.uniform(-1, 8, count)
    settings = random.normal(size=(count, SETTINGS))
    rows = BASIS.rows(hardware, log_trainers, log_batch, settings, range(len(TABLE.names)))
    return Queries(rows, BASIS.offset(hardware, log_trainers))


def of_cells(cells: Cells) -> Floats:
    return BASIS.rows(cells.hardware, cells.log_trainers, cells.log_batch, cells.settings, range(len(TABLE.names)))


def family_covariance(cells: Cells, at: int, to: int, weights: dict[str, float]) -> float:
    """Of two cells, term by term."""
    if cells.family[at] != cells.family[to]:
        return 0.0
    n, m = (float(BASIS.trainers(cells.log_trainers[[one]])[0]) for one in (at, to))
    p, q = (float(BASIS.batch(cells.log_batch[[one]])[0]) for one in (at, to))
    same = float(cells.hardware[at] == cells.hardware[to])
    cell = same * np.exp(-((n - m) ** 2) / 2 - (p - q) ** 2 / 2)
    apart = abs(cells.days[at] - cells.days[to])
    year, week = np.exp(-apart / 365), np.exp(-apart / 7)
    terms = (1.0, same, n * m, p * q, cell, year, week, cell * year, cell * week)
    return float(sum(weights[name] * term for name, term in zip(FAMILY_TERMS, terms, strict=True)))


def dense(cells: Cells, variances: Variances, asked: Queries, code: int | None) -> tuple[Floats, Floats]:
    """Mean and covariance of the queries of model type `code` (None: one that was never seen), all cells at once."""
    shared, own = covariance(BASIS, variances.shared), covariance(BASIS, variances.by_type)
    phi = of_cells(cells)
    count = len(cells)
    among = phi @ shared @ phi.T
    for at in range(count):
        for to in range(count):
            if cells.model_type[at] == cells.model_type[to]:
                among[at, to] += phi[at] @ own @ phi[to]
            among[at, to] += family_covariance(cells, at, to, variances.family)
        among[at, at] += variances.noise / cells.runs[at] + JITTER
    towards = asked.phi @ shared @ phi.T
    if code is not None:
        towards += (asked.phi @ own @ phi.T) * (cells.model_type == code)
    surplus = cells.value - BASIS.offset(cells.hardware, cells.log_trainers)
    middle = float(np.median(surplus))
    mean = middle + asked.offset + towards @ np.linalg.solve(among, surplus - middle)
    before = asked.phi @ (shared + own) @ asked.phi.T
    return mean, before - towards @ np.linalg.solve(among, towards.T)


def served(found: Posterior, asked: Queries, name: str | None) -> tuple[Floats, Floats]:
    """The same of the posterior."""
    of_type = found.never_seen if name is None else found.model_types[name]
    mean = found.intercept + asked.offset + asked.phi @ of_type.mean
    return mean, asked.phi @ (found.covariance - of_type.told @ of_type.told.T) @ asked.phi.T


def every_coefficient() -> Queries:
    """Every coefficient by itself, so that the queries' covariance is that of the coefficients."""
    return Queries(np.eye(BASIS.width), np.zeros(BASIS.width))


@pytest.mark.parametrize("seed", SEEDS)
def test_mean_is_that_of_one_gaussian_process_over_all_cells(seed: int) -> None:
    cells, variances, asked = random_cells(seed), random_variances(seed), random_queries(seed)
    found = posterior(BASIS, cells, variances)
    for code in (None, *range(len(cells.model_types))):
        name = None if code is None else cells.model_types[code]
        np.testing.assert_allclose(served(found, asked, name)[0], dense(cells, variances, asked, code)[0], atol=2e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariance_of_a_model_type_never_seen_is_that_of_the_gaussian_process(seed: int) -> None:
    cells, variances, asked = random_cells(seed), random_variances(seed), random_queries(seed)
    found = posterior(BASIS, cells, variances)
    np.testing.assert_allclose(served(found, asked, None)[1], dense(cells, variances, asked, None)[1], atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariance_of_a_model_type_is_what_its_runs_took_away_from_one_never_seen(seed: int) -> None:
    # A bundle holds what was taken away as a sum of squares. In a few directions a model type's own runs tell more of
    # a type never seen than of itself; there the covariance served is that of one never seen.
    cells, variances = random_cells(seed), random_variances(seed)
    found = posterior(BASIS, cells, variances)
    for code, name in enumerate(cells.model_types):
        taken = found.covariance - dense(cells, variances, every_coefficient(), code)[1]
        values, vectors = np.linalg.eigh(taken)
        assert (values > 1e-9).sum() <= RANK
        wanted = (vectors * np.maximum(values, 0.0)) @ vectors.T
        told = found.model_types[name].told
        np.testing.assert_allclose(told @ told.T, wanted, atol=2e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariance_is_the_gaussian_processs_where_model_types_share_nothing(seed: int) -> None:
    variances = random_variances(seed)
    alone = Variances(dict.fromkeys(variances.shared, 0.0), variances.by_type, variances.family, variances.noise)
    cells, asked = random_cells(seed), random_queries(seed)
    found = posterior(BASIS, cells, alone)
    for code, name in enumerate(cells.model_types):
        np.testing.assert_allclose(served(found, asked, name)[1], dense(cells, alone, asked, code)[1], atol=2e-6)


def test_variance_served_is_within_5_percent_of_the_gaussian_processs_where_there_are_many_model_types() -> None:
    cells, asked = random_cells(3, types=25, families=2, cells=3), random_queries(3, count=40)
    found = posterior(BASIS, cells, USUAL)
    for code, name in enumerate(cells.model_types):
        variance, wanted = served(found, asked, name)[1].diagonal(), dense(cells, USUAL, asked, code)[1].diagonal()
        np.testing.assert_allclose(variance, wanted, rtol=0.05)


def test_own_runs_are_not_counted_twice() -> None:
    # With one model type alone, what others say of it is nothing: its posterior is that of one layer of both variances.
    cells, variances, asked = random_cells(5, types=1), random_variances(5), random_queries(5)
    found = posterior(BASIS, cells, variances)
    both = {name: variances.shared[name] + variances.by_type.get(name, 0.0) for name in variances.shared}
    one_layer = Variances(dict.fromkeys(variances.shared, 0.0), both, variances.family, variances.noise)
    np.testing.assert_allclose(
        served(found, asked, "type-0")[0], served(posterior(BASIS, cells, one_layer), asked, "type-0")[0], atol=2e-6
    )


def test_of_a_large_family_the_latest_cells_count() -> None:
    random = np.random.default_rng(0)
    late, early = MAX_CELLS_OF_FAMILY, 20
    count = late + early
    hardware, log_trainers = random.integers(0, 4, count), random.uniform(0, 7, count)
    surplus = random.normal(size=count)
    surplus[:early] = np.median(surplus[early:]) + np.resize([50.0, -50.0], early)  # leaves the median where it is
    cells = Cells(
        ("bert",),
        ("bert/train",),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        hardware,
        log_trainers,
        random.uniform(0, 8, count),
        np.arange(20_000.0, 20_000.0 + count),
        surplus + BASIS.offset(hardware, log_trainers),
        np.ones(count),
        np.zeros((count, SETTINGS)),
    )
    whole, latest = posterior(BASIS, cells, USUAL), posterior(BASIS, cells.where(np.arange(early, count)), USUAL)
    np.testing.assert_allclose(whole.model_types["bert"].mean, latest.model_types["bert"].mean, atol=1e-5)


def test_settings_of_a_model_type_are_the_mean_of_its_cells() -> None:
    cells = random_cells(2)
    found = posterior(BASIS, cells, USUAL)
    for code, name in enumerate(cells.model_types):
        wanted = cells.settings[cells.model_type == code].mean(axis=0)
        np.testing.assert_allclose(found.model_types[name].settings, wanted)
    np.testing.assert_allclose(found.never_seen.settings, cells.settings.mean(axis=0))


def test_what_is_served_is_held_by_32_bit_floats() -> None:
    found = posterior(BASIS, random_cells(0), USUAL)
    for of_type in (found.never_seen, *found.model_types.values()):
        for values in (of_type.mean, of_type.told):
            np.testing.assert_array_equal(values.astype(np.float32).astype(np.float64), values)

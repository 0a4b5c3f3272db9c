from __future__ import annotations

import math

import numpy as np
import pytest

from leap_training.cells import Cells
from leap_training.variances import (
    JITTER,
    MAX_CELLS_OF_FAMILY,
    MAX_MODEL_TYPES,
    PRIOR_SPREAD,
    SAMPLE_CELLS,
    USUAL,
    Pairs,
    Variances,
    choose,
    covariance,
    packed,
    sample,
    unpacked,
)
from small_cells import BASIS, SETTINGS, TABLE, random_cells


def many_cells(types: int, families: int, of_family: int) -> Cells:
    """Cells of `types` model types, each of so many families, each of so many cells."""
    count = types * families * of_family
    family = np.repeat(np.arange(types * families), of_family)
    return Cells(
        tuple(f"type-{number}" for number in range(types)),
        tuple(f"family-{number}" for number in range(types * families)),
        family // families,
        family,
        np.zeros(count, dtype=np.int64),
        np.ones(count),
        np.ones(count),
        np.tile(np.arange(of_family, dtype=np.float64), types * families),
        np.arange(count, dtype=np.float64),
        np.ones(count),
        np.zeros((count, SETTINGS)),
    )


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_likelihood_is_that_of_finite_differences(seed: int) -> None:
    pairs = Pairs(BASIS, random_cells(seed))
    at = packed(USUAL) + np.random.default_rng(seed).normal(scale=0.5, size=pairs.size)
    slopes = pairs.loss(at)[1]
    for place in range(pairs.size):
        step = np.zeros(pairs.size)
        step[place] = 0.1  # covariances are 32-bit floats: smaller steps drown in their rounding
        difference = (pairs.loss(at + step)[0] - pairs.loss(at - step)[0]) / 0.2
        assert slopes[place] == pytest.approx(difference, rel=0.01, abs=0.02)


def test_loss_is_the_density_of_the_cells_under_the_whole_covariance() -> None:
    cells = random_cells(4)
    logarithms = packed(USUAL) + np.random.default_rng(4).normal(scale=0.5, size=len(packed(USUAL)))
    variances = unpacked(logarithms)
    phi = BASIS.rows(cells.hardware, cells.log_trainers, cells.log_batch, cells.settings, range(len(TABLE.names)))
    layers = [covariance(BASIS, values) for values in (variances.shared, variances.by_type)]
    matrix = np.zeros((len(cells), len(cells)))
    for at in range(len(cells)):
        for to in range(len(cells)):
            matrix[at, to] = phi[at] @ layers[0] @ phi[to]
            if cells.model_type[at] == cells.model_type[to]:
                matrix[at, to] += phi[at] @ layers[1] @ phi[to]
            if cells.family[at] == cells.family[to]:
                n, m = (float(BASIS.trainers(cells.log_trainers[[one]])[0]) for one in (at, to))
                p, q = (float(BASIS.batch(cells.log_batch[[one]])[0]) for one in (at, to))
                same = float(cells.hardware[at] == cells.hardware[to])
                cell = same * math.exp(-((n - m) ** 2) / 2 - (p - q) ** 2 / 2)
                year, week = (math.exp(-abs(cells.days[at] - cells.days[to]) / days) for days in (365, 7))
                terms = (1.0, same, n * m, p * q, cell, year, week, cell * year, cell * week)
                matrix[at, to] += variances.family_weights @ np.array(terms)
        matrix[at, at] += variances.noise / cells.runs[at] + JITTER
    surplus = cells.value - BASIS.offset(cells.hardware, cells.log_trainers)
    surplus = surplus - np.median(surplus)
    wanted = 0.5 * surplus @ np.linalg.solve(matrix, surplus) + 0.5 * np.linalg.slogdet(matrix)[1]
    wanted += 0.5 * (((logarithms - packed(USUAL)) / PRIOR_SPREAD) ** 2).sum()
    assert Pairs(BASIS, cells).loss(logarithms)[0] == pytest.approx(wanted, rel=1e-4)


def test_chosen_variances_are_likelier_than_the_usual_ones_and_always_the_same() -> None:
    cells = random_cells(0)
    pairs, one = Pairs(BASIS, cells), choose(BASIS, cells)
    assert pairs.loss(packed(one))[0] < pairs.loss(packed(USUAL))[0]
    assert choose(BASIS, cells) == one


def test_noise_of_repeated_cells_is_found() -> None:
    random = np.random.default_rng(1)
    cells = many_cells(types=6, families=4, of_family=12)
    hardware, log_trainers = random.integers(0, 4, len(cells)), random.integers(0, 3, len(cells)).astype(np.float64)
    constant = random.normal(size=24)[cells.family]
    noisy, quiet = (
        choose(
            BASIS,
            Cells(
                cells.model_types,
                cells.families,
                cells.model_type,
                cells.family,
                hardware,
                log_trainers,
                cells.log_batch,
                cells.days,
                BASIS.offset(hardware, log_trainers) + constant + random.normal(scale=scale, size=len(cells)),
                cells.runs,
                cells.settings,
            ),
        )
        for scale in (0.3, 0.03)
    )

    def of_a_run(variances: Variances) -> float:
        return variances.noise + variances.family["week"] + variances.family["cell_week"]

    assert of_a_run(noisy) == pytest.approx(0.09, rel=0.4)
    assert of_a_run(quiet) < 0.01


def test_logarithms_are_unpacked_as_they_were_packed() -> None:
    again = unpacked(packed(USUAL))
    for layer in ("shared", "by_type", "family"):
        assert getattr(again, layer) == pytest.approx(getattr(USUAL, layer))
    assert again.noise == pytest.approx(USUAL.noise)


def test_covariance_of_a_layer_is_its_variances_on_the_diagonal_and_likeness_between_hardware() -> None:
    matrix = covariance(BASIS, USUAL.shared)
    hardware = BASIS.blocks["hardware"]
    np.testing.assert_allclose(matrix[hardware, hardware], 0.05 * np.eye(len(TABLE.names)) + 0.05 * BASIS.likeness)
    without = matrix.copy()
    without[hardware, hardware] = 0.0
    np.testing.assert_array_equal(without, np.diag(np.diag(without)))
    assert np.diag(without)[BASIS.blocks["trainers"]] == USUAL.shared["trainers"]


def test_layer_without_a_variance_for_a_block_has_none_of_it() -> None:
    matrix = covariance(BASIS, USUAL.by_type)
    assert not matrix[BASIS.blocks["architecture"]].any()


def test_few_cells_are_all_sampled() -> None:
    cells = random_cells(0)
    assert sample(cells) is cells


def test_sample_takes_the_latest_cells_of_families_of_many_model_types() -> None:
    cells = many_cells(types=MAX_MODEL_TYPES + 10, families=3, of_family=MAX_CELLS_OF_FAMILY + 5)
    chosen = sample(cells)
    assert len(chosen) == SAMPLE_CELLS
    assert len(np.unique(chosen.model_type)) >= SAMPLE_CELLS // MAX_CELLS_OF_FAMILY
    assert chosen.days.min() == 5.0  # of 0, 1, … within each family
    counts = np.unique(chosen.family, return_counts=True)[1]
    assert (np.sort(counts)[1:] == MAX_CELLS_OF_FAMILY).all()  # whole families, but for the last one
    assert np.array_equal(sample(cells).value, chosen.value)

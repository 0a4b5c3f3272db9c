"""Cells drawn at random, for tests of what is fitted on them."""

from __future__ import annotations

import numpy as np

from layered_oracle import SPECIFICATIONS
from leap_predictor.models.basis import Basis, HardwareTable
from leap_training.cells import Cells

TABLE = HardwareTable.of(SPECIFICATIONS)
SETTINGS = 2
BASIS = Basis(TABLE, 2.0, 3.0, TABLE.log_specs[:-1].mean(axis=0), configuration=1, architecture=1)


def random_cells(seed: int, *, types: int = 3, families: int = 3, cells: int = 4) -> Cells:
    """Up to `types` model types of up to `families` families each, of up to `cells` cells each."""
    random = np.random.default_rng(seed)
    model_type: list[int] = []
    family: list[int] = []
    for of_type in range(types):
        for number in range(int(random.integers(1, families + 1))):
            count = int(random.integers(1, cells + 1))
            model_type += [of_type] * count
            family += [families * of_type + number] * count
    count = len(model_type)
    place = np.array(family)
    batch = random.uniform(-1.0, 8.0, count)
    batch[random.random(count) < 0.2] = np.nan
    days = 20_000 + random.uniform(0, 60, count)
    return Cells(
        tuple(f"type-{number}" for number in range(types)),
        tuple(f"family-{number}" for number in range(types * families)),
        np.array(model_type),
        place,
        random.integers(0, len(TABLE.names), count),
        random.uniform(0.0, 7.0, count),
        batch,
        days[np.lexsort((days, place))],
        random.normal(8.0, 2.0, count),
        random.integers(1, 6, count).astype(np.float64),
        random.normal(size=(count, SETTINGS)),
    )

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from leap_training.cells import Cells, cells_of
from leap_training.training_set import TrainingSet
from training_rows import DAY_US, RunRow, training_set


def runs(count: int, seed: int) -> list[RunRow]:
    """Runs of few cells; a batch size of 0 is unknown."""
    random = np.random.default_rng(seed)
    return [
        RunRow(
            f"attempt-{number}",
            str(random.choice(["bert/a", "bert/b", "dlrm/a"])),
            str(random.choice(["A30", "L4"])),
            int(random.choice([1, 8])),
            float(random.choice([0.0, 32.0])),
            float(random.lognormal(3.0)),
            submitted=float(number),
            completed=number + float(random.uniform(0.1, 9)),
        )
        for number in range(count)
    ]


def grouped(rows: TrainingSet, hardware: Any, settings: Any) -> dict[tuple[object, ...], list[int]]:
    """Which rows are of which cell: one row after the other."""
    found: dict[tuple[object, ...], list[int]] = {}
    for at in range(len(rows)):
        batch = float(rows.columns["batch_size"][at])
        key = (
            rows.columns["model_type"][at],
            rows.columns["job_family"][at],
            int(hardware[at]),
            float(rows.columns["trainer_count"][at]),
            batch if batch > 0 else None,
            *settings[at].tolist(),
        )
        found.setdefault(key, []).append(at)
    return found


def as_dict(cells: Cells) -> dict[tuple[object, ...], tuple[float, float, float]]:
    return {
        (
            cells.model_types[cells.model_type[at]],
            cells.families[cells.family[at]],
            int(cells.hardware[at]),
            round(math.exp(cells.log_trainers[at]), 9),
            None if math.isnan(cells.log_batch[at]) else round(math.exp(cells.log_batch[at]), 9),
            *cells.settings[at].tolist(),
        ): (cells.days[at], cells.value[at], cells.runs[at])
        for at in range(len(cells))
    }


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_the_groups_of_a_plain_loop(seed: int) -> None:
    rows = training_set(runs(60, seed))
    random = np.random.default_rng(seed)
    hardware = (rows.columns["hardware_type"] == "L4").astype(np.int64)
    settings = random.integers(0, 2, (len(rows), 2)).astype(np.float64)
    cells = cells_of(rows, hardware, settings)
    wanted = {
        key: (
            float(np.mean(rows.columns["completed_at_us"][places] / DAY_US)),
            float(np.mean(rows.log_throughput[places])),
            float(len(places)),
        )
        for key, places in grouped(rows, hardware, settings).items()
    }
    got = as_dict(cells)
    assert len(got) == len(cells)
    assert got.keys() == wanted.keys()
    for key, values in wanted.items():
        assert got[key] == pytest.approx(values)
    assert cells.runs.sum() == len(rows)


def test_cells_stand_by_model_type_family_and_time() -> None:
    rows = training_set(runs(60, 0))
    cells = cells_of(rows, np.zeros(len(rows), dtype=np.int64), np.zeros((len(rows), 0)))
    order = list(zip(cells.model_type.tolist(), cells.family.tolist(), cells.days.tolist(), strict=True))
    assert order == sorted(order)
    assert list(cells.model_types) == sorted(cells.model_types)
    assert all(
        cells.families[family].startswith(cells.model_types[of_type] + "/")
        for of_type, family in zip(cells.model_type, cells.family, strict=True)
    )


def test_missing_batch_is_a_cell_of_its_own() -> None:
    rows = training_set(
        [RunRow("a", batch_size=0.0), RunRow("b", batch_size=0.0, submitted=1), RunRow("c", batch_size=2.0)]
    )
    cells = cells_of(rows, np.zeros(3, dtype=np.int64), np.zeros((3, 0)))
    assert sorted(cells.runs.tolist()) == [1.0, 2.0]
    assert cells.runs[np.isnan(cells.log_batch)].tolist() == [2.0]


def test_same_settings_up_to_rounding_are_the_same_cell() -> None:
    rows = training_set([RunRow("a"), RunRow("b", submitted=1), RunRow("c", submitted=2)])
    cells = cells_of(rows, np.zeros(3, dtype=np.int64), np.array([[0.1 + 0.2], [0.3], [0.4]]))
    assert cells.runs.tolist() == [2.0, 1.0]


def test_mask_or_indices_choose_cells() -> None:
    rows = training_set(runs(30, 1))
    cells = cells_of(rows, np.zeros(len(rows), dtype=np.int64), np.zeros((len(rows), 1)))
    mask = cells.model_type == 1
    chosen = cells.where(mask)
    assert len(chosen) == mask.sum()
    assert chosen.value.tolist() == cells.value[mask].tolist() == cells.where(np.flatnonzero(mask)).value.tolist()
    assert chosen.model_types == cells.model_types

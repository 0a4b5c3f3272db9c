"""The generated fleet has the paper's figures, whatever the seed, at the paper's size."""

from __future__ import annotations

from pathlib import Path

import pytest

from leap_training.fleet.calibrate import calibrate
from leap_training.fleet.files import write_fleet
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.simulate import Fleet


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_a_fleet_of_the_papers_size_has_the_papers_figures(seed: int, tmp_path: Path) -> None:
    write_fleet(Fleet(FleetSettings(seed=seed)), tmp_path, "parquet")

    found = calibrate(tmp_path)

    assert found.passed, "\n".join(found.lines())
    assert found.not_judged == 0

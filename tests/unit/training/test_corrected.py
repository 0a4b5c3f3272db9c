"""The models that correct f by one run answer where a whole column of conditions is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_training.models import RECIPES
from leap_training.training_set import read_training_set
from small_training_set import rows, write


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["corrected_ridge", "corrected_scale", "donor"])
def test_jobs_that_never_give_a_batch_size_are_answered_without_a_warning(tmp_path: Path, name: str) -> None:
    given = [row | {"batch_size": 0.0} for row in rows(120)]
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    answer = RECIPES[name].fit(training, CATALOGUE).predict(training.hidden()).log_throughput
    assert np.isfinite(answer[60:]).all()

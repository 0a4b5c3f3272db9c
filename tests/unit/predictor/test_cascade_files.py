from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from layered_oracle import attempt, run
from leap_features.hardware import CATALOGUE
from leap_predictor.bundle import specifications_of
from leap_predictor.errors import ModelError
from leap_predictor.models.cascade import Cascade
from leap_predictor.models.cascade_files import NUMBERS, TREES, from_files, to_files
from small_cascade import launched, single_regressor, small_cascade

SPECIFICATIONS = specifications_of(CATALOGUE)
FILES = to_files(small_cascade())
ROWS = launched(
    [
        attempt(hardware, 8, history, model_type=name)
        for hardware in ("A100-SXM-80", "H100-SXM-80", "Warp9")
        for name in ("bert", "never-seen")
        for history in ({}, {"family_history": run(40.0, "L4", 8)})
    ]
)


def numbers(**changes: Any) -> dict[str, bytes]:
    """Files whose numbers are changed (None: taken away)."""
    plain = json.loads(FILES[NUMBERS]) | changes
    return {**FILES, NUMBERS: json.dumps({name: value for name, value in plain.items() if value is not None}).encode()}


def trees(**changes: Any) -> dict[str, bytes]:
    """Files whose arrays are changed (None: taken away)."""
    with np.load(io.BytesIO(FILES[TREES])) as saved:
        arrays = {name: saved[name] for name in saved.files} | changes
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return {**FILES, TREES: buffer.getvalue()}


@pytest.mark.parametrize("model", [small_cascade(), single_regressor()], ids=["cascade", "single"])
def test_model_comes_back_as_it_was_written(model: Cascade) -> None:
    files = to_files(model)
    got = from_files({**files, "other.txt": b""}, SPECIFICATIONS)
    one, other = model.estimate(ROWS), got.estimate(ROWS)
    for name in ("log_throughput", "log_low", "log_high", "spread", "level"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (got.features, got.categories) == (model.features, model.categories)
    assert to_files(got) == files


@pytest.mark.parametrize("name", [NUMBERS, TREES])
def test_missing_file_is_named(name: str) -> None:
    with pytest.raises(ModelError, match=f"missing is {name}"):
        from_files({other: content for other, content in FILES.items() if other != name}, SPECIFICATIONS)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"features": None}, "missing required field `features`"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"features": []}, r"length >= 1 - at `\$\.features`"),
        ({"features": ["model_type", "log_batch"]}, r"cascade\.npz: classifier: array 'feature' must lie in \[0, 2\)"),
        ({"categories": {"model_type": [1]}}, "categories"),
        ({"regressors": 0}, "regressors"),
        ({"regressors": 1}, "must hold exactly"),
        ({"regressors": 3}, r"regressors must have one output per regressor \(3\), got 2"),
        ({"half_width_with_history": 0.0}, "half_width_with_history"),
        ({"half_width_without_history": -1.0}, "half_width_without_history"),
        ({"half_width_without_history": 1e4}, "half_width_without_history"),
        ({"half_width_without_history": "1"}, "half_width_without_history"),
    ],
)
def test_numbers_that_break_a_rule_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        from_files(numbers(**changes), SPECIFICATIONS)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"features":' + b"[" * 100_000])
def test_other_texts_are_refused(raw: bytes) -> None:
    with pytest.raises(ModelError, match=f"{NUMBERS} breaks a rule"):
        from_files({**FILES, NUMBERS: raw}, SPECIFICATIONS)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"classifier_value": None}, "must hold exactly"),
        ({"classifier_left": np.array([9, 1, 2, 3], dtype=np.int32)}, "classifier: roots and children must be nodes"),
        ({"regressors_left": np.array([0, 1, 2, 3], dtype=np.int32)}, "regressors: every node must be the root"),
        ({"regressors_value": np.full(4, np.nan, dtype=np.float32)}, "'regressors_value' must be finite"),
        ({"regressors_base": np.zeros(2)}, "'regressors_base' must be 1-dimensional <f4"),
        ({"classifier_roots": np.zeros((1, 3), dtype=np.int32)}, r"one entry per output \(3\), got 2"),
    ],
)
def test_trees_that_could_mislead_a_walk_are_refused_naming_the_forest(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        from_files(trees(**changes), SPECIFICATIONS)

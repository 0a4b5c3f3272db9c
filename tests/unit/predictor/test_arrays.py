from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from leap_predictor.errors import ModelError
from leap_predictor.models.arrays import from_npz, to_npz

KINDS = {"one": ("<f4", 1), "two": ("<i4", 2), "three": ("|b1", 1)}
ARRAYS = {"one": np.array([1.0, 2.0]), "two": np.array([[1]]), "three": np.array([True])}


def archive(**changes: Any) -> bytes:
    buffer = io.BytesIO()
    kept = from_npz(to_npz(ARRAYS, KINDS), KINDS, "a.npz") | changes
    np.savez(buffer, **{name: array for name, array in kept.items() if array is not None})
    return buffer.getvalue()


def test_arrays_come_back_with_the_types_that_are_asked_for() -> None:
    got = from_npz(to_npz(ARRAYS | {"other": np.zeros(1)}, KINDS), KINDS, "a.npz")
    assert {name: (array.dtype.str, array.ndim) for name, array in got.items()} == KINDS
    assert {name: array.tolist() for name, array in got.items()} == {"one": [1.0, 2.0], "two": [[1]], "three": [True]}


def test_same_arrays_are_the_same_bytes() -> None:
    assert to_npz(ARRAYS, KINDS) == to_npz(dict(reversed(ARRAYS.items())), KINDS)


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "a.npz is no readable .npz file"),
        (b"PK\x03\x04 nothing", "a.npz is no readable .npz file"),
        (archive()[:-30], "a.npz is no readable .npz file"),
        (archive(one=np.zeros(3)), "a.npz: 'one' must be 1-dimensional <f4, got 1-dimensional float64"),
        (archive(two=np.zeros(3, dtype=np.int32)), "'two' must be 2-dimensional <i4, got 1-dimensional int32"),
        (archive(one=np.array([np.nan], dtype=np.float32)), "'one' must be finite"),
        (archive(one=np.array([np.inf], dtype=np.float32)), "'one' must be finite"),
        (archive(extra=np.zeros(1)), "must hold exactly .* got .*'extra'"),
        (archive(two=None), "must hold exactly"),
        (archive(one=np.array([{"a": 1}], dtype=object)), "a.npz is no readable .npz file"),
    ],
)
def test_other_files_are_refused_and_nothing_is_unpickled(raw: bytes, rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        from_npz(raw, KINDS, "a.npz")

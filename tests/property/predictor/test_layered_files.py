from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged import FLIPS, SHARES, Flip, bit_flipped, flipped, truncated
from layered_oracle import attempt, columns_of, random_model, run
from leap_predictor.errors import ModelError
from leap_predictor.models.layered import Layered
from leap_predictor.models.layered_files import MATRICES, NUMBERS, from_files, to_files

_FILES = to_files(random_model())
_ROWS = columns_of(
    [
        attempt("L4", 8, {"family_history": run(40.0, "L4", 8)}, config__precision="fp32", config__layers=24),
        attempt("Warp9", 8, {}, model_type="new", config__precision=None, config__layers=None),
    ]
)


def _canonical(_: str) -> str | None:
    return None


def _read(files: dict[str, bytes]) -> Layered | None:
    try:
        return from_files(files, _canonical)
    except ModelError:
        return None


@settings(max_examples=400)
@given(name=st.sampled_from([NUMBERS, MATRICES]), flips=FLIPS)
def test_files_with_any_bytes_flipped_are_refused_or_read_to_numbers(name: str, flips: list[Flip]) -> None:
    model = _read({**_FILES, name: flipped(_FILES[name], flips)})
    if model is not None:
        for of_type in (model.never_seen, *model.model_types.values()):
            assert np.isfinite(of_type.mean).all()
        assert np.isfinite(model.covariance).all()


@settings(max_examples=100)
@given(bit=st.integers(0, len(_FILES[MATRICES]) * 8 - 1))
def test_matrices_with_a_flipped_bit_are_refused_or_still_the_same(bit: int) -> None:
    # The archive has a checksum of every array.
    model = _read({**_FILES, MATRICES: bit_flipped(_FILES[MATRICES], bit)})
    if model is not None:
        wanted = from_files(_FILES, _canonical).estimate(_ROWS)
        np.testing.assert_array_equal(model.estimate(_ROWS).log_throughput, wanted.log_throughput)


@settings(max_examples=100)
@given(name=st.sampled_from([NUMBERS, MATRICES]), share=SHARES)
def test_truncated_files_are_refused(name: str, share: float) -> None:
    assert _read({**_FILES, name: truncated(_FILES[name], share)}) is None


@settings(max_examples=200)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_are_refused(numbers: bytes, matrices: bytes) -> None:
    assert _read({NUMBERS: numbers, MATRICES: _FILES[MATRICES]}) is None
    assert _read({NUMBERS: _FILES[NUMBERS], MATRICES: matrices}) is None

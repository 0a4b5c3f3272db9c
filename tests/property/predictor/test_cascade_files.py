from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged import FLIPS, SHARES, Flip, bit_flipped, flipped, truncated
from layered_oracle import attempt, run
from leap_features.hardware import CATALOGUE
from leap_predictor.bundle import specifications_of
from leap_predictor.errors import ModelError
from leap_predictor.models.cascade import Cascade
from leap_predictor.models.cascade_files import NUMBERS, TREES, from_files, to_files
from small_cascade import launched, small_cascade

_FILES = to_files(small_cascade())
_ROWS = launched(
    [
        attempt("L4", 8, {"family_history": run(40.0, "L4", 8)}),
        attempt("H100-SXM-80", 8, {}, model_type="new"),
    ]
)
_WANTED = small_cascade().estimate(_ROWS).log_throughput.tolist()


def _read(files: dict[str, bytes]) -> Cascade | None:
    try:
        return from_files(files, specifications_of(CATALOGUE))
    except ModelError:
        return None


@settings(max_examples=400)
@given(bit=st.integers(0, len(_FILES[TREES]) * 8 - 1))
def test_trees_with_a_flipped_bit_are_refused_or_still_the_same(bit: int) -> None:
    # The archive has a checksum of every array.
    model = _read({**_FILES, TREES: bit_flipped(_FILES[TREES], bit)})
    assert model is None or model.estimate(_ROWS).log_throughput.tolist() == _WANTED


@settings(max_examples=400)
@given(name=st.sampled_from([NUMBERS, TREES]), flips=FLIPS)
def test_files_with_any_bytes_flipped_are_refused_or_read_to_numbers(name: str, flips: list[Flip]) -> None:
    model = _read({**_FILES, name: flipped(_FILES[name], flips)})
    if model is not None:
        matrix = np.zeros((2, len(model.features)), dtype=np.float32)
        assert np.isfinite(model.regressors.predict(matrix, model.chosen(matrix))).all()


@settings(max_examples=100)
@given(name=st.sampled_from([NUMBERS, TREES]), share=SHARES)
def test_truncated_files_are_refused(name: str, share: float) -> None:
    assert _read({**_FILES, name: truncated(_FILES[name], share)}) is None


@settings(max_examples=200)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_are_refused(numbers: bytes, trees: bytes) -> None:
    assert _read({**_FILES, NUMBERS: numbers}) is None
    assert _read({**_FILES, TREES: trees}) is None

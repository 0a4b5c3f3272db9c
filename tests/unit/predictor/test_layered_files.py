from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest

from layered_oracle import attempt, columns_of, random_model, run
from leap_predictor.errors import ModelError
from leap_predictor.models.layered import Layered
from leap_predictor.models.layered_files import MATRICES, NUMBERS, from_files, to_files
from small_bundle import small_files

CANONICAL = {"a100": "A100-SXM-80"}.get
FILES = to_files(random_model())
ROWS = columns_of(
    [
        attempt(hardware, trainers, history, model_type=name, config__precision="fp32", config__layers=24)
        for hardware in ("A100-SXM-80", "a100", "H100-SXM-96", "Warp9")
        for trainers in (1, 100)
        for name in ("bert", "dlrm", "never-seen")
        for history in ({}, {"family_history": run(40.0, "L4", 8), "model_history": run(70.0, "H100-SXM-80", 2)})
    ]
)


def numbers(**changes: Any) -> dict[str, bytes]:
    """Files whose numbers are changed (None: taken away)."""
    plain = json.loads(FILES[NUMBERS]) | changes
    return {**FILES, NUMBERS: json.dumps({name: value for name, value in plain.items() if value is not None}).encode()}


def matrices(**changes: Any) -> dict[str, bytes]:
    """Files whose arrays are changed (None: taken away)."""
    with np.load(io.BytesIO(FILES[MATRICES])) as saved:
        arrays = {name: saved[name] for name in saved.files} | changes
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return {**FILES, MATRICES: buffer.getvalue()}


def array(name: str) -> Any:
    with np.load(io.BytesIO(FILES[MATRICES])) as saved:
        return saved[name]


def with_bad(name: str, value: float) -> Any:
    changed = array(name).copy()
    changed.flat[-1] = value
    return changed


def in_32_bits(model: Layered) -> Layered:
    """`model` as a fit makes it: of what a bundle will hold."""
    return from_files(to_files(model), model.canonical)


def test_model_comes_back_as_it_was_written() -> None:
    wanted = in_32_bits(random_model())
    got = from_files(to_files(wanted), CANONICAL)
    one, other = wanted.estimate(ROWS), got.estimate(ROWS)
    for name in ("log_throughput", "log_low", "log_high", "uncorrected", "spread"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (got.features, got.categories) == (wanted.features, wanted.categories)


def test_files_of_what_was_read_are_the_same_bytes() -> None:
    assert to_files(from_files(FILES, CANONICAL)) == FILES


def test_layout_of_arrays_in_memory_makes_no_difference() -> None:
    # A fit's arrays come out of LAPACK by columns, a file's by rows; what is served was judged bit for bit.
    wanted = in_32_bits(random_model())
    by_columns = {
        name: dataclasses.replace(of_type, told=np.asfortranarray(of_type.told))
        for name, of_type in wanted.model_types.items()
    }
    turned = dataclasses.replace(
        wanted, model_types=by_columns, covariance=np.asfortranarray(wanted.covariance)
    ).estimate(ROWS)
    np.testing.assert_array_equal(turned.log_low, wanted.estimate(ROWS).log_low)


def test_model_that_was_never_fitted_to_settings_has_files_too() -> None:
    assert from_files(small_files(), CANONICAL).encoder.names == ()


def test_files_may_stand_beside_others() -> None:
    assert from_files({**FILES, "other.txt": b""}, CANONICAL).features


@pytest.mark.parametrize("name", [NUMBERS, MATRICES])
def test_missing_file_is_named(name: str) -> None:
    with pytest.raises(ModelError, match=f"missing is {name}"):
        from_files({other: content for other, content in FILES.items() if other != name}, CANONICAL)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"intercept": None}, "missing required field `intercept`"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"intercept": "1"}, r"Expected `float`, got `str` - at `\$\.intercept`"),
        ({"intercept": 1e13}, r"<= 1000000000000\.0 - at `\$\.intercept`"),
        ({"centre_trainers": -1e13}, "centre_trainers"),
        ({"centre_batch": [1.0]}, "centre_batch"),
        ({"centre_specs": [1.0, 2.0]}, "centre_specs"),
        ({"noise_unseen": 0.0}, "noise_unseen"),
        ({"noise_usual": -1.0}, "noise_usual"),
        ({"noise_diversity": -1.0}, "noise_diversity"),
        ({"widths": [1.0] * 6}, "widths must have 7 entries, got 6"),
        ({"widths": [1.0] * 6 + [0.0]}, "widths"),
        ({"hardware": ["A100-SXM-80", "H100-SXM-80", "L4", "V100-SXM-32"]}, "the last one '?'"),
        ({"hardware": ["L4", "H100-SXM-80", "L4", "V100-SXM-32", "?"]}, "must be different"),
        ({"hardware": ["A100-SXM-80", "?"]}, r"'log_specs' must have the shape \(2, 3\), got \(5, 3\)"),
        ({"hardware": []}, "the last one '?'"),
        ({"model_types": ["bert", "bert"]}, "names a model type twice"),
        ({"model_types": ["bert"]}, r"'means' must have the shape \(2, "),
        ({"family_weights": {"constant": 1.0}}, "family_weights must be of constant, hardware"),
        ({"configuration": []}, r"'covariance' must have the shape"),
        ({"configuration": [{"column": "config__layers", "scale": 0.0}]}, "scale"),
        ({"configuration": [{"column": "config__layers", "surprise": 0.0}]}, "unknown field `surprise`"),
        ({"architecture": [{"column": "architecture__layers"}]}, r"'covariance' must have the shape"),
    ],
)
def test_numbers_that_break_a_rule_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        from_files(numbers(**changes), CANONICAL)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"hardware":' + b"[" * 100_000])
def test_other_texts_are_refused(raw: bytes) -> None:
    with pytest.raises(ModelError, match=f"{NUMBERS} breaks a rule"):
        from_files({**FILES, NUMBERS: raw}, CANONICAL)


@pytest.mark.parametrize("name", ["log_specs", "covariance", "means", "told", "settings"])
def test_array_that_is_absent_or_of_another_kind_or_shape_or_not_finite_is_refused(name: str) -> None:
    good = array(name)
    for bad, rule in (
        (None, "must hold exactly"),
        (good.astype(np.float16), f"'{name}' must be {good.ndim}-dimensional {good.dtype.str}, got .* float16"),
        (good.astype(good.dtype.newbyteorder(">")), f"'{name}' must be"),
        (good.reshape(-1), f"'{name}' must be {good.ndim}-dimensional"),
        (good[:-1], f"'{name}' must have the shape"),
        (np.concatenate([good, good], axis=1), f"'{name}' must have the shape"),
        (with_bad(name, np.nan), f"'{name}' must be finite"),
        (with_bad(name, np.inf), f"'{name}' must be finite"),
        (np.array([{"a": 1}], dtype=object), "no readable .npz"),
    ):
        with pytest.raises(ModelError, match=rule):
            from_files(matrices(**{name: bad}), CANONICAL)


@pytest.mark.parametrize(
    "raw", [b"", b"PK\x03\x04 nothing", FILES[MATRICES][:-100], FILES[MATRICES][: len(FILES[MATRICES]) // 2]]
)
def test_file_that_is_no_archive_is_refused(raw: bytes) -> None:
    with pytest.raises(ModelError, match=f"{MATRICES} is no readable .npz file"):
        from_files({**FILES, MATRICES: raw}, CANONICAL)


def test_surplus_array_is_refused() -> None:
    with pytest.raises(ModelError, match=r"must hold exactly .* got .*'extra'"):
        from_files(matrices(extra=np.zeros(1)), CANONICAL)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_features.columns import MissingColumn
from leap_predictor.models.settings_columns import Setting, SettingsEncoder, signed_logarithm


def objects(*values: object) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def test_text_is_one_column_per_value_that_the_fit_saw_and_none_for_others() -> None:
    setting = Setting("config__precision", ("bf16", "fp32"))
    assert setting.width == 2
    assert setting.encode(objects("fp32", "bf16", "fp8", None)).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]


def test_number_is_its_logarithm_in_units_of_its_spread() -> None:
    setting = Setting("config__layers", centre=np.log1p(9.0), scale=2.0)
    encoded = setting.encode(objects(9, 9.0, np.e**2 - 1, True))[:, 0]
    assert encoded.tolist() == pytest.approx([0.0, 0.0, (2.0 - np.log(10)) / 2, (np.log(2) - np.log(10)) / 2])


def test_what_is_no_number_is_the_mean_of_what_there_was() -> None:
    setting = Setting("config__layers", centre=3.0, scale=2.0)
    given = objects(None, np.nan, np.inf, -np.inf, 1e301, 10**400, "twelve")
    assert setting.encode(given).tolist() == [[0.0]] * 7


def test_signed_logarithm_keeps_the_sign_and_0() -> None:
    assert signed_logarithm(objects(0, -1, 1)).tolist() == pytest.approx([0.0, -np.log(2), np.log(2)])
    assert np.isnan(signed_logarithm(objects(None, "1"))).all()


def test_configuration_comes_before_architecture() -> None:
    encoder = SettingsEncoder(
        (Setting("config__layers"), Setting("config__precision", ("bf16", "fp32", "fp8"))),
        (Setting("architecture__heads"),),
    )
    assert encoder.names == ("config__layers", "config__precision", "architecture__heads")
    assert encoder.widths == (4, 1)
    columns = {
        "model_type": objects("bert"),
        "config__layers": objects(0),
        "config__precision": objects("fp32"),
        "architecture__heads": np.array([np.e - 1]),
    }
    assert encoder.encode(columns).tolist() == [pytest.approx([0, 0, 1, 0, 1])]


def test_no_settings_are_no_columns() -> None:
    assert SettingsEncoder().encode({"model_type": objects("a", "b")}).shape == (2, 0)


def test_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match="'config__layers' is missing"):
        SettingsEncoder((Setting("config__layers"),)).encode({"model_type": objects("a")})

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layered_oracle import attempt, run
from leap_features.columns import MissingColumn
from leap_features.levels import BACKOFF, FAMILY, MODEL
from leap_predictor.models.served_model import NORMAL
from small_cascade import FAST, FEATURES, HALF_WIDTHS, KNOWN, SLOW, launched, single_regressor, small_cascade
from small_trees import forest

HISTORY = {"family_history": run(40.0, "L4", 8)}
OTHER_HISTORY = {"model_history": run(40.0, "L4", 8)}
ROWS = launched(
    [
        attempt("A100-SXM-80", 8, {}),
        attempt("H100-SXM-80", 8, HISTORY),
        attempt("H100-SXM-80", 8, OTHER_HISTORY),
        attempt("H100-SXM-80", 8, {}, model_type="never-seen"),
    ]
)


def estimate(model: Any = None) -> Any:
    return (model or small_cascade()).estimate(ROWS)


def test_each_row_is_answered_by_the_regressor_that_is_chosen_for_it() -> None:
    assert estimate().log_throughput.tolist() == [SLOW, KNOWN, FAST, FAST]


def test_rows_in_another_order_have_the_same_answers() -> None:
    turned = {name: values[::-1] for name, values in ROWS.items()}
    assert small_cascade().estimate(turned).log_throughput.tolist() == [FAST, FAST, KNOWN, SLOW]


def test_of_equally_likely_regressors_the_first_answers() -> None:
    even = forest(roots=[[0, 1]], feature=[0, 0], left=[0, 1], value=[1.0, 1.0], base=[0.0, 0.0], feature_count=3)
    assert estimate(small_cascade(classifier=even)).log_throughput.tolist() == [SLOW, FAST, FAST, FAST]


def test_single_regressor_answers_every_row() -> None:
    assert estimate(single_regressor()).log_throughput.tolist() == [2.5] * 4


def test_level_is_the_most_specific_one_that_features_are_made_of() -> None:
    family = BACKOFF.index(FAMILY)
    assert estimate().level.tolist() == [-1, family, -1, -1]
    assert estimate().last.tolist()[1] == pytest.approx(np.log(40.0))
    assert np.isnan(estimate().last[[0, 2, 3]]).all()
    with_models = small_cascade(features=(*FEATURES[:2], "model_history__last"))
    assert with_models.estimate(ROWS).level.tolist() == [-1, -1, BACKOFF.index(MODEL), -1]
    with_backoff = small_cascade(features=(*FEATURES[:2], "backoff__last"))
    assert with_backoff.estimate(ROWS).level.tolist() == [-1, family, BACKOFF.index(MODEL), -1]
    assert small_cascade(features=(*FEATURES[:2], "log_batch")).estimate(ROWS).level.tolist() == [-1] * 4


def test_interval_is_wider_where_there_is_no_history() -> None:
    found = estimate()
    half = np.array([HALF_WIDTHS.without_history, HALF_WIDTHS.with_history, *[HALF_WIDTHS.without_history] * 2])
    np.testing.assert_allclose(found.log_high - found.log_throughput, half)
    np.testing.assert_allclose(found.log_throughput - found.log_low, half)
    np.testing.assert_allclose(found.spread * NORMAL, half)


def test_history_is_among_the_features_and_corrects_nothing_afterwards() -> None:
    found = estimate()
    assert found.uncorrected.tolist() == found.log_throughput.tolist()
    assert found.correction.tolist() == [0.0] * 4


def test_model_types_are_those_of_the_training_data() -> None:
    assert "bert" in small_cascade().model_types
    assert "never-seen" not in small_cascade().model_types
    assert small_cascade(features=FEATURES[1:], categories={}).model_types == ()


def test_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match="family_history__last"):
        small_cascade().estimate({name: values for name, values in ROWS.items() if name != "family_history__last"})

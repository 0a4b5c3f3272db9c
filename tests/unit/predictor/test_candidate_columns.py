from __future__ import annotations

import numpy as np

from leap_features.row import feature_row
from leap_predictor.candidate_columns import candidate_columns
from leap_predictor.job import Job

NAMES = ("hardware_type", "log_trainers", "config__layers", "architecture__heads", "log_compute_s")
CATEGORIES = {"hardware_type": ("A", "B", "C", "D")}
SPECIFICATIONS = {name: {"dense_bf16_or_fp16_tflops": 100.0} for name in "ABCDE"}


def row_of(job: Job, candidates: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    columns = candidate_columns(
        job,
        list(candidates),
        [{}] * len(candidates),
        views=(),
        features=NAMES,
        specifications=SPECIFICATIONS.get,
        now_us=0,
    )
    return feature_row(columns, NAMES, CATEGORIES, SPECIFICATIONS.get)


def test_unseen_category_of_one_of_five_candidates_is_missing_and_the_others_stay_as_they_are() -> None:
    # dmlc/xgboost#11826
    job = Job("job", "bert", 8, 1.0, config={"layers": 12}, architecture={"heads": 16, "flops_per_sample": 1e14})
    five, four = row_of(job, "ABECD"), row_of(job, "ABCD")
    np.testing.assert_array_equal(five[[0, 1, 3, 4]], four)
    assert np.isnan(five[2, 0])
    np.testing.assert_allclose(five[2, 1:], [np.log(8), 12, 16, 0.0])


def test_what_a_job_does_not_say_is_missing() -> None:
    assert np.isnan(row_of(Job("job", "bert", 8), "A")[0, 2:]).all()


def test_job_without_readers_is_taken_as_its_completion_event_will_say() -> None:
    columns = candidate_columns(
        Job("job", "bert", 8), ["A"], [{}], views=(), features=(), specifications=SPECIFICATIONS.get, now_us=0
    )
    assert columns["reader_count"].tolist() == [0.0]

"""Faults that users of models and launchers have met, from a fitted model to the launcher's answer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from leap_features.hardware import CATALOGUE
from leap_predictor import Job, Predictor, Reason
from leap_predictor.bundle import CURRENT, MANIFEST
from leap_predictor.manifest import FORMAT
from leap_training.layered import fit, with_settings
from leap_training.training_set import TrainingSet, read_training_set
from published_fit import publish_fit
from services import RedisServer
from small_bundle import publish_small_bundle
from small_training_set import rows, write
from stored_history import store_meta

PATIENT_S = 30.0


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(300))).rows


def publish(training: TrainingSet, bundles: Path, project: str) -> None:
    publish_fit(fit(training, CATALOGUE, intervals=False), training, bundles, project=project)


def test_columns_in_another_order_give_the_same_predictions(training: TrainingSet) -> None:
    # dmlc/xgboost#8357: feature columns in another order.
    model = fit(training, CATALOGUE, intervals=False).model
    columns = with_settings(training, model.encoder)
    turned = dict(reversed(list(columns.items())))
    np.testing.assert_array_equal(model.estimate(columns).log_throughput, model.estimate(turned).log_throughput)


def test_bundle_whose_feature_names_were_swapped_is_refused_not_served(tmp_path: Path) -> None:
    # dmlc/xgboost#8357: never a silent swap.
    publish_small_bundle(tmp_path, project="leap")
    path = tmp_path / (tmp_path / CURRENT).read_text().strip() / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["features"] = manifest["features"][::-1]
    path.write_text(json.dumps(manifest))
    with Predictor.open(tmp_path, "redis://127.0.0.1:1/0") as predictor:
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "damaged" in answer.message


def test_unseen_model_type_and_unseen_hardware_are_judged_and_the_unknown_one_dropped(
    training: TrainingSet, redis_client: redis.Redis, redis_server: RedisServer, project: str, tmp_path: Path
) -> None:
    # dmlc/xgboost#11826: an unseen category on one of five candidates.
    publish(training, tmp_path, project)
    store_meta(redis_client, project)
    candidates = ["A100-SXM-80", "H100-SXM-80", "L4", "MI300X", "Warp9"]
    with Predictor.open(tmp_path, redis_server.url, deadline_s=PATIENT_S, project=project) as predictor:
        for model_type in ("bert", "never-seen"):
            choices = predictor.rank(Job("train", model_type, 8, batch_size=32, reader_count=2), candidates)
            assert {choice.hardware_type for choice in choices} == set(candidates) - {"Warp9"}


@pytest.mark.parametrize(
    "changes", [{"batch_size": None}, {"reader_count": None}, {"batch_size": 0}, {"batch_size": 1e39}]
)
def test_missing_and_absurd_numbers_of_a_job_reach_the_model_as_missing(
    training: TrainingSet,
    redis_client: redis.Redis,
    redis_server: RedisServer,
    project: str,
    tmp_path: Path,
    changes: dict[str, Any],
) -> None:
    # dmlc/xgboost#8213, dmlc/xgboost#6851: None is missing; dmlc/xgboost#1869: no inf or 1e39 reaches a model.
    publish(training, tmp_path, project)
    store_meta(redis_client, project)
    job = {"job_name": "train", "model_type": "bert", "trainer_count": 8, "batch_size": 32, "reader_count": 2}
    with Predictor.open(tmp_path, redis_server.url, deadline_s=PATIENT_S, project=project) as predictor:
        answer = predictor.explain(job | changes, ["A100-SXM-80"])
    assert len(answer.choices) == 1
    features = answer.candidates[0].features
    values = [value for value in features.values() if isinstance(value, float)]
    assert all(abs(value) < 1e6 for value in values)
    assert (features["log_batch"] is None) == (changes.get("batch_size", 32) in (None, 0))
    assert answer.choices[0].throughput_low < answer.choices[0].throughput < answer.choices[0].throughput_high


def test_attempt_without_trainers_makes_no_infinite_ratio(tmp_path: Path) -> None:
    # dmlc/xgboost#1869: readers ÷ trainers with 0 trainers.
    training = read_training_set(write(tmp_path / "set.parquet", rows(50))).rows
    model = fit(training, CATALOGUE, intervals=False).model
    trainers = training.columns["trainer_count"].copy()
    trainers[3] = 0
    estimate = model.estimate({**with_settings(training, model.encoder), "trainer_count": trainers})
    assert np.isnan(estimate.uncorrected[3])
    assert np.isfinite(np.delete(estimate.log_throughput, 3)).all()


def test_month_with_one_row_of_throughput_zero_is_fitted_without_it(tmp_path: Path) -> None:
    # calo-forest#1
    given = rows(100)
    given[10]["throughput"], given[10]["log_throughput"] = 0.0, float("-inf")
    read = read_training_set(write(tmp_path / "set.parquet", given))
    assert read.set_aside == 1
    model = fit(read.rows, CATALOGUE, intervals=False).model
    assert np.isfinite(model.estimate(with_settings(read.rows, model.encoder)).uncorrected).all()


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_bundle_of_another_format_is_refused_naming_both_versions(tmp_path: Path, other: int) -> None:
    # dmlc/xgboost#9871: a model written by another release.
    publish_small_bundle(tmp_path, project="leap")
    old = tmp_path / (tmp_path / CURRENT).read_text().strip()
    manifest = json.loads((old / MANIFEST).read_text()) | {"format": other, "library_version": "9.9.9", "new": {}}
    raw = json.dumps(manifest).encode()
    new = tmp_path / f"20270101T000000Z-{hashlib.sha256(raw).hexdigest()[:16]}"
    old.rename(new)
    (new / MANIFEST).write_bytes(raw)
    (tmp_path / CURRENT).write_text(new.name)
    with Predictor.open(tmp_path, "redis://127.0.0.1:1/0") as predictor:
        assert predictor.rank(Job("train", "bert", 8), ["A100"]) == []
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert f"format {other} (written by leap-throughput 9.9.9)" in answer.message
    assert f"reads format {FORMAT}" in answer.message

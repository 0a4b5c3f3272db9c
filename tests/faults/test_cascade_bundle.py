"""Faults that users of boosted trees have met, on a bundle of trees: from XGBoost's fit to the launcher's answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from leap_features.hardware import CATALOGUE
from leap_predictor import Job, Predictor, Reason
from leap_predictor.bundle import CURRENT, MANIFEST
from leap_predictor.errors import BundleError
from leap_predictor.manifest import FORMAT
from leap_predictor.models.cascade_files import NUMBERS, TREES
from leap_training.served_trees import FittedTrees, TreeModel
from leap_training.training_set import TrainingSet, read_training_set
from published_fit import publish_fit
from services import RedisServer
from small_cascade import FEATURES, publish_small_cascade, small_cascade
from small_forests import small_forests
from small_training_set import rows, write
from stored_history import store_meta

PATIENT_S = 30.0
JOB = {"job_name": "train", "model_type": "bert", "trainer_count": 8, "batch_size": 32, "reader_count": 2}
KNOWN = {"precision": "bf16", "layers": 12}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(300))).rows


@pytest.fixture(scope="module", params=["leap", "xgboost"])
def fitted(request: pytest.FixtureRequest, training: TrainingSet) -> FittedTrees:
    name: TreeModel = request.param
    return small_forests(name, training)


@pytest.fixture
def predictor(
    fitted: FittedTrees,
    training: TrainingSet,
    redis_client: redis.Redis,
    redis_server: RedisServer,
    project: str,
    tmp_path: Path,
) -> Iterator[Predictor]:
    publish_fit(fitted, training, tmp_path, project=project)
    store_meta(redis_client, project)
    with Predictor.open(tmp_path, redis_server.url, deadline_s=PATIENT_S, project=project) as opened:
        yield opened


def asked_of_xgboost(fitted: FittedTrees, training: TrainingSet, **changes: Any) -> float:
    """What XGBoost says of `JOB` on an A100 without history, asked through a training row that is made the same."""
    row = training.where(np.array([0]))
    columns: dict[str, Any] = dict(fitted.fitted.features.columns(row))
    empty = {name: np.array([None]) for name in columns if "history__" in name}
    specs = CATALOGUE["A100-SXM-80"].specs()
    asked: dict[str, Any] = {name: np.array([value]) for name, value in (JOB | changes).items() if name in columns}
    asked |= {
        name: np.array([changes.get(name)]) for name in columns if name.startswith(("config__", "architecture__"))
    }
    asked |= {f"hardware_specs__{name}": np.array([value], dtype=np.float64) for name, value in specs.items()}
    matrix = fitted.model.matrix({**columns, **empty, **asked, "hardware_type": np.array(["A100-SXM-80"])})
    return float(np.exp(fitted.fitted.predict_matrix(matrix)[0]))


def test_fields_in_another_order_give_the_same_answer(predictor: Predictor) -> None:
    # dmlc/xgboost#8357: feature columns in another order.
    asked = JOB | {"config": KNOWN}
    turned = {**dict(reversed(asked.items())), "config": dict(reversed(KNOWN.items()))}
    candidates = ["A100-SXM-80", "H100-SXM-80"]
    assert predictor.rank(asked, candidates) == predictor.rank(turned, candidates) != []


@pytest.mark.parametrize("swapped", [MANIFEST, NUMBERS])
def test_bundle_whose_feature_names_were_swapped_is_refused_not_served(tmp_path: Path, swapped: str) -> None:
    # dmlc/xgboost#8357: never a silent swap.
    publish_small_cascade(tmp_path)
    path = tmp_path / (tmp_path / CURRENT).read_text().strip() / swapped
    plain = json.loads(path.read_text())
    plain["features"] = plain["features"][::-1]
    path.write_text(json.dumps(plain))
    with Predictor.open(tmp_path, "redis://127.0.0.1:1/0") as predictor:
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "damaged" in answer.message or "must not be larger" in answer.message


def test_swapped_names_are_not_published_either(tmp_path: Path) -> None:
    # dmlc/xgboost#8357
    with pytest.raises(BundleError, match="the model and the manifest name different features"):
        publish_small_cascade(tmp_path, features=FEATURES[::-1])
    categories = {"model_type": ("dlrm", "bert")}
    with pytest.raises(BundleError, match="the model and the manifest name different features or categories"):
        publish_small_cascade(tmp_path, small_cascade(), categories=categories)


def test_unseen_categories_are_judged_as_missing_and_the_unknown_candidate_dropped(
    predictor: Predictor, fitted: FittedTrees, training: TrainingSet
) -> None:
    # dmlc/xgboost#11826: an unseen category on one of five candidates.
    candidates = ["A100-SXM-80", "H100-SXM-80", "L4", "MI300X", "Warp9"]
    for model_type, config in (("bert", KNOWN), ("never-seen", KNOWN), ("bert", {"precision": "fp4", "layers": 12})):
        answer = predictor.explain(JOB | {"model_type": model_type, "config": config}, candidates)
        by_type = {choice.hardware_type: choice for choice in answer.choices}
        assert set(by_type) == set(candidates) - {"Warp9"}
        known = {"config__precision": config["precision"], "config__layers": 12}
        wanted = asked_of_xgboost(fitted, training, model_type=model_type, **known)
        assert by_type["A100-SXM-80"].throughput == pytest.approx(wanted, rel=1e-12)
        seen = answer.candidates[0].features
        assert seen["model_type"] == (model_type if model_type == "bert" else None)
        assert seen["config__precision"] == (config["precision"] if config is KNOWN else None)


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": None},
        {"reader_count": None},
        {"batch_size": 0},
        {"batch_size": 1e39},
        {"config": {"layers": None, "precision": None}},
        {"config": {"layers": 1e39, "precision": "bf16"}},
    ],
)
def test_missing_and_absurd_numbers_reach_the_trees_as_missing(
    predictor: Predictor, fitted: FittedTrees, training: TrainingSet, changes: dict[str, Any]
) -> None:
    # dmlc/xgboost#8213, dmlc/xgboost#6851: None is missing; dmlc/xgboost#1869: no inf or 1e39 reaches a model.
    asked = JOB | {"config": KNOWN} | changes
    answer = predictor.explain(asked, ["A100-SXM-80"])
    (choice,) = answer.choices
    features = answer.candidates[0].features
    computed = [value for name, value in features.items() if isinstance(value, float) and name != "config__layers"]
    assert all(abs(value) < 1e6 for value in computed)
    assert (features["log_batch"] is None) == (asked["batch_size"] in (None, 0))
    plain = {f"config__{name}": None if value == 1e39 else value for name, value in asked["config"].items()}
    batch_size, readers = asked["batch_size"] or np.nan, asked["reader_count"] or 0
    wanted = asked_of_xgboost(fitted, training, batch_size=batch_size, reader_count=readers, **plain)
    assert choice.throughput == pytest.approx(wanted, rel=1e-12)
    assert choice.throughput_low < choice.throughput < choice.throughput_high


def test_attempt_without_trainers_makes_no_infinite_ratio(fitted: FittedTrees, training: TrainingSet) -> None:
    # dmlc/xgboost#1869: readers ÷ trainers with 0 trainers.
    columns = dict(fitted.fitted.features.columns(training))
    trainers = columns["trainer_count"].copy()
    trainers[3] = 0
    columns["trainer_count"] = trainers
    at = fitted.model.features.index("readers_per_trainer")
    matrix = fitted.model.matrix(columns)
    assert np.isnan(matrix[3, at])
    assert not np.isinf(matrix).any()
    assert np.nanmax(np.abs(matrix)) < 1e6
    found = fitted.model.estimate(columns).log_throughput
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, fitted.fitted.predict_matrix(matrix))


def rewritten(bundles: Path, **changes: Any) -> Callable[[], Predictor]:
    """The current bundle with a changed manifest, whose digest is right."""
    old = bundles / (bundles / CURRENT).read_text().strip()
    raw = json.dumps(json.loads((old / MANIFEST).read_text()) | changes).encode()
    new = bundles / f"20270101T000000Z-{hashlib.sha256(raw).hexdigest()[:16]}"
    old.rename(new)
    (new / MANIFEST).write_bytes(raw)
    (bundles / CURRENT).write_text(new.name)
    return lambda: Predictor.open(bundles, "redis://127.0.0.1:1/0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": FORMAT + 1}, f"format {FORMAT + 1} (written by leap-throughput 9.9.9), this release "),
        ({"format": FORMAT - 1}, f"format {FORMAT - 1} (written by leap-throughput 9.9.9), this release "),
        ({"model": "leap-of-tomorrow"}, "model 'leap-of-tomorrow' (written by leap-throughput 9.9.9), this release "),
    ],
)
def test_bundle_of_another_release_is_refused_naming_both_versions(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    # dmlc/xgboost#9871: a model written by another release.
    publish_small_cascade(tmp_path)
    with rewritten(tmp_path, library_version="9.9.9", **changes)() as predictor:
        assert predictor.rank(Job("train", "bert", 8), ["A100"]) == []
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert said in answer.message


def test_cascade_that_claims_to_be_layered_is_refused(tmp_path: Path) -> None:
    publish_small_cascade(tmp_path)
    with rewritten(tmp_path, model="layered")() as predictor:
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "missing is layered.json, layered.npz" in answer.message


def test_trees_that_were_exchanged_for_those_of_another_bundle_are_refused(tmp_path: Path) -> None:
    one = tmp_path / "one" / publish_small_cascade(tmp_path / "one")
    other = tmp_path / "other"
    publish_small_cascade(other, small_cascade(classifier=small_cascade().regressors))
    (one / TREES).write_bytes((other / (other / CURRENT).read_text().strip() / TREES).read_bytes())
    with Predictor.open(tmp_path / "one", "redis://127.0.0.1:1/0") as predictor:
        answer = predictor.explain(Job("train", "bert", 8), ["A100"])
    assert answer.reason is Reason.BUNDLE_UNREADABLE
    assert "damaged" in answer.message

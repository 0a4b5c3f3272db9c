"""`leap` and `xgboost` from a training set to a ranking: `leap train`, history in a Redis, `Predictor.rank`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from click.testing import CliRunner

from leap_features.columns import history_column, specification_columns
from leap_features.hardware import CATALOGUE, SPECS
from leap_features.history import features
from leap_features.levels import LEVELS
from leap_features.row import feature_row
from leap_predictor import Job, Predictor
from leap_predictor.bundle import load, specifications_of
from leap_predictor.cli import rank_command
from leap_predictor.models.cascade import Cascade
from leap_training.cli import train_command
from leap_training.feature_models import FeatureModel, FeatureRecipe
from leap_training.models import RECIPES
from leap_training.training_set import TrainingSet, read_training_set
from services import RedisServer
from small_training_set import rows, write
from stored_history import Subject, store_meta, store_runs

CANDIDATES = ["A100-SXM-80", "H100-SXM-80", "L4", "A30"]
CONFIG = {"precision": "bf16", "layers": 12}
JOB = Job(
    "family-1",
    "bert",
    trainer_count=8,
    batch_size=32,
    reader_count=2,
    config=CONFIG,
    job_family="family-1",
    architecture={"layers": 12.0},
)
SUBJECT = Subject("bert/family-1", "bert", "A100-SXM-80", 8)
PATIENT_S = 30.0


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("set") / "set.parquet", rows(300))


@pytest.fixture(scope="module")
def training(dataset: Path) -> TrainingSet:
    return read_training_set(dataset).rows


@pytest.fixture(params=["leap", "xgboost"])
def name(request: pytest.FixtureRequest) -> str:
    given: str = request.param
    return given


@pytest.fixture
def bundles(dataset: Path, name: str, project: str, tmp_path: Path) -> Path:
    arguments = [str(dataset), "--bundles", str(tmp_path), "--model", name]
    result = CliRunner().invoke(train_command, arguments, env={"LEAP_PROJECT": project})
    assert result.exit_code == 0, result.output
    return tmp_path


@pytest.fixture
def fitted(training: TrainingSet, name: str) -> FeatureModel:
    """The same fit by XGBoost alone."""
    recipe = RECIPES[name]
    assert isinstance(recipe, FeatureRecipe)
    return recipe.fit(training, CATALOGUE)


def wanted(fitted: FeatureModel, history: dict[str, Any], now_us: int) -> dict[str, float]:
    """ln throughput by candidate, of features made of columns by hand: of candidates' histories by view."""
    count = len(CANDIDATES)
    types = np.array(CANDIDATES, dtype=object)
    columns: dict[str, Any] = {
        "model_type": np.full(count, JOB.model_type, dtype=object),
        "hardware_type": types,
        "trainer_count": np.full(count, 8),
        "reader_count": np.full(count, 2),
        "batch_size": np.full(count, 32.0),
        "submitted_at_us": np.full(count, now_us),
        "architecture__layers": np.full(count, 12.0),
        **{f"config__{key}": np.full(count, value, dtype=object) for key, value in CONFIG.items()},
        **specification_columns(types, specifications_of(CATALOGUE), SPECS),
    }
    for level in LEVELS:
        alike = [level.key(SUBJECT) == level.key(SUBJECT._replace(hardware_type=each)) for each in CANDIDATES]
        values = features(history[level.view]) if level.view in history else {}
        for feature in ("last", "mean", "std", "count", "last_seen"):
            columns[history_column(level.view, feature)] = np.array(
                [values.get(feature, np.nan) if same else np.nan for same in alike], dtype=np.float64
            )
    given = fitted.features
    matrix = feature_row(columns, given.names, given.categories, given.specifications)
    return dict(zip(CANDIDATES, fitted.predict_matrix(matrix).tolist(), strict=True))


@pytest.mark.parametrize("throughputs", [[], [900.0, 1100.0, 1000.0]], ids=["no history", "history"])
def test_launcher_ranks_by_what_xgboost_predicts(
    bundles: Path,
    fitted: FeatureModel,
    redis_client: redis.Redis,
    redis_server: RedisServer,
    project: str,
    throughputs: list[float | None],
) -> None:
    store_meta(redis_client, project)
    history = store_runs(redis_client, project, SUBJECT, throughputs) if throughputs else {}
    now_us = time.time_ns() // 1000
    expected = wanted(fitted, history, now_us)
    with Predictor.open(bundles, redis_server.url, deadline_s=PATIENT_S, project=project) as predictor:
        choices = predictor.rank(JOB, CANDIDATES)
        answer = predictor.explain(JOB, CANDIDATES)
    assert {choice.hardware_type: np.log(choice.throughput) for choice in choices} == pytest.approx(expected, abs=1e-9)
    costs = {name: CATALOGUE[name].hourly_cost_usd or 0.0 for name in CANDIDATES}
    scores = {name: np.exp(value) / (8 * costs[name]) for name, value in expected.items()}
    assert [choice.hardware_type for choice in choices] == sorted(CANDIDATES, key=lambda each: -scores[each])
    model = load(bundles).model
    assert isinstance(model, Cascade)
    half = model.half_widths.with_history if throughputs else model.half_widths.without_history
    for choice in choices:
        assert choice.level == ("family_history" if throughputs else None)
        assert choice.throughput_high / choice.throughput == pytest.approx(np.exp(half))
        assert choice.throughput / choice.throughput_low == pytest.approx(np.exp(half))
    for report in answer.candidates:
        assert report.correction == 1.0
        assert report.features["config__precision"] == "bf16"
        assert report.features["architecture__layers"] == 12.0
        assert (report.features["family_history__last"] is None) == (not throughputs)


def test_rank_command_shows_and_explains_a_bundle_of_trees(
    bundles: Path, redis_client: redis.Redis, redis_server: RedisServer, project: str, tmp_path: Path
) -> None:
    store_meta(redis_client, project)
    store_runs(redis_client, project, SUBJECT, [1000.0])
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"job_name": "family-1", "model_type": "bert", "trainer_count": 8, "config": CONFIG}))
    arguments = ["--job", str(job), "--candidates", "A100-SXM-80,L4,Warp9", "--bundles", str(bundles), "--explain"]
    environment = {"LEAP_PROJECT": project, "LEAP_REDIS_URL": redis_server.url}
    result = CliRunner().invoke(rank_command, [*arguments, "--deadline", "30"], env=environment)
    assert result.exit_code == 0, result.output
    assert "A100-SXM-80" in result.output
    assert "Warp9: unknown hardware" in result.output
    assert "family_history__last" in result.output


def test_text_where_the_trees_know_numbers_is_refused_naming_the_key(
    bundles: Path, redis_client: redis.Redis, redis_server: RedisServer, project: str
) -> None:
    # dmlc/xgboost#9715: a number arrives as text.
    store_meta(redis_client, project)
    with Predictor.open(bundles, redis_server.url, deadline_s=PATIENT_S, project=project) as predictor:
        answer = predictor.explain(Job("family-1", "bert", 8, config={"layers": "12"}), CANDIDATES)
    assert answer.choices == ()
    assert "config.layers = '12': the model was trained on numbers there" in answer.message

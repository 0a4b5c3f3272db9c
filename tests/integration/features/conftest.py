"""A fresh feature store per test: own project, registry and history folder on the run's Redis."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from feast import FeatureStore

from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.settings import Settings
from services import RedisServer

REPOSITORY = Path(__file__).parents[3] / "feature_repo"


@pytest.fixture
def deployment(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Settings:
    """Settings without Kafka; Redis is emptied."""
    return Settings(
        redis_url=redis_server.url, project=project, history=str(tmp_path / "history"), feature_repo=str(REPOSITORY)
    )


@pytest.fixture
def store(deployment: Settings, tmp_path: Path) -> FeatureStore:
    """A feature store with the repository's definitions applied; no history yet."""
    opened = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(opened, deployment)
    return opened

"""A deployment without a broker: an archive, a Redis, and a Feast registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from leap_features.family import DEFAULT_RULES
from leap_features.settings import Settings
from leap_streams.rebuild import Rebuilt, rebuild
from leap_streams.topic_bounds import Bounds
from services import RedisServer

FEATURE_REPO = Path(__file__).parents[3] / "feature_repo"


@pytest.fixture
def deployment(tmp_path: Path, redis_server: RedisServer, redis_client: redis.Redis, project: str) -> Settings:
    return Settings(
        archive=str(tmp_path / "archive"),
        history=str(tmp_path / "history"),
        feature_repo=str(FEATURE_REPO),
        redis_url=redis_server.url,
        project=project,
        allow_create_time=True,
    )


Rebuild = Callable[..., Rebuilt]


@pytest.fixture
def rebuild_store(deployment: Settings) -> Rebuild:
    """`leap rebuild` of the deployment; `bounds` is what the broker says of the topic, None being no answer."""

    def run(bounds: Mapping[int, Bounds] | None = None, **options: Any) -> Rebuilt:
        return rebuild(
            deployment,
            rules=DEFAULT_RULES,
            bounds_of=lambda _settings: bounds,
            **{"acknowledged_of": lambda _settings, _partitions: {}, **options},
        )

    return run

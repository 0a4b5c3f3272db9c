"""The launcher's direct reader and Feast's get_online_features give the same values of the same store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import redis

from fleet_history import history_rows, made_up_fleet, table_of
from leap_features import hardware_specs
from leap_features.columns import specification_columns
from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.hardware import CATALOGUE, SPECS
from leap_features.levels import LEVELS
from leap_features.settings import Settings
from leap_predictor.bundle import specifications_of
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.manifest import SERVED_FEATURES, history_views
from services import RedisServer
from stored_history import Subject

REPOSITORY = Path(__file__).parents[3] / "feature_repo"


@pytest.fixture
def deployment(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Settings:
    return Settings(
        redis_url=redis_server.url, project=project, history=str(tmp_path / "history"), feature_repo=str(REPOSITORY)
    )


def test_reader_gives_what_get_online_features_gives(deployment: Settings, tmp_path: Path) -> None:
    store = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(store, deployment)
    fleet = made_up_fleet(300)
    fleet += [run._replace(job_family="bért-日本/Ünï 🚀:x", hardware_type="H100 ×2") for run in fleet[::10]]
    for level in LEVELS:
        store.write_to_online_store(level.view, table_of(level, history_rows(level, fleet)).to_pandas())
    store.write_to_online_store(hardware_specs.VIEW, hardware_specs.table().to_pandas())

    subjects = [
        Subject(family, family.partition("/")[0], hardware_type, trainers)
        for family in ("bert/pretrain", "bert/tune", "resnet/train", "new/family", "bért-日本/Ünï 🚀:x")
        for hardware_type in ("A100", "H100", "L4", "H100 ×2")
        for trainers in (1, 8, 64, 128)
    ]
    answer = store.get_online_features(
        store.get_feature_service("ranking_v1"),
        [subject._asdict() for subject in subjects],
        full_feature_names=True,
    ).to_dict()
    reader = HistoryReader(deployment.redis_url, deployment.project)
    reading = reader.read(history_views(), subjects, within_s=30.0)
    reader.close()

    compared = 0
    for at, rows in enumerate(reading.rows):
        for level in LEVELS:
            stored = rows[level.view]
            for name, _ in SERVED_FEATURES:
                wanted = answer[f"{level.view}__{name}"][at]
                got = None if stored is None else stored.features[name]
                assert got == wanted, (subjects[at], level.view, name)
                compared += wanted is not None
    assert compared > 1000

    # The bundle's catalogue gives what Feast's view of the hardware gives.
    types = np.array([subject.hardware_type for subject in subjects], dtype=object)
    for name, values in specification_columns(types, specifications_of(CATALOGUE), SPECS).items():
        assert [None if np.isnan(value) else value for value in values] == answer[name]

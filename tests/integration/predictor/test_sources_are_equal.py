"""Redis read directly, through Feast's SDK, and from a snapshot: the same values for the same subjects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis

from fleet_history import history_rows, made_up_fleet, table_of
from leap_features.feature_store import apply_definitions, configuration, open_feature_store
from leap_features.layout import encode_timestamp, encode_value, entity_key, field, timestamp_field
from leap_features.levels import LEVELS
from leap_features.settings import Settings
from leap_predictor.history.feast_reader import FeastReader, tagged_meta, write_meta_tags
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.history.request import MetaReading, Reading, StoredRow
from leap_predictor.history.snapshot_reader import SnapshotReader
from leap_predictor.history.snapshot_rows import OnlineRows
from leap_predictor.history.snapshot_writer import write_snapshot
from leap_predictor.history.source import HistorySource
from leap_predictor.manifest import history_views
from services import RedisServer
from stored_history import Subject, store_meta, store_runs

REPOSITORY = Path(__file__).parents[3] / "feature_repo"
VIEWS = history_views()
PATIENT_S = 120.0
"""Importing Feast takes seconds on a busy machine."""

ODD = "bért-日本/Ünï 🚀:x"
FAILING = Subject("bert/never-succeeded", "bert", "L4", 3)
EMPTY = Subject("bert/values-are-absent", "bert", "V100", 2)
SUBJECTS = [
    FAILING,
    EMPTY,
    *(
        Subject(family, family.partition("/")[0], hardware_type, trainers)
        for family in ("bert/pretrain", "bert/tune", "resnet/train", "new/family", ODD)
        for hardware_type in ("A100", "H100", "L4", "H100 ×2")
        for trainers in (1, 8, 64, 128)
    ),
    FAILING,  # asked for twice
]


@pytest.fixture
def deployment(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Settings:
    return Settings(
        redis_url=redis_server.url, project=project, history=str(tmp_path / "history"), feature_repo=str(REPOSITORY)
    )


def fill(store: object, deployment: Settings) -> None:
    fleet = made_up_fleet(300)
    fleet += [run._replace(job_family=ODD, hardware_type="H100 ×2") for run in fleet[::10]]
    for level in LEVELS:
        store.write_to_online_store(level.view, table_of(level, history_rows(level, fleet)).to_pandas())  # type: ignore[attr-defined]


@pytest.fixture
def sources(deployment: Settings, redis_client: redis.Redis, tmp_path: Path) -> Iterator[dict[str, HistorySource]]:
    project = deployment.project
    registry = tmp_path / "registry.db"
    store = open_feature_store(deployment, registry)
    apply_definitions(store, deployment)
    fill(store, deployment)
    store_meta(redis_client, project)
    store_runs(redis_client, project, FAILING, [None, None, None])
    for level in LEVELS:  # a row of which nothing but its time is known, and an absent field beside an empty one
        key = entity_key(project, level.join_keys, level.key(EMPTY))
        redis_client.hset(key, timestamp_field(level.view), encode_timestamp(1_700_000_000_123_456))
        redis_client.hset(key, field(level.view, "mean"), encode_value(None))
    rows = OnlineRows(redis_client, project, VIEWS)
    path = tmp_path / "history.snapshot"
    write_snapshot(path, rows, views=VIEWS, project=project, meta=rows.meta, as_of=datetime.now(UTC))
    snapshot = SnapshotReader(path, project)
    snapshot.refresh()
    made: dict[str, HistorySource] = {
        "redis": HistoryReader(deployment.redis_url, project),
        "feast": FeastReader(lambda: open_feature_store(deployment, registry)),
        "snapshot": snapshot,
    }
    for source in made.values():
        source.warm_up()
    yield made
    for source in made.values():
        source.close()


def test_all_sources_give_the_same_meta_and_rows(sources: dict[str, HistorySource]) -> None:
    readings = {name: source.read(VIEWS, SUBJECTS, within_s=PATIENT_S) for name, source in sources.items()}
    live = readings["redis"]
    check_cases(live)
    for name, reading in readings.items():
        assert reading.meta == live.meta, name
        assert reading.torn == live.torn, name
        assert len(reading.rows) == len(SUBJECTS)
        for subject, got, wanted in zip(SUBJECTS, reading.rows, live.rows, strict=True):
            assert got == wanted, (name, subject)
            for view, row in got.items():  # 1 == 1.0, and a launcher's model would take either
                types = None if row is None else [type(value) for value in row.features.values()]
                other = wanted[view]
                assert types == (None if other is None else [type(value) for value in other.features.values()])


def to_the_second(rows: Mapping[str, StoredRow | None]) -> dict[str, object]:
    """Rows whose record times have the resolution of Feast's SQLite store."""
    return {
        view: None if row is None else (row.features, (row.recorded_at_us or 0) // 1_000_000)
        for view, row in rows.items()
    }


def check_cases(live: Reading) -> None:
    """Whether the cases that this test is about are there at all."""
    rows = dict(zip(SUBJECTS, live.rows, strict=True))
    failing = rows[FAILING]["family_history"]
    assert failing is not None
    assert (failing.features["failures_since_success"], failing.features["count"], failing.features["last"]) == (
        3,
        0,
        None,
    )
    empty = rows[EMPTY]["family_history"]
    assert empty is not None
    assert set(empty.features.values()) == {None}
    assert empty.recorded_at_us == 1_700_000_000_123_456
    assert rows[Subject("new/family", "new", "L4", 1)]["family_history"] is None
    odd = rows[Subject(ODD, ODD.partition("/")[0], "H100 ×2", 8)]["family_hardware_history"]
    assert odd is not None
    assert odd.features["last_hardware_type"] == "H100 ×2"
    whole = [
        row for of_subject in live.rows for row in of_subject.values() if row and None not in row.features.values()
    ]
    assert len(whole) > 100


def test_rebuilding_is_seen_through_feast_too(
    sources: dict[str, HistorySource], redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project, state="rebuilding")
    for name in ("redis", "feast"):
        meta = sources[name].read(VIEWS, SUBJECTS[:1], within_s=PATIENT_S).meta
        assert meta is not None
        assert meta.state == "rebuilding"
    redis_client.delete(f"leap:{project}:meta")
    for name in ("redis", "feast"):
        assert sources[name].read(VIEWS, SUBJECTS[:1], within_s=PATIENT_S).meta is None


def test_another_online_store_gives_the_same_rows_and_says_what_they_are_in_tags(
    deployment: Settings, redis_client: redis.Redis, tmp_path: Path
) -> None:
    from feast import FeatureStore, RepoConfig

    # What the repository says, but for the online store.
    values = configuration(deployment) | {
        "project": deployment.project,
        "registry": str(tmp_path / "sqlite-registry.db"),
        "online_store": {"type": "sqlite", "path": str(tmp_path / "online.db")},
    }

    def open_store() -> FeatureStore:
        config = RepoConfig(**values)
        config.repo_path = REPOSITORY
        return FeatureStore(repo_path=str(REPOSITORY), config=config)

    other = open_store()
    apply_definitions(other, deployment)
    fill(other, deployment)
    ours = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(ours, deployment)
    fill(ours, deployment)
    direct = HistoryReader(deployment.redis_url, deployment.project)
    live = direct.read(VIEWS, SUBJECTS, within_s=PATIENT_S)
    direct.close()

    untold = FeastReader(open_store)
    assert untold.read(VIEWS, SUBJECTS, within_s=PATIENT_S).meta is None  # so that nobody is served
    untold.close()
    said = MetaReading("2", "rule", "2026-03-01", "ready")
    write_meta_tags(other, said)
    through_feast = FeastReader(open_store)
    reading = through_feast.read(VIEWS, SUBJECTS, within_s=PATIENT_S)
    through_feast.close()
    assert reading.meta == said
    assert [to_the_second(rows) for rows in reading.rows] == [to_the_second(rows) for rows in live.rows]
    assert any(row is not None for row in reading.rows[3].values())
    apply_definitions(other, deployment)
    assert tagged_meta(open_store()) is None

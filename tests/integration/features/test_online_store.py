"""The online store against a real Redis: layout, conditions of a write, races, deletion, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.data_format import ParquetFormat
from feast.infra.key_encoding_utils import serialize_entity_key
from feast.infra.online_stores.helpers import _mmh3, _redis_key
from feast.infra.online_stores.redis import RedisOnlineStoreConfig
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, String
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import ValidationError

from fleet_history import attempt, history_rows, made_up_fleet, table_of, to_us
from leap_features import meta
from leap_features.conditional_write import WRITE_IF_NOT_BEHIND, sha1
from leap_features.feature_store import open_feature_store
from leap_features.history import FEATURES, Position, encode_version, features
from leap_features.levels import FAMILY, FAMILY_SCALE
from leap_features.online_store import (
    AtomicRedisOnlineStore,
    AtomicRedisOnlineStoreConfig,
    OnlineStoreError,
)
from leap_features.settings import Settings
from services import SentinelDeployment

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
KIND_OF = {float: "double_val", int: "int64_val", str: "string_val"}

Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]
Write = Callable[[FeatureStore, str, list[Row]], None]


def write_sync(store: FeatureStore, view: str, rows: list[Row]) -> None:
    online_store(store).online_write_batch(store.config, store.get_feature_view(view), rows, None)


def write_async(store: FeatureStore, view: str, rows: list[Row]) -> None:
    asyncio.run(online_store(store).online_write_batch_async(store.config, store.get_feature_view(view), rows, None))


@pytest.fixture(params=[write_sync, write_async], ids=["sync", "async"])
def write(request: pytest.FixtureRequest) -> Write:
    """Each kind of write in turn."""
    function: Write = request.param
    return function


def online_store(store: FeatureStore) -> AtomicRedisOnlineStore:
    found = store._get_provider().online_store
    assert isinstance(found, AtomicRedisOnlineStore)
    return found


def value_of(value: float | int | str | None) -> Value:
    return Value() if value is None else Value(**{KIND_OF[type(value)]: value})


def key_of(**keys: str | int) -> EntityKey:
    return EntityKey(join_keys=list(keys), entity_values=[value_of(value) for value in keys.values()])


def family_row(mean: float, version: str | None, *, family: str = "bert/pretrain", at: datetime = NOON) -> Row:
    """A row of family_history whose mean tells it from others."""
    values = {name: Value() for name, _ in FEATURES} | {"mean": value_of(mean)}
    if version is not None:
        values["version"] = value_of(version)
    return key_of(job_family=family), values, at, None


def mean_of(store: FeatureStore, family: str = "bert/pretrain") -> float | None:
    answer = store.get_online_features(["family_history:mean"], [{"job_family": family}]).to_dict()
    mean: float | None = answer["mean"][0]
    return mean


def version(*positions: tuple[int, int, int]) -> str:
    return encode_version(Position(*position) for position in positions)


def specs_row(memory: float, at: datetime, hardware_type: str = "A100") -> Row:
    return key_of(hardware_type=hardware_type), {"memory_gib": value_of(memory)}, at, None


def memory_of(store: FeatureStore, hardware_type: str = "A100") -> float | None:
    answer = store.get_online_features(["hardware_specs:memory_gib"], [{"hardware_type": hardware_type}]).to_dict()
    memory: float | None = answer["memory_gib"][0]
    return memory


def test_rows_lie_in_redis_as_feast_itself_lays_them_out(
    store: FeatureStore, redis_client: redis.Redis, write: Write
) -> None:
    stamped = history_rows(FAMILY_SCALE, [attempt(1, completed_s=0.123456), attempt(2, throughput=None)])[-1]
    key = key_of(**dict(zip(FAMILY_SCALE.join_keys, stamped.key, strict=True)))
    values = {name: value_of(value) for name, value in features(stamped.row).items()}
    write(store, "family_scale_history", [(key, values, stamped.at, None)])

    stamp = Timestamp()
    stamp.FromDatetime(stamped.at)
    expected = {_mmh3(f"family_scale_history:{name}"): value.SerializeToString() for name, value in values.items()}
    expected[b"_ts:family_scale_history"] = stamp.SerializeToString()
    assert redis_client.hgetall(_redis_key(store.project, key)) == expected
    assert redis_client.dbsize() == 1


def test_get_online_features_returns_what_was_written_and_none_for_what_is_missing(
    store: FeatureStore, write: Write
) -> None:
    stamped = history_rows(FAMILY, [attempt(1, batch_size=0.0, throughput=812.5)])[-1]
    written = features(stamped.row)
    values = {name: value_of(value) for name, value in written.items()}
    write(store, "family_history", [(key_of(job_family="bert/pretrain"), values, stamped.at, None)])

    names = [f"family_history:{name}" for name, _ in FEATURES]
    answer = store.get_online_features(names, [{"job_family": "bert/pretrain"}, {"job_family": "new"}]).to_dict()
    assert written["mean_log_batch"] is None
    assert {name: answer[name][0] for name, _ in FEATURES} == written
    assert {name: answer[name][1] for name, _ in FEATURES} == {name: None for name, _ in FEATURES}


def test_async_read_equals_the_sync_read(store: FeatureStore) -> None:
    write_sync(store, "family_history", [family_row(1.5, version((1, 0, 7)))])
    names, rows = ["family_history:mean", "family_history:version"], [{"job_family": "bert/pretrain"}]
    later = asyncio.run(store.get_online_features_async(names, rows))
    assert later.to_dict() == store.get_online_features(names, rows).to_dict()


# feast-dev/feast#5163: a batch holds three rows of one key, newest first, and the oldest was served.
def test_newest_row_of_a_batch_is_served_in_whatever_order_it_holds_them(store: FeatureStore, write: Write) -> None:
    rows = [family_row(float(n), version((1, 0, n)), at=NOON + timedelta(seconds=n)) for n in (3, 2, 1)]
    write(store, "family_history", rows)
    assert mean_of(store) == 3.0
    write(store, "family_history", rows[::-1])
    assert mean_of(store) == 3.0


def test_newest_row_of_a_view_without_versions_is_served_too(store: FeatureStore, write: Write) -> None:
    write(store, "hardware_specs", [specs_row(float(n), NOON + timedelta(seconds=n)) for n in (3, 2, 1)])
    assert memory_of(store) == 3.0


# feast-dev/feast#2795, #3275: corrected rows with the same timestamps were dropped.
def test_corrected_row_of_equal_version_and_time_lands(store: FeatureStore, write: Write) -> None:
    write(store, "family_history", [family_row(1.0, version((1, 0, 7)))])
    write(store, "family_history", [family_row(2.0, version((1, 0, 7)))])
    assert mean_of(store) == 2.0
    write(store, "hardware_specs", [specs_row(40.0, NOON)])
    write(store, "hardware_specs", [specs_row(80.0, NOON)])
    assert memory_of(store) == 80.0


def test_row_behind_in_one_partition_is_refused_though_ahead_in_another_and_later(
    store: FeatureStore, write: Write
) -> None:
    write(store, "family_history", [family_row(1.0, version((1, 0, 7), (1, 1, 5)))])
    late = NOON + timedelta(days=1)
    write(store, "family_history", [family_row(2.0, version((1, 0, 9), (1, 1, 4)), at=late)])
    assert mean_of(store) == 1.0
    write(store, "family_history", [family_row(3.0, version((1, 0, 9)), at=late)])
    assert mean_of(store) == 1.0
    write(store, "family_history", [family_row(4.0, version((1, 0, 7), (1, 1, 5), (2, 0, 0)))])
    assert mean_of(store) == 4.0


def test_times_play_no_part_where_there_are_versions(store: FeatureStore, write: Write) -> None:
    write(store, "family_history", [family_row(1.0, version((1, 0, 7)))])
    write(store, "family_history", [family_row(2.0, version((1, 0, 8)), at=NOON - timedelta(days=1))])
    assert mean_of(store) == 2.0


def test_row_without_a_version_does_not_displace_one_that_has_it(store: FeatureStore, write: Write) -> None:
    write(store, "family_history", [family_row(1.0, version((1, 0, 7)))])
    write(store, "family_history", [family_row(2.0, None, at=NOON + timedelta(days=1))])
    assert mean_of(store) == 1.0


def test_older_row_of_a_view_without_versions_is_refused(store: FeatureStore, write: Write) -> None:
    write(store, "hardware_specs", [specs_row(80.0, NOON)])
    write(store, "hardware_specs", [specs_row(40.0, NOON - timedelta(microseconds=1))])
    assert memory_of(store) == 80.0


def test_naive_timestamp_is_utc_as_feast_promises(store: FeatureStore, write: Write) -> None:
    write(store, "hardware_specs", [specs_row(80.0, NOON.replace(tzinfo=None))])
    write(store, "hardware_specs", [specs_row(40.0, NOON - timedelta(minutes=1))])
    assert memory_of(store) == 80.0


def test_older_of_two_writers_at_the_same_time_never_wins(
    deployment: Settings, tmp_path: Path, store: FeatureStore
) -> None:
    stores = [open_feature_store(deployment, tmp_path / "registry.db") for _ in range(2)]
    view = store.get_feature_view("family_history")
    writers = [online_store(one) for one in stores]
    lost = []
    for number in range(60):
        barrier = threading.Barrier(2)
        family = f"bert/{number}"

        def write_one(writer: AtomicRedisOnlineStore, offset: int, barrier: threading.Barrier, family: str) -> None:
            at = NOON + timedelta(seconds=offset)
            row = family_row(float(offset), version((1, 0, offset)), family=family, at=at)
            barrier.wait()
            writer.online_write_batch(store.config, view, [row], None)

        threads = [
            threading.Thread(target=write_one, args=(writer, offset, barrier, family))
            for offset, writer in enumerate(writers if number % 2 else writers[::-1])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if mean_of(store, family) != 1.0:
            lost.append(family)
    assert lost == []


def test_write_goes_on_where_redis_has_forgotten_its_scripts(
    store: FeatureStore, redis_client: redis.Redis, write: Write
) -> None:
    write(store, "family_history", [family_row(1.0, version((1, 0, 1)))])
    assert redis_client.script_exists(sha1(WRITE_IF_NOT_BEHIND).decode()) == [True]
    redis_client.script_flush()
    write(store, "family_history", [family_row(float(n), version((1, 0, n)), family=f"f/{n}") for n in range(5)])
    assert [mean_of(store, f"f/{n}") for n in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_failure_of_the_server_is_raised(store: FeatureStore, redis_client: redis.Redis, write: Write) -> None:
    redis_client.set(_redis_key(store.project, key_of(job_family="bert/pretrain")), b"not a hash")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        write(store, "family_history", [family_row(1.0, version((1, 0, 1)))])


def test_batch_of_any_size_lands_and_reports_its_progress(store: FeatureStore, redis_client: redis.Redis) -> None:
    rows = [family_row(float(n), version((1, 0, n)), family=f"f/{n}") for n in range(2_345)]
    done: list[int] = []
    online_store(store).online_write_batch(store.config, store.get_feature_view("family_history"), rows, done.append)
    assert sum(done) == redis_client.dbsize() == 2_345
    online_store(store).online_write_batch(store.config, store.get_feature_view("family_history"), [], done.append)
    assert sum(done) == 2_345


def test_unreachable_server_is_an_error(
    deployment: Settings, tmp_path: Path, store: FeatureStore, write: Write
) -> None:
    gone = open_feature_store(
        Settings(redis_url="redis://127.0.0.1:1/0", project=deployment.project, feature_repo=deployment.feature_repo),
        tmp_path / "registry.db",
    )
    with pytest.raises(redis.ConnectionError):
        write(gone, "family_history", [family_row(1.0, version((1, 0, 1)))])


def test_push_writes_rows_online_under_the_same_conditions(store: FeatureStore) -> None:
    rows = history_rows(FAMILY, made_up_fleet(60))
    frame = table_of(FAMILY, rows).to_pandas()
    store.push("family_history_push", frame.iloc[::-1])
    latest = {row.key[0]: row.row for row in rows}
    names = [f"family_history:{name}" for name, _ in FEATURES]
    answer = store.get_online_features(names, [{"job_family": family} for family in latest]).to_dict()
    for place, row in enumerate(latest.values()):
        assert {name: answer[name][place] for name, _ in FEATURES} == features(row)


# --- deletion ---


def other_view() -> tuple[Entity, FeatureView]:
    """A view whose rows share their Redis hashes with hardware_specs."""
    entity = Entity(name="hardware_type", join_keys=["hardware_type"], value_type=ValueType.STRING)
    source = FileSource(name="rack_rows", path="rack.parquet", file_format=ParquetFormat(), timestamp_field="at")
    schema = [Field(name="hardware_type", dtype=String), Field(name="racks", dtype=Float64)]
    return entity, FeatureView(name="rack", entities=[entity], schema=schema, source=source)


def test_deleting_a_view_leaves_the_rows_of_others_in_the_same_hash(
    store: FeatureStore, redis_client: redis.Redis
) -> None:
    _, rack = other_view()
    store.apply([rack])
    write_sync(store, "hardware_specs", [specs_row(80.0, NOON), specs_row(96.0, NOON, "H100")])
    write_sync(store, "rack", [(key_of(hardware_type="A100"), {"racks": value_of(3.0)}, NOON, None)])
    assert redis_client.dbsize() == 2

    store.apply([], objects_to_delete=[store.get_feature_view("hardware_specs")], partial=False)

    (key,) = redis_client.keys()
    assert set(redis_client.hgetall(key)) == {_mmh3("rack:racks"), b"_ts:rack"}
    store.apply([], objects_to_delete=[store.get_feature_view("rack")], partial=False)
    assert redis_client.dbsize() == 0


def test_teardown_deletes_rows_attempts_and_meta_of_its_project_alone(
    store: FeatureStore, deployment: Settings, tmp_path: Path, redis_client: redis.Redis
) -> None:
    longer = f"x{deployment.project}"  # Its keys end like those of the project.
    settings = Settings(redis_url=deployment.redis_url, project=longer, feature_repo=deployment.feature_repo)
    neighbour = open_feature_store(settings, tmp_path / "neighbour.db")
    rows = [family_row(float(n), version((1, 0, n)), family=f"f/{n}") for n in range(20)]
    view = store.get_feature_view("family_history")
    online_store(neighbour).online_write_batch(neighbour.config, view, rows, None)
    redis_client.hset(meta.meta_key(longer), "schema", "1")
    redis_client.set(meta.attempt_key(longer, True, "a"), "1")
    kept = set(redis_client.keys())

    write_sync(store, "family_history", rows)
    write_sync(store, "hardware_specs", [specs_row(80.0, NOON)])
    redis_client.hset(meta.meta_key(store.project), "schema", "1")
    for succeeded in (True, False):
        redis_client.set(meta.attempt_key(store.project, succeeded, "a"), "1")
    store.teardown()
    assert set(redis_client.keys()) == kept


# --- refusals ---


# feast-dev/feast#5628: it came to light at the first write.
def test_view_applied_without_its_entity_is_an_error_at_apply(deployment: Settings, tmp_path: Path) -> None:
    fresh = open_feature_store(deployment, tmp_path / "registry.db")
    entity, rack = other_view()
    with pytest.raises(
        OnlineStoreError, match="feature view rack has the entity hardware_type, which is not registered"
    ):
        fresh.apply([rack])
    assert open_feature_store(deployment, tmp_path / "registry.db").list_feature_views() == []

    again = open_feature_store(deployment, tmp_path / "registry.db")
    again.apply([entity, rack])
    again.apply([rack])  # The entity is known by now.
    with pytest.raises(OnlineStoreError, match="which is not registered"):
        again.apply([rack], objects_to_delete=[entity], partial=False)


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ({"key_ttl_seconds": 86_400}, "key_ttl_seconds=86400 would make history expire: remove it"),
        ({"skip_dedup": True}, "skip_dedup=true would let an older row overwrite a newer one: remove it"),
        ({"redis_type": "redis_cluster"}, "a Redis Cluster cannot be used yet"),
        ({"client": "glide"}, "rows are written through redis-py alone"),
        ({"redis_type": "redis_sentinel", "sentinel_master": "leap"}, "name the sentinels in LEAP_REDIS_URL"),
        ({"connection_string": "localhost:6379"}, "give redis_url (or LEAP_REDIS_URL) instead"),
        ({"redis_url": "http://:secret@localhost"}, "'http:***@localhost': must begin with one of redis://"),
        ({"redis_uri": "redis://localhost"}, "redis_uri"),
    ],
)
def test_setting_that_would_break_history_is_refused(setting: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError) as error:
        AtomicRedisOnlineStoreConfig(**setting)
    assert rule in str(error.value)
    assert "secret" not in str(error.value)


def config_with(tmp_path: Path, **changes: Any) -> RepoConfig:
    return RepoConfig(
        **{
            "project": "refused",
            "provider": "local",
            "registry": {"path": str(tmp_path / "registry.db")},
            "online_store": {"type": "leap_features.online_store.AtomicRedisOnlineStore"},
            "offline_store": {"type": "leap_features.offline_store.AsOfOfflineStore"},
        }
        | changes
    )


def test_versioning_of_views_online_is_refused(tmp_path: Path) -> None:
    registry = {"path": str(tmp_path / "registry.db"), "enable_online_feature_view_versioning": True}
    store = FeatureStore(config=config_with(tmp_path, registry=registry))
    entity, rack = other_view()
    with pytest.raises(OnlineStoreError, match="enable_online_feature_view_versioning renames views in Redis"):
        store.apply([entity, rack])


def test_another_serialization_of_keys_is_refused(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="serialization version below 3"):
        config = config_with(tmp_path, entity_key_serialization_version=2)
    with pytest.raises(OnlineStoreError, match="entity_key_serialization_version must be 3, got 2"):
        AtomicRedisOnlineStore().online_write_batch(config, other_view()[1], [], None)


def test_section_of_another_store_is_refused(tmp_path: Path) -> None:
    config = config_with(tmp_path)
    config._online_store = RedisOnlineStoreConfig()
    with pytest.raises(OnlineStoreError, match="online_store must be of type AtomicRedisOnlineStore"):
        AtomicRedisOnlineStore().online_write_batch(config, other_view()[1], [], None)


def test_address_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAP_REDIS_URL", "rediss://user:secret@cache:6380/3")
    config = AtomicRedisOnlineStoreConfig()
    assert config.redis_url == "rediss://user:secret@cache:6380/3"
    assert "secret" not in repr(config)
    assert AtomicRedisOnlineStoreConfig(redis_url="redis://other").redis_url == "redis://other"


def test_rows_go_to_the_master_that_sentinels_name_before_and_after_a_failover(
    tmp_path: Path, store: FeatureStore, write: Write
) -> None:
    with SentinelDeployment(tmp_path) as redis_servers:
        config = store.config.model_copy()
        config._online_store = AtomicRedisOnlineStoreConfig(redis_url=redis_servers.url)
        through_sentinel = FeatureStore(config=config)
        write(through_sentinel, "family_history", [family_row(1.5, version((1, 0, 7)))])
        assert mean_of(through_sentinel) == 1.5
        redis_servers.fail_over()
        write(through_sentinel, "family_history", [family_row(2.5, version((1, 0, 8)))])
        assert mean_of(through_sentinel) == 2.5
        assert redis.Redis.from_url(redis_servers.master.url).dbsize() == 1


def test_password_and_database_of_the_address_are_used(deployment: Settings, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"])
    address = deployment.redis_url.replace("redis://", "redis://reader:secret@").replace("/0", "/5")
    client = AtomicRedisOnlineStore()._get_client(AtomicRedisOnlineStoreConfig(redis_url=address))
    assert client.acl_whoami() == "reader"
    assert client.client_info()["db"] == 5
    redis_client.acl_deluser("reader")


def test_keys_of_other_types_are_feasts_too(store: FeatureStore, redis_client: redis.Redis) -> None:
    entity = Entity(name="rank", join_keys=["rank"], value_type=ValueType.INT32)
    source = FileSource(name="ranks", path="ranks.parquet", file_format=ParquetFormat(), timestamp_field="at")
    view = FeatureView(name="rank_view", entities=[entity], schema=[Field(name="x", dtype=Float64)], source=source)
    store.apply([entity, view])
    key = EntityKey(join_keys=["rank"], entity_values=[Value(int32_val=-3)])
    write_sync(store, "rank_view", [(key, {"x": value_of(1.0)}, NOON, None)])
    assert redis_client.keys() == [serialize_entity_key(key) + store.project.encode()]
    store.apply([], objects_to_delete=[view], partial=False)
    assert redis_client.dbsize() == 0


def test_microseconds_of_the_event_timestamp_are_kept(store: FeatureStore, redis_client: redis.Redis) -> None:
    at = datetime(2026, 1, 5, 12, 0, 0, 123457, tzinfo=UTC)
    write_sync(store, "hardware_specs", [specs_row(80.0, at)])
    stamp = Timestamp()
    stamp.ParseFromString(redis_client.hget(redis_client.keys()[0], b"_ts:hardware_specs"))
    assert stamp.ToMicroseconds() == to_us(at)

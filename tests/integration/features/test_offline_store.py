"""The offline store through Feast: training sets as of submission, materialization, saved data sets, pushes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RequestSource, ValueType
from feast.data_format import DeltaFormat, ParquetFormat
from feast.data_source import PushMode
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.infra.offline_stores.file_source import SavedDatasetFileStorage
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Float64, Int64, String

from fleet_history import Attempt, Stamped, attempt, history_rows, made_up_fleet, table_of, write_history
from leap_features import as_of_join, hardware_specs, parquet_files
from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.hardware import CATALOGUE, SPECS
from leap_features.history import FEATURES, features
from leap_features.levels import FAMILY, LEVELS, Level
from leap_features.offline_store import AsOfOfflineStore
from leap_features.parquet_files import NoRows
from leap_features.settings import Settings

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
JOIN_KEYS = ["job_family", "model_type", "hardware_type", "trainer_count"]
EVER = datetime(2100, 1, 1, tzinfo=UTC)


def seconds(count: float) -> datetime:
    return START + timedelta(seconds=count)


def asked(*times: datetime, **changes: Any) -> pd.DataFrame:
    """Entity rows of one subject at `times`."""
    subject = {"job_family": "bert/pretrain", "model_type": "bert", "hardware_type": "A100", "trainer_count": 8}
    return pd.DataFrame([subject | changes | {"event_timestamp": time} for time in times])


def known_at(level: Level, history: Sequence[Stamped], row: Any) -> dict[str, Any]:
    """What a search through all history rows finds for entity `row`: the last one of its key by then."""
    candidates = [s for s in history if s.key == level.key(row) and s.at <= row.event_timestamp]
    if not candidates:
        return {name: None for name, _ in FEATURES}
    return features(max(candidates, key=lambda stamped: stamped.at).row)


def means(store: FeatureStore, frame: pd.DataFrame, view: str = "family_history") -> list[float | None]:
    """The mean of each entity row, None for missing."""
    table = store.get_historical_features(frame, [f"{view}:mean"]).to_arrow()
    values: list[float | None] = table.column("mean").to_pylist()
    return values


def online_count(store: FeatureStore, family: str = "bert/pretrain") -> int | None:
    answer = store.get_online_features(["family_history:count"], [{"job_family": family}]).to_dict()
    count: int | None = answer["count"][0]
    return count


def test_training_set_equals_a_search_through_all_history(store: FeatureStore, deployment: Settings) -> None:
    attempts = made_up_fleet(250)
    write_history(Path(deployment.history), attempts)
    random = np.random.default_rng(1)
    # Half of the times are exactly those of history rows: a tie is seen, a microsecond before is not.
    stamps = [attempts[number].recorded_at for number in random.integers(len(attempts), size=120)]
    stamps = [stamp - timedelta(microseconds=int(random.integers(2))) for stamp in stamps]
    frame = pd.DataFrame(
        {
            "attempt_id": [f"asked-{number}" for number in range(120)],
            "event_timestamp": stamps,
            "job_family": random.choice(["bert/pretrain", "bert/tune", "resnet/train", "new/family"], 120),
            "hardware_type": random.choice(["A100", "H100", "home-made"], 120),
            "trainer_count": random.choice([1, 8, 64], 120),
        }
    )
    frame["model_type"] = frame.job_family.str.partition("/")[0]
    names = [f"{level.view}:{name}" for level in LEVELS for name, _ in FEATURES]
    table = store.get_historical_features(
        frame, [*names, *(f"hardware_specs:{spec}" for spec in SPECS)], full_feature_names=True
    ).to_arrow()

    assert table.num_rows == 120
    assert table.column("attempt_id").to_pylist() == frame.attempt_id.to_list()
    for level in LEVELS:
        history = history_rows(level, attempts)
        expected = [known_at(level, history, row) for row in frame.itertuples()]
        for name, _ in FEATURES:
            assert table.column(f"{level.view}__{name}").to_pylist() == [row[name] for row in expected]
    for spec in SPECS:
        hardware = [CATALOGUE.lookup(name) for name in frame.hardware_type]
        known = [None if one is None else one.specs()[spec] for one in hardware]
        assert table.column(f"hardware_specs__{spec}").to_pylist() == known


def test_feature_service_of_the_ranking_has_all_history_and_hardware_but_no_bookkeeping(
    store: FeatureStore, deployment: Settings
) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    service = store.get_feature_service("ranking_v1")
    frame = store.get_historical_features(asked(seconds(1)), service, full_feature_names=True).to_df()
    names = [name for name, _ in FEATURES if name not in ("state", "version")]
    expected = [f"{level.view}__{name}" for level in LEVELS for name in names]
    assert list(frame.columns) == [*JOIN_KEYS, "event_timestamp", *expected, *(f"hardware_specs__{s}" for s in SPECS)]
    assert frame.family_history__count.to_list() == [1]


# feast-dev/feast#6787: two rows of one key and time became one.
def test_two_attempts_submitted_at_the_same_instant_stay_two_rows(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e)])
    frame = asked(seconds(9), seconds(9), seconds(9)).assign(throughput=[1.0, 2.0, 2.0])
    got = store.get_historical_features(frame, ["family_history:mean"]).to_df()
    assert got.throughput.to_list() == [1.0, 2.0, 2.0]
    assert got["mean"].to_list() == [1.0, 1.0, 1.0]


def test_order_index_and_columns_of_the_entity_rows_are_kept(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e, completed_s=5)])
    frame = asked(seconds(9), seconds(1), seconds(5), seconds(4.999999)).assign(
        label=[None, "b", "c", "d"], nested=[[1], [], [2, 3], None], kind=pd.Categorical(["x", "y", "x", "y"])
    )
    frame.index = pd.Index([7, 3, 3, 1])
    before = frame.copy(deep=True)
    got = store.get_historical_features(frame, ["family_history:mean"]).to_df()
    pd.testing.assert_frame_equal(frame, before)
    assert got.columns.to_list() == [*frame.columns, "mean"]
    assert got.event_timestamp.to_list() == frame.event_timestamp.to_list()
    assert got.label.to_list() == [None, "b", "c", "d"]
    assert [None if value is None else list(value) for value in got.nested] == [[1], [], [2, 3], None]
    assert got["mean"].fillna(-1).to_list() == [1.0, -1, 1.0, -1]


# feast-dev/feast#6615: the value of a run was joined before anybody could know it.
def test_run_completed_before_but_recorded_after_submission_is_not_seen(
    store: FeatureStore, deployment: Settings
) -> None:
    attempts = [
        attempt(1, completed_s=-100, throughput=np.e),
        attempt(2, completed_s=-1, recorded_s=1, throughput=np.e**3),
    ]
    write_history(Path(deployment.history), attempts)
    assert means(store, asked(seconds(0), seconds(0.999999), seconds(1))) == [1.0, 1.0, 2.0]


# Feast's Dask store dropped rows without history and those whose history was older than the ttl.
def test_cold_starts_are_kept_as_nulls_and_never_as_zero(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, completed_s=10)])
    frame = pd.concat([asked(seconds(11), job_family="bert/new"), asked(seconds(9)), asked(seconds(10))])
    names = [f"family_history:{name}" for name, _ in FEATURES]
    table = store.get_historical_features(frame, names).to_arrow()
    for name, _ in FEATURES:
        assert table.column(name).to_pylist()[:2] == [None, None]
    assert table.column("count").to_pylist()[2] == 1


def test_history_of_any_age_is_seen_where_ttl_is_zero(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e)])
    assert means(store, asked(START + timedelta(days=3_650))) == [1.0]


def test_row_older_than_the_ttl_of_its_view_is_absent_and_its_entity_row_kept(
    store: FeatureStore, tmp_path: Path
) -> None:
    view = apply_view(store, tmp_path / "daily.parquet", [("a", seconds(0), 1.0)], ttl=timedelta(seconds=10))
    frame = pd.DataFrame({"k": "a", "event_timestamp": [seconds(10), seconds(10.000001), seconds(-1)]})
    got = store.get_historical_features(frame, [f"{view}:x"]).to_arrow()
    assert got.column("x").to_pylist() == [1.0, None, None]


# --- time zones ---


# feast-dev/feast#5227, #1475: the zone of the machine, and naive times among aware ones, moved rows.
def test_naive_entity_times_are_an_error(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    naive = asked(seconds(1)).assign(event_timestamp=pd.to_datetime(["2026-01-05 08:00:01"]))
    with pytest.raises(ValueError, match=r"event_timestamp of the entity rows must be a time with a time zone"):
        store.get_historical_features(naive, ["family_history:mean"])
    mixed = asked(seconds(1), seconds(1))
    mixed["event_timestamp"] = pd.Series([seconds(1), seconds(1).replace(tzinfo=None)], dtype=object)
    with pytest.raises(
        ValueError, match=r"entity row 1: event_timestamp must be a time with a time zone, got datetime"
    ):
        store.get_historical_features(mixed, ["family_history:mean"])
    text = asked(seconds(1)).assign(event_timestamp=["2026-01-05T08:00:01"])
    with pytest.raises(ValueError, match="entity row 0: event_timestamp must be a time with a time zone, got '2026"):
        store.get_historical_features(text, ["family_history:mean"])


def test_missing_entity_time_is_an_error(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    frame = asked(seconds(1), seconds(2))
    frame.loc[1, "event_timestamp"] = pd.NaT
    with pytest.raises(ValueError, match="entity row 1 has no event_timestamp"):
        store.get_historical_features(frame, ["family_history:mean"])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_instants_are_compared_whatever_their_zone_and_unit(
    store: FeatureStore, deployment: Settings, zone: str, unit: str
) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e, completed_s=10)])
    frame = asked(seconds(9), seconds(10))
    frame["event_timestamp"] = frame.event_timestamp.dt.tz_convert(zone).dt.as_unit(unit)
    assert means(store, frame) == [None, 1.0]


def test_nanoseconds_do_not_let_a_later_row_be_seen(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e, completed_s=10)])
    frame = asked(seconds(10), seconds(10))
    frame["event_timestamp"] = frame.event_timestamp.dt.as_unit("ns") + pd.to_timedelta([-1, 1], unit="ns")
    got = store.get_historical_features(frame, ["family_history:mean"]).to_arrow()
    assert got.column("mean").to_pylist() == [None, 1.0]
    assert got.to_pandas().event_timestamp.to_list() == frame.event_timestamp.to_list()


def test_mixed_zones_in_one_column_are_compared_as_instants(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e, completed_s=10)])
    frame = asked(seconds(9), seconds(10))
    kolkata = [time.astimezone(pd.Timestamp.now("Asia/Kolkata").tzinfo) for time in (seconds(9), seconds(10))]
    frame["event_timestamp"] = pd.Series([kolkata[0], seconds(10)], dtype=object)
    assert means(store, frame) == [None, 1.0]


def test_times_without_zone_in_the_files_are_utc(store: FeatureStore, tmp_path: Path) -> None:
    path = tmp_path / "naive.parquet"
    view = apply_view(store, path, [("a", seconds(10), 1.0)])
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "at", table.column("at").cast(pa.timestamp("us"))), path)
    frame = pd.DataFrame({"k": "a", "event_timestamp": [seconds(9), seconds(10)]})
    assert store.get_historical_features(frame, [f"{view}:x"]).to_arrow().column("x").to_pylist() == [None, 1.0]


ELSEWHERE = """
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
import pandas as pd
from leap_features.feature_store import open_feature_store
from leap_features.settings import Settings
import time
assert time.tzname == ("IST", "IST"), time.tzname
store = open_feature_store(Settings.from_env(), Path(sys.argv[1]))
store.materialize(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 5, 8, 0, 10, tzinfo=UTC))
frame = pd.read_parquet(sys.argv[2])
print(store.get_historical_features(frame, ["family_history:mean"]).to_df()["mean"].fillna(-1).to_list())
print(store.get_online_features(["family_history:count"], [{"job_family": "bert/pretrain"}]).to_dict()["count"])
"""


def test_zone_of_the_machine_changes_nothing(store: FeatureStore, deployment: Settings, tmp_path: Path) -> None:
    attempts = [attempt(1, throughput=np.e, completed_s=10), attempt(2, throughput=np.e, completed_s=11)]
    write_history(Path(deployment.history), attempts)
    asked(seconds(9), seconds(10), seconds(3_600 * 5.5)).to_parquet(tmp_path / "asked.parquet")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    environment |= {
        "TZ": "Asia/Kolkata",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LEAP_PROJECT": deployment.project,
        "LEAP_REDIS_URL": deployment.redis_url,
        "LEAP_HISTORY": deployment.history,
        "LEAP_FEATURE_REPO": deployment.feature_repo,
    }
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "registry.db"), str(tmp_path / "asked.parquet")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["[-1.0, 1.0, 1.0]", "[1]"]


def test_coercion_of_naive_times_by_feast_is_refused(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    store.config.coerce_tz_aware = True
    with pytest.raises(ValueError, match="Set `coerce_tz_aware: false`"):
        store.get_historical_features(asked(seconds(1)), ["family_history:mean"])


# --- materialization ---


# feast-dev/feast#4133: rows that arrive after a run with an earlier stamp were never brought in.
def test_row_that_arrives_after_an_incremental_run_with_an_earlier_stamp_is_brought_in_by_the_next(
    store: FeatureStore, deployment: Settings
) -> None:
    history = Path(deployment.history)
    write_history(history, [attempt(1, completed_s=0)])
    store.materialize_incremental(seconds(100))
    assert online_count(store) == 1
    write_history(history, [attempt(1, completed_s=0), attempt(2, completed_s=50)])
    store.materialize_incremental(seconds(200))
    assert online_count(store) == 2


# feast-dev/feast#4222: later runs found nothing until that date.
def test_runs_go_on_after_one_up_to_2099_by_mistake(store: FeatureStore, deployment: Settings) -> None:
    history = Path(deployment.history)
    write_history(history, [attempt(1, completed_s=0)])
    store.materialize_incremental(datetime(2099, 1, 1, tzinfo=UTC))
    write_history(history, [attempt(1, completed_s=0), attempt(2, completed_s=50)])
    store.materialize_incremental(seconds(200))
    assert online_count(store) == 2


# feast-dev/feast#2905: apply made the store forget how far it was.
def test_apply_between_two_runs_leaves_no_gap(store: FeatureStore, deployment: Settings, tmp_path: Path) -> None:
    history = Path(deployment.history)
    attempts = [attempt(number, completed_s=number * 1_000) for number in range(4)]
    write_history(history, attempts)
    store.materialize(START - timedelta(days=1), seconds(1_000))
    assert online_count(store) == 2
    again = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(again, deployment)
    again.materialize_incremental(seconds(2_000))
    assert online_count(again) == 3
    again.materialize_incremental(seconds(3_000))
    assert online_count(again) == 4


# feast-dev/feast#2651: a first incremental run took the last year alone.
def test_first_incremental_run_brings_rows_of_any_age(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, completed_s=-10 * 365 * 86_400)])
    store.materialize_incremental(seconds(0))
    assert online_count(store) == 1


def test_row_stamped_exactly_at_the_end_of_a_run_is_brought_and_a_later_one_is_not(
    store: FeatureStore, deployment: Settings
) -> None:
    write_history(Path(deployment.history), [attempt(1, completed_s=10), attempt(2, completed_s=10.000001)])
    store.materialize(START, seconds(10))
    assert online_count(store) == 1


def test_materialized_rows_equal_the_fold_in_every_feature(store: FeatureStore, deployment: Settings) -> None:
    attempts = made_up_fleet(200)
    write_history(Path(deployment.history), attempts)
    store.materialize(START - timedelta(days=1), EVER)
    for level in LEVELS:
        latest = {stamped.key: features(stamped.row) for stamped in history_rows(level, attempts)}
        keys = [dict(zip(level.join_keys, key, strict=True)) for key in latest]
        answer = store.get_online_features([f"{level.view}:{name}" for name, _ in FEATURES], keys).to_dict()
        got = [{name: answer[name][place] for name, _ in FEATURES} for place in range(len(keys))]
        assert got == list(latest.values())
        # Floats of integer worth, and NaN for missing, would compare equal or be lost above.
        kinds = dict(FEATURES)
        assert all(value is None or type(value) is kinds[name] for row in got for name, value in row.items())


def test_materialization_does_not_set_back_what_the_stream_has_written_since(
    store: FeatureStore, deployment: Settings
) -> None:
    attempts = [attempt(1, completed_s=0), attempt(2, completed_s=50)]
    write_history(Path(deployment.history), attempts[:1])
    store.push("family_history_push", table_of(FAMILY, history_rows(FAMILY, attempts)).to_pandas())
    store.materialize(START, EVER)
    assert online_count(store) == 2


def test_hardware_rows_are_there_after_apply_and_reach_the_online_store(store: FeatureStore) -> None:
    store.materialize(START, EVER, feature_views=["hardware_specs"])
    names = ["A100", "nvidia-a100-of-nobody"]
    answer = store.get_online_features(["hardware_specs:memory_gib"], [{"hardware_type": name} for name in names])
    assert answer.to_dict()["memory_gib"] == [CATALOGUE["A100"].memory_gib, None]
    aliases = {alias for row in CATALOGUE.values() for alias in row.aliases}
    assert set(hardware_specs.table().column("hardware_type").to_pylist()) == set(CATALOGUE) | aliases


# --- what else Feast asks of an offline store ---


def apply_view(
    store: FeatureStore,
    path: Path,
    rows: Sequence[tuple[str, datetime, float]],
    *,
    ttl: timedelta = timedelta(0),
    created: Sequence[datetime] | None = None,
    field_mapping: dict[str, str] | None = None,
) -> str:
    """Apply a view of entity `k` with the feature `x` whose rows are `rows` (key, time, x); return its name."""
    columns: dict[str, Any] = {
        "k": pa.array([row[0] for row in rows], pa.string()),
        "at": pa.array([row[1] for row in rows], pa.timestamp("us", "UTC")),
        "x": pa.array([row[2] for row in rows], pa.float64()),
    }
    if created is not None:
        columns["made"] = pa.array(created, pa.timestamp("us", "UTC"))
    mapped = {new: old for old, new in (field_mapping or {}).items()}
    parquet_files.write(pa.table({mapped.get(name, name): value for name, value in columns.items()}), path)
    entity = Entity(name="k", join_keys=["k"], value_type=ValueType.STRING)
    source = FileSource(
        name=path.stem,
        path=str(path),
        file_format=ParquetFormat(),
        timestamp_field="at",
        created_timestamp_column="made" if created is not None else "",
        field_mapping=field_mapping,
    )
    schema = [Field(name="k", dtype=String), Field(name="x", dtype=Float64)]
    store.apply([entity, FeatureView(name=path.stem, entities=[entity], schema=schema, source=source, ttl=ttl)])
    return path.stem


def test_field_mapping_applies_to_keys_times_and_features_offline_and_online(
    store: FeatureStore, tmp_path: Path
) -> None:
    mapping = {"key_column": "k", "time_column": "at", "x_column": "x"}
    view = apply_view(store, tmp_path / "mapped.parquet", [("a", seconds(10), 1.5)], field_mapping=mapping)
    frame = pd.DataFrame({"k": "a", "event_timestamp": [seconds(9), seconds(10)]})
    assert store.get_historical_features(frame, [f"{view}:x"]).to_arrow().column("x").to_pylist() == [None, 1.5]
    store.materialize(START, EVER, feature_views=[view])
    assert store.get_online_features([f"{view}:x"], [{"k": "a"}]).to_dict()["x"] == [1.5]


def test_join_key_map_joins_one_view_under_two_entities(store: FeatureStore, deployment: Settings) -> None:
    attempts = [attempt(1, throughput=np.e), attempt(2, throughput=np.e**3, job_family="bert/tune")]
    write_history(Path(deployment.history), attempts)
    view = store.get_feature_view("family_history")
    own = view.with_name("own_history")
    other = view.with_name("parent_history").with_join_key_map({"job_family": "parent_family"})
    service = store.get_feature_service("ranking_v1")
    service.name = "with_parent"
    service.feature_view_projections = [own[["mean"]].projection, other[["mean"]].projection]
    store.apply([service])
    frame = asked(seconds(9)).assign(parent_family="bert/tune")
    got = store.get_historical_features(frame, store.get_feature_service("with_parent"), full_feature_names=True)
    row = got.to_df().iloc[0]
    assert (row["own_history__mean"], row["parent_history__mean"]) == (1.0, 3.0)


def test_rows_of_equal_time_give_way_to_the_one_created_last(store: FeatureStore, tmp_path: Path) -> None:
    rows = [("a", seconds(10), 1.0), ("a", seconds(10), 2.0), ("a", seconds(10), 3.0)]
    made = [seconds(11), seconds(13), seconds(12)]
    view = apply_view(store, tmp_path / "ties.parquet", rows, created=made)
    frame = pd.DataFrame({"k": "a", "event_timestamp": [seconds(20)]})
    assert store.get_historical_features(frame, [f"{view}:x"]).to_df().x.to_list() == [2.0]
    store.materialize(START, EVER, feature_views=[view])
    assert store.get_online_features([f"{view}:x"], [{"k": "a"}]).to_dict()["x"] == [2.0]


def test_values_created_after_the_entity_rows_time_are_left_out_on_request(store: FeatureStore, tmp_path: Path) -> None:
    rows = [("a", seconds(10), 1.0), ("a", seconds(10), 2.0), ("a", seconds(5), 3.0)]
    view = apply_view(store, tmp_path / "filled.parquet", rows, created=[seconds(10), seconds(30), seconds(15)])
    times = [seconds(9), seconds(10), seconds(16), seconds(30)]
    frame = pd.DataFrame({"k": "a", "event_timestamp": times})
    plain = store.get_historical_features(frame, [f"{view}:x"]).to_arrow()
    honest = store.get_historical_features(frame, [f"{view}:x"], filter_by_created_timestamp=True).to_arrow()
    assert plain.column("x").to_pylist() == [3.0, 2.0, 2.0, 2.0]
    assert honest.column("x").to_pylist() == [None, 1.0, 1.0, 2.0]


def test_entities_may_come_from_a_query(store: FeatureStore, deployment: Settings, tmp_path: Path) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e, completed_s=10)])
    asked(seconds(10), seconds(9), seconds(11)).assign(label=[1, 2, 3]).to_parquet(tmp_path / "asked.parquet")
    query = f"SELECT * FROM read_parquet('{tmp_path}/asked.parquet') WHERE label < 3"
    got = store.get_historical_features(query, ["family_history:mean"]).to_arrow()
    assert got.column("label").to_pylist() == [1, 2]
    assert got.column("mean").to_pylist() == [1.0, None]
    naive = query.replace("*", "* REPLACE (event_timestamp::TIMESTAMP AS event_timestamp)")
    with pytest.raises(ValueError, match="event_timestamp of the entity rows must be a time with a time zone"):
        store.get_historical_features(naive, ["family_history:mean"])
    with pytest.raises(ValueError, match="the entity query must give a column event_timestamp"):
        store.get_historical_features("SELECT 1 AS label", ["family_history:mean"])


def test_without_entities_it_is_every_key_of_the_time_range_as_of_its_end(
    store: FeatureStore, deployment: Settings
) -> None:
    attempts = [
        attempt(1, completed_s=0, job_family="bert/old"),
        attempt(2, completed_s=100, job_family="bert/a", throughput=np.e),
        attempt(3, completed_s=200, job_family="bert/a", throughput=np.e**3),
        attempt(4, completed_s=300, job_family="bert/a", throughput=np.e**9),
        attempt(5, completed_s=400, job_family="bert/to-come"),
    ]
    write_history(Path(deployment.history), attempts)
    names = ["family_hardware_history:mean", "family_history:count"]
    got = store.get_historical_features(features=names, start_date=seconds(50), end_date=seconds(200)).to_df()
    assert got.to_dict("records") == [
        {"hardware_type": "A100", "job_family": "bert/a", "event_timestamp": seconds(200), "mean": 2.0, "count": 2}
    ]
    ever = store.get_historical_features(features=["family_history:count"], end_date=seconds(200)).to_df()
    assert ever.job_family.to_list() == ["bert/a", "bert/old"]
    with pytest.raises(ValueError, match="no view has all the join keys"):
        store.get_historical_features(
            features=["family_history:count", "model_scale_history:mean"], end_date=seconds(200)
        )
    with pytest.raises(ValueError, match=r"end_date 2026-01-05T08:03:20 has no time zone"):
        store.get_historical_features(features=names, end_date=seconds(200).replace(tzinfo=None))


@pytest.mark.filterwarnings("ignore:(Saving|Retrieving) dataset.* is an experimental feature:RuntimeWarning")
@pytest.mark.parametrize("name", ["saved.parquet", "saved"])
def test_training_set_is_saved_and_read_again(
    store: FeatureStore, deployment: Settings, tmp_path: Path, name: str
) -> None:
    write_history(Path(deployment.history), made_up_fleet(50))
    frame = asked(seconds(1e6), seconds(0), seconds(1e6), hardware_type="H100")
    job = store.get_historical_features(frame, ["family_history:mean", "family_history:last"], full_feature_names=True)
    storage = SavedDatasetFileStorage(path=str(tmp_path / name))
    store.create_saved_dataset(job, "training", storage)
    again = store.get_saved_dataset("training").to_df()
    columns = ["job_family", "event_timestamp", "family_history__mean", "family_history__last"]
    pd.testing.assert_frame_equal(
        again[columns], job.to_df()[columns].sort_values("event_timestamp", ignore_index=True)
    )
    with pytest.raises(SavedDatasetLocationAlreadyExists):
        store.create_saved_dataset(job, "training", storage)
    store.create_saved_dataset(job, "training", storage, allow_overwrite=True)
    assert len(store.get_saved_dataset("training").to_df()) == 3


def test_empty_entity_frame_gives_an_empty_training_set_with_all_columns(
    store: FeatureStore, deployment: Settings
) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    job = store.get_historical_features(asked(seconds(1)).iloc[:0], ["family_history:mean"])
    assert job.to_arrow().num_rows == 0
    assert job.to_df().columns.to_list() == [*JOIN_KEYS, "event_timestamp", "mean"]


@pytest.mark.filterwarnings("ignore:On demand feature view is an experimental feature:RuntimeWarning")
def test_on_demand_view_is_computed_by_feast_from_the_joined_rows(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e)])
    request = RequestSource(name="request", schema=[Field(name="added", dtype=Float64)])

    @on_demand_feature_view(
        sources=[store.get_feature_view("family_history")[["mean"]], request],
        schema=[Field(name="more", dtype=Float64)],
    )
    def more(inputs: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"more": inputs["mean"] + inputs["added"]})

    store.apply([more])
    frame = asked(seconds(9), seconds(9)).assign(added=[1.0, 2.0])
    assert store.get_historical_features(frame, ["more:more"]).to_df().more.to_list() == [2.0, 3.0]


@pytest.mark.parametrize("mode", [PushMode.OFFLINE, PushMode.ONLINE_AND_OFFLINE])
def test_pushed_rows_join_the_data_set(store: FeatureStore, deployment: Settings, mode: PushMode) -> None:
    attempts: list[Attempt] = [attempt(1, throughput=np.e), attempt(2, throughput=np.e**3, completed_s=50)]
    write_history(Path(deployment.history), attempts[:1])
    pushed = table_of(FAMILY, history_rows(FAMILY, attempts)[1:]).to_pandas()
    pushed.index = pd.Index([41])
    store.push("family_history_push", pushed[sorted(pushed.columns)], to=mode)
    assert means(store, asked(seconds(49), seconds(50))) == [1.0, 2.0]
    assert online_count(store) == (2 if mode == PushMode.ONLINE_AND_OFFLINE else None)
    store.push("family_history_push", pushed.assign(mean=9.0), to=PushMode.OFFLINE)
    assert means(store, asked(seconds(49), seconds(50))) == [1.0, 9.0]
    naive = pushed.assign(event_timestamp=pushed.event_timestamp.dt.tz_localize(None))
    with pytest.raises(ValueError, match="event_timestamp of the pushed rows must be a time with a time zone"):
        store.push("family_history_push", naive, to=PushMode.OFFLINE)


def test_rows_written_to_a_single_file_are_added_to_it(store: FeatureStore, tmp_path: Path) -> None:
    view = apply_view(store, tmp_path / "single.parquet", [("a", seconds(10), 1.0)])
    more = pd.DataFrame({"k": ["a"], "at": [seconds(20)], "x": [2]})
    store.write_to_offline_store(view, more)
    frame = pd.DataFrame({"k": "a", "event_timestamp": [seconds(10), seconds(20)]})
    assert store.get_historical_features(frame, [f"{view}:x"]).to_df().x.to_list() == [1.0, 2.0]
    assert list(tmp_path.glob(".*")) == []


def test_all_rows_between_two_times_are_pulled_in_order(store: FeatureStore, tmp_path: Path) -> None:
    rows = [("a", seconds(30), 3.0), ("b", seconds(20), 2.0), ("a", seconds(10), 1.0)]
    view = store.get_feature_view(apply_view(store, tmp_path / "all.parquet", rows))

    def pulled(since: datetime | None, until: datetime | None) -> list[float]:
        job = AsOfOfflineStore.pull_all_from_table_or_query(
            store.config, view.batch_source, ["k"], ["x"], "at", None, since, until
        )
        values: list[float] = job.to_df().x.to_list()
        return values

    assert pulled(None, None) == [1.0, 2.0, 3.0]
    assert pulled(seconds(20), None) == [2.0, 3.0]
    assert pulled(None, seconds(20)) == [1.0, 2.0]
    assert pulled(seconds(10.000001), seconds(29.999999)) == [2.0]
    with pytest.raises(ValueError, match="2026-01-05T08:00:00 has no time zone"):
        pulled(START.replace(tzinfo=None), None)


# --- errors ---


def test_view_without_data_is_an_error_that_says_how_to_make_it(store: FeatureStore) -> None:
    with pytest.raises(NoRows, match=r"family_history: `leap history build` makes them from the archive"):
        store.get_historical_features(asked(seconds(1)), ["family_history:mean"])
    with pytest.raises(NoRows):
        store.materialize(START, EVER)


def test_missing_join_key_is_an_error_that_names_it(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    frame = asked(seconds(1)).drop(columns=["hardware_type", "trainer_count"])
    with pytest.raises(
        ValueError, match=r"lack \['hardware_type', 'trainer_count'\], join keys of feature view family_s"
    ):
        store.get_historical_features(frame, ["family_scale_history:mean"])


def test_feature_with_the_name_of_an_entity_column_is_an_error(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    frame = asked(seconds(1)).assign(mean=1.0)
    with pytest.raises(
        ValueError, match=r"features \['mean'\] of view family_history have the names of entity columns"
    ):
        store.get_historical_features(frame, ["family_history:mean"])
    assert "family_history__mean" in store.get_historical_features(frame, ["family_history:mean"], True).to_df()


def test_key_of_another_type_is_an_error_that_names_the_view(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1)])
    frame = asked(seconds(1), trainer_count="eight")
    with pytest.raises(ValueError, match="feature view family_scale_history"):
        store.get_historical_features(frame, ["family_scale_history:mean"]).to_df()


def test_integer_key_that_pandas_made_a_float_still_meets(store: FeatureStore, deployment: Settings) -> None:
    write_history(Path(deployment.history), [attempt(1, throughput=np.e)])
    frame = pd.concat([asked(seconds(1)), asked(seconds(1), trainer_count=None)], ignore_index=True)
    frame["trainer_count"] = frame.trainer_count.astype("float64")
    assert means(store, frame, "family_scale_history") == [1.0, None]


def test_source_that_is_not_parquet_is_refused_at_apply(store: FeatureStore) -> None:
    source = FileSource(name="delta", path="x", file_format=DeltaFormat(), timestamp_field="at")
    with pytest.raises(ValueError, match="AsOfOfflineStore reads a FileSource in Parquet, got"):
        AsOfOfflineStore().validate_data_source(store.config, source)


def test_source_without_its_timestamp_column_is_refused_at_apply(store: FeatureStore, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"]}), tmp_path / "timeless.parquet")
    path = str(tmp_path / "timeless.parquet")
    source = FileSource(name="timeless", path=path, file_format=ParquetFormat(), timestamp_field="at")
    with pytest.raises(ValueError, match=r"data source timeless: no timestamp column 'at' among \['k'\]"):
        AsOfOfflineStore().validate_data_source(store.config, source)


def test_query_that_takes_too_long_is_given_up() -> None:
    endless = "SELECT now() AS event_timestamp FROM range(100) a, range(1000000) b, range(1000000) c"
    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s"):
        as_of_join.run(lambda connection: connection.sql(f"SELECT count(*) FROM ({endless})").fetchall(), 0.1)


def test_unfinished_files_are_no_data(tmp_path: Path) -> None:
    for name in (".part.parquet", "_part.parquet", "part.parquet", "part.txt"):
        (tmp_path / name).write_bytes(b"")
    assert parquet_files.files_of(tmp_path) == (str(tmp_path / "part.parquet"),)


def test_column_that_older_files_lack_is_null_there(store: FeatureStore, tmp_path: Path) -> None:
    directory = tmp_path / "grown"
    parquet_files.write(
        pa.table({"k": ["a"], "at": pa.array([seconds(1)], pa.timestamp("us", "UTC")), "x": [1.0]}),
        directory / "old.parquet",
    )
    parquet_files.write(
        pa.table({"k": ["b"], "at": pa.array([seconds(1)], pa.timestamp("us", "UTC")), "x": [2.0], "y": [7]}),
        directory / "young.parquet",
    )
    entity = Entity(name="k", join_keys=["k"], value_type=ValueType.STRING)
    source = FileSource(name="grown", path=str(directory), file_format=ParquetFormat(), timestamp_field="at")
    schema = [Field(name="k", dtype=String), Field(name="x", dtype=Float64), Field(name="y", dtype=Int64)]
    store.apply([entity, FeatureView(name="grown", entities=[entity], schema=schema, source=source)])
    frame = pd.DataFrame({"k": ["a", "b"], "event_timestamp": [seconds(2)] * 2})
    got = store.get_historical_features(frame, ["grown:x", "grown:y"]).to_arrow()
    assert got.column("x").to_pylist() == [1.0, 2.0]
    assert got.column("y").to_pylist() == [None, 7]

"""Opening the feature store from Python, and the definitions that it is given."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from feast import FeatureStore
from feast.data_source import PushSource

from leap_features import hardware_specs, parquet_files
from leap_features.feature_store import FeatureRepoError, apply_definitions, open_feature_store
from leap_features.hardware import CATALOGUE, SPECS, Catalogue, Hardware
from leap_features.history import FEATURES
from leap_features.levels import LEVELS
from leap_features.settings import Settings


def copy_of(repository: str, to: Path) -> Path:
    to.mkdir()
    for name in ("feature_store.yaml", "definitions.py"):
        shutil.copy(Path(repository) / name, to)
    return to


def test_there_is_one_view_per_level_with_its_keys_and_all_features(store: FeatureStore) -> None:
    kinds = {float: "Float64", int: "Int64", str: "String"}
    for level in LEVELS:
        view = store.get_feature_view(level.view)
        assert {field.name for field in view.entity_columns} == set(level.join_keys)
        assert [(field.name, str(field.dtype)) for field in view.features] == [(n, kinds[k]) for n, k in FEATURES]
        assert view.ttl is not None
        assert view.ttl.total_seconds() == 0
        assert isinstance(view.stream_source, PushSource)
    assert {view.name for view in store.list_feature_views()} == {level.view for level in LEVELS} | {"hardware_specs"}
    assert [str(entity.value_type) for entity in store.list_entities() if entity.name == "trainer_count"] == [
        "ValueType.INT64"
    ]


def test_project_redis_and_registry_are_those_of_the_settings(deployment: Settings, tmp_path: Path) -> None:
    store = open_feature_store(deployment, tmp_path / "registry.db")
    assert store.project == deployment.project
    assert store.config.online_store.redis_url == deployment.redis_url
    assert store.config.registry.path == str(tmp_path / "registry.db")
    assert store.config.registry.serve_features_while_materializing


def test_registry_and_redis_that_the_configuration_names_are_used(deployment: Settings, tmp_path: Path) -> None:
    repository = copy_of(deployment.feature_repo, tmp_path / "repository")
    file = repository / "feature_store.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("online_store:", "online_store:\n  redis_url: redis://other:6379/1"), encoding="utf-8")
    store = open_feature_store(Settings(feature_repo=str(repository)))
    assert store.config.online_store.redis_url == "redis://other:6379/1"
    assert store.config.registry.path == "data/registry.db"


def test_history_relative_to_the_folder_above_the_repository_is_found(
    deployment: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = copy_of(deployment.feature_repo, tmp_path / "repository")
    monkeypatch.chdir(tmp_path)
    settings = Settings(feature_repo="repository", project=deployment.project, redis_url=deployment.redis_url)
    store = open_feature_store(settings)
    apply_definitions(store, settings)
    assert (tmp_path / "data/history/hardware_specs/catalogue.parquet").exists()
    assert store.get_feature_view("family_history").batch_source.path == "../data/history/family_history"
    assert (repository / "data/registry.db").exists()
    store.apply([store.get_feature_view("hardware_specs")])  # Its entity is looked up in that registry.
    assert not (tmp_path / "data/registry.db").exists()
    # From elsewhere it would be another folder to Feast than to the rest of LEAP.
    monkeypatch.chdir(repository)
    elsewhere = Settings(feature_repo=".", project=deployment.project, redis_url=deployment.redis_url)
    with pytest.raises(FeatureRepoError, match=r"LEAP_HISTORY='data/history' is .* make it absolute, or run this in"):
        apply_definitions(open_feature_store(elsewhere), elsewhere)


def test_folder_without_configuration_or_definitions_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    settings = Settings(feature_repo=str(tmp_path), history=str(tmp_path / "history"))
    with pytest.raises(FeatureRepoError, match=r"no .*feature_store\.yaml: set LEAP_FEATURE_REPO"):
        open_feature_store(settings)
    (tmp_path / "feature_store.yaml").write_text("project: x\nregistry: r.db\nonline_store: {type: sqlite}\n")
    with pytest.raises(FeatureRepoError, match=r"no .*definitions\.py: set LEAP_FEATURE_REPO"):
        apply_definitions(FeatureStore(repo_path=str(tmp_path)), settings)


def test_applying_twice_changes_nothing(store: FeatureStore, deployment: Settings, tmp_path: Path) -> None:
    before = {view.name: view for view in store.list_feature_views()}
    rows = Path(deployment.history) / "hardware_specs/catalogue.parquet"
    written_at = rows.stat().st_mtime_ns
    again = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(again, deployment)
    assert {view.name: view for view in again.list_feature_views()} == before
    assert rows.stat().st_mtime_ns == written_at


def test_catalogue_has_one_row_per_name_and_alias_and_null_where_nothing_is_published(tmp_path: Path) -> None:
    catalogue = Catalogue([Hardware("A", aliases=("a1", "a2"), memory_gib=80.0), Hardware("B", memory_gib=16.0)])
    table = parquet_files.read(hardware_specs.write(tmp_path, catalogue))
    assert table.column_names == ["hardware_type", *SPECS, "event_timestamp"]
    assert dict(zip(*table.select(["hardware_type", "memory_gib"]).to_pydict().values(), strict=True)) == {
        "a1": 80.0,
        "a2": 80.0,
        "A": 80.0,
        "B": 16.0,
    }
    assert table.column("fp32_tflops").null_count == 4
    assert set(table.column("event_timestamp").to_pylist()) == {hardware_specs.KNOWN_SINCE}
    hardware_specs.write(tmp_path)
    assert parquet_files.read(tmp_path / "hardware_specs/catalogue.parquet").num_rows > len(CATALOGUE)

"""The Feast CLI in processes of its own, started in the feature repository and above it; then reading and pushing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from feast import FeatureStore

from fleet_history import START, Attempt, history_rows, made_up_fleet, table_of, write_history
from leap_features.feature_store import open_feature_store
from leap_features.hardware import CATALOGUE
from leap_features.history import FEATURES, features
from leap_features.levels import FAMILY, LEVELS
from leap_features.settings import Settings

CLI = "from feast.cli.cli import cli; cli()"


@pytest.fixture(params=["in the repository", "above it"])
def place(request: pytest.FixtureRequest, deployment: Settings) -> tuple[Path, list[str]]:
    """Working directory and the options that go with it."""
    repository = Path(deployment.feature_repo)
    if request.param == "in the repository":
        return repository, []
    return repository.parent, ["-c", repository.name]


@pytest.fixture
def environment(deployment: Settings, tmp_path: Path) -> dict[str, str]:
    """The environment of the CLI: the repository's configuration, with this test's project and registry."""
    text = (Path(deployment.feature_repo) / "feature_store.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("project: leap\n", f"project: {deployment.project}\n"),
        ("path: data/registry.db", f"path: {tmp_path}/registry.db"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "feature_store.yaml").write_text(text, encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    return clean | {
        "FEAST_FS_YAML_FILE_PATH": str(tmp_path / "feature_store.yaml"),
        "LEAP_PROJECT": deployment.project,
        "LEAP_REDIS_URL": deployment.redis_url,
        "LEAP_HISTORY": deployment.history,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def feast(arguments: Sequence[str], directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CLI, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def online_equals(store: FeatureStore, attempts: Sequence[Attempt]) -> bool:
    """Whether the online rows of every level are those that the fold makes of `attempts`."""
    for level in LEVELS:
        latest = {stamped.key: features(stamped.row) for stamped in history_rows(level, attempts)}
        keys = [dict(zip(level.join_keys, key, strict=True)) for key in latest]
        answer = store.get_online_features([f"{level.view}:{name}" for name, _ in FEATURES], keys).to_dict()
        got = [{name: answer[name][number] for name, _ in FEATURES} for number in range(len(keys))]
        if got != list(latest.values()):
            return False
    return True


def test_apply_materialize_and_materialize_incremental_serve_the_rows_of_the_data_sets(
    deployment: Settings,
    environment: dict[str, str],
    place: tuple[Path, list[str]],
    tmp_path: Path,
) -> None:
    directory, options = place
    attempts = made_up_fleet(150)
    first, end = attempts[:80], attempts[-1].recorded_at + timedelta(seconds=1)

    done = feast([*options, "apply"], directory, environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for level in LEVELS:
        assert level.view in done.stdout

    write_history(Path(deployment.history), first)
    until = first[-1].recorded_at
    done = feast([*options, "materialize", START.isoformat(), until.isoformat()], directory, environment)
    assert done.returncode == 0, done.stderr
    store = open_feature_store(deployment, tmp_path / "registry.db")
    assert online_equals(store, first)

    write_history(Path(deployment.history), attempts)
    done = feast([*options, "materialize-incremental", end.isoformat()], directory, environment)
    assert done.returncode == 0, done.stderr
    store.refresh_registry()
    assert online_equals(store, attempts)
    memory = store.get_online_features(["hardware_specs:memory_gib"], [{"hardware_type": "H100"}]).to_dict()
    assert memory["memory_gib"] == [CATALOGUE["H100"].memory_gib]

    more = made_up_fleet(200)
    store.push("family_history_push", table_of(FAMILY, history_rows(FAMILY, more)).to_pandas())
    latest = {stamped.key: features(stamped.row) for stamped in history_rows(FAMILY, more)}
    for (family,), expected in latest.items():
        answer = store.get_online_features(["family_history:version"], [{"job_family": family}]).to_dict()
        assert answer["version"] == [expected["version"]]


def test_apply_under_another_project_than_the_configurations_is_refused(
    deployment: Settings, environment: dict[str, str], redis_client: redis.Redis
) -> None:
    directory = Path(deployment.feature_repo)
    done = feast(["apply"], directory, environment | {"LEAP_PROJECT": "another"})
    assert done.returncode != 0
    assert "Project object name should match with the project name defined in feature_store.yaml" in done.stdout
    assert redis_client.dbsize() == 0

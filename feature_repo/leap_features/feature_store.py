"""Opens Feast's feature store of a deployment from Python, and registers the definitions of its feature repository.

The Feast CLI takes project and registry from `feature_store.yaml` alone. Here they may be others, so that several
deployments, and tests, can share one feature repository.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from feast import FeatureStore, RepoConfig
from feast.utils import get_default_yaml_file_path

from leap_features import hardware_specs
from leap_features.settings import Settings


class FeatureRepoError(RuntimeError):
    """The feature repository cannot be used; the message says what to do."""


def open_feature_store(settings: Settings, registry: Path | None = None) -> FeatureStore:
    """The feature store of the repository `settings.feature_repo`, for the project and the Redis of `settings`.

    Args:
        registry: the registry file, if not the one of `feature_store.yaml`.

    Raises:
        FeatureRepoError: there is no `feature_store.yaml`.
    """
    repository = Path(settings.feature_repo).resolve()
    values = configuration(settings)
    values["project"] = settings.project
    values["online_store"].setdefault("redis_url", settings.redis_url)
    if registry is not None:
        given = values.get("registry")
        values["registry"] = (given if isinstance(given, dict) else {}) | {"path": str(registry.resolve())}
    config = RepoConfig(**values)
    config.repo_path = repository
    # Without its own repo_path, Feast would look for a relative registry in the working directory.
    return FeatureStore(repo_path=str(repository), config=config)


def configuration(settings: Settings) -> dict[str, Any]:
    """What the repository's `feature_store.yaml` says.

    Raises:
        FeatureRepoError: there is none.
    """
    file = get_default_yaml_file_path(Path(settings.feature_repo).resolve())
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FeatureRepoError(
            f"no {file}: set LEAP_FEATURE_REPO to the folder that holds feature_store.yaml"
        ) from None
    values: dict[str, Any] = yaml.safe_load(os.path.expandvars(text))
    return values


def definitions(settings: Settings) -> list[Any]:
    """Feast's objects as the repository's `definitions.py` has them for `settings`.

    Raises:
        FeatureRepoError: there is no such file.
    """
    return list(_load(Path(settings.feature_repo).resolve() / "definitions.py").define(settings).values())


def apply_definitions(store: FeatureStore, settings: Settings) -> None:
    """Register the repository's definitions in `store`, as `feast apply` does, and make the catalogue's rows.

    Raises:
        FeatureRepoError: LEAP_HISTORY is relative to another folder than the one above the feature repository.
    """
    repository = Path(settings.feature_repo).resolve()
    here, to_feast = Path(settings.history).resolve(), (repository.parent / settings.history).resolve()
    if here != to_feast:
        raise FeatureRepoError(
            f"LEAP_HISTORY={settings.history!r} is {here} here and {to_feast} to Feast: "
            f"make it absolute, or run this in {repository.parent}"
        )
    hardware_specs.write(settings.history)
    store.apply(definitions(settings))


def _load(path: Path) -> ModuleType:
    """The module in the file `path`, under a name of its own: what it does for the Feast CLI, it leaves undone."""
    spec = importlib.util.spec_from_file_location("leap_feast_definitions", path)
    if spec is None or spec.loader is None or not path.exists():
        raise FeatureRepoError(f"no {path}: set LEAP_FEATURE_REPO to the folder that holds it")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Feast's registry beside the definitions of the feature repository: what `feast apply` would change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from feast import Entity, FeatureService, FeatureStore, FeatureView, Project
from feast.diff.property_diff import TransitionType
from feast.diff.registry_diff import FeastObjectDiff
from feast.feature_view import DUMMY_ENTITY_NAME
from feast.repo_contents import RepoContents

from leap_features.feature_store import configuration, definitions, open_feature_store
from leap_features.settings import Settings
from leap_streams.doctor_facts import ONLINE_STORE, Registry

_VERBS: Final = {
    TransitionType.CREATE: "lacks",
    TransitionType.DELETE: "still has",
    TransitionType.UPDATE: "has another",
}

_COMPARED_BY_THEMSELVES: Final = frozenset({"batch_source", "stream_source"})
"""Properties of a view that Feast compares with the instants of their registration."""


def read_registry(settings: Settings) -> Registry:
    """What the registry of `settings.feature_repo` has, and what it should have.

    A registry that is a file is looked at only where there is one: Feast would make it.

    Raises:
        FeatureRepoError: the folder is no feature repository.
        Exception: whatever Feast raises.
    """
    said = configuration(settings)
    project, online_store = str(said.get("project")), str(said.get("online_store", {}).get("type"))
    if online_store != ONLINE_STORE:
        return Registry(False, (), project, online_store, ())
    store = open_feature_store(settings)
    differences: Sequence[FeastObjectDiff] = ()
    if _is_there(store):
        difference, _, _ = store.plan(_contents(definitions(settings)))
        differences = [d for d in difference.feast_object_diffs if d.name != DUMMY_ENTITY_NAME]
    if all(d.transition_type == TransitionType.CREATE for d in differences):
        return Registry(False, (), project, online_store, ())
    return Registry(
        applied=True,
        changes=tuple(sorted(_change(d) for d in differences if d.transition_type != TransitionType.UNCHANGED)),
        file_project=project,
        online_store=online_store,
        expiring=tuple(sorted(view.name for view in store.list_feature_views() if view.ttl)),
    )


def _is_there(store: FeatureStore) -> bool:
    config = store.config.registry
    remote = config.registry_type != "file" or "://" in config.path
    return remote or (Path(store.repo_path) / config.path).exists()


def _contents(objects: Iterable[Any]) -> RepoContents:
    """`objects` sorted by their kinds; those that the product does not define are left empty."""
    every = list(objects)
    views = [thing for thing in every if isinstance(thing, FeatureView)]
    sources = [source for view in views for source in (view.batch_source, view.stream_source) if source is not None]
    return RepoContents(
        projects=[thing for thing in every if isinstance(thing, Project)],
        data_sources=sources,
        feature_views=views,
        on_demand_feature_views=[],
        stream_feature_views=[],
        label_views=[],
        entities=[thing for thing in every if isinstance(thing, Entity)],
        feature_services=[thing for thing in every if isinstance(thing, FeatureService)],
        permissions=[],
    )


def _change(difference: FeastObjectDiff) -> str:
    names = [entry.property_name for entry in difference.feast_object_property_diffs]
    properties = ", ".join(name for name in names if name not in _COMPARED_BY_THEMSELVES)
    thing = f"{difference.feast_object_type.value} {difference.name}"
    return f"it {_VERBS[difference.transition_type]} {thing}" + (f" ({properties})" if properties else "")

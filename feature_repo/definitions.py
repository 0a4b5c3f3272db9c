"""Feast definitions: the entities, the history views (one per level), the hardware view and the service of the ranking.

`feast apply` imports this module and registers what it finds among its attributes. The history levels are data
(`leap_features.levels`): a new line there is a new view here.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from feast import Entity, FeatureService, FeatureView, Field, FileSource, Project, PushSource, ValueType
from feast.data_format import ParquetFormat
from feast.types import Float64, Int64, String

from leap_features import hardware_specs as catalogue_rows
from leap_features.hardware import SPECS
from leap_features.history import FEATURES
from leap_features.levels import JOIN_KEY_TYPES, LEVELS, Level
from leap_features.settings import Settings

DTYPES = {float: Float64, int: Int64, str: String}
VALUE_TYPES = {int: ValueType.INT64, str: ValueType.STRING}

# State and version continue a row; a model takes no interest in them.
BOOKKEEPING = frozenset({"state", "version"})

# How old history may be used is for the launcher's policy to say, so rows live for ever.
FOR_EVER = timedelta(0)


def entities() -> dict[str, Entity]:
    """One entity per join key, by name."""
    return {name: Entity(name=name, join_keys=[name], value_type=VALUE_TYPES[t]) for name, t in JOIN_KEY_TYPES.items()}


def key_fields(names: tuple[str, ...]) -> list[Field]:
    """The schema of join keys."""
    return [Field(name=name, dtype=DTYPES[JOIN_KEY_TYPES[name]]) for name in names]


def parquet(view: str, history: str) -> FileSource:
    """The Parquet data set of a view, in the folder `history`."""
    # Feast resolves a relative path against this repository, LEAP_HISTORY is relative to the folder above it.
    path = Path("..") / history / view
    return FileSource(
        name=f"{view}_rows", path=str(path), file_format=ParquetFormat(), timestamp_field="event_timestamp"
    )


def history_view(level: Level, history: str) -> FeatureView:
    """The view of one level: its rows come from the worker, from `leap history build`, and from `push`."""
    known = entities()
    return FeatureView(
        name=level.view,
        entities=[known[name] for name in level.join_keys],
        schema=key_fields(level.join_keys) + [Field(name=name, dtype=DTYPES[kind]) for name, kind in FEATURES],
        source=PushSource(name=f"{level.view}_push", batch_source=parquet(level.view, history)),
        ttl=FOR_EVER,
        description=f"Throughput history per {', '.join(level.join_keys)}",
    )


def hardware_view(history: str) -> FeatureView:
    """The view of the hardware catalogue."""
    return FeatureView(
        name=catalogue_rows.VIEW,
        entities=[entities()["hardware_type"]],
        schema=key_fields(("hardware_type",)) + [Field(name=name, dtype=Float64) for name in SPECS],
        source=parquet(catalogue_rows.VIEW, history),
        ttl=FOR_EVER,
        description="Published specifications of accelerators",
    )


def ranking(history_views: list[FeatureView], hardware: FeatureView) -> FeatureService:
    """What the ranking model is trained on and served with."""
    names = [name for name, _ in FEATURES if name not in BOOKKEEPING]
    return FeatureService(name="ranking_v1", features=[*(view[names] for view in history_views), hardware])


def define(settings: Settings) -> dict[str, Any]:
    """All of Feast's objects, by the name of a module attribute."""
    history_views = [history_view(level, settings.history) for level in LEVELS]
    hardware = hardware_view(settings.history)
    return {
        # Feast refuses to apply where this is not the project of feature_store.yaml.
        "project": Project(name=settings.project, description="Live job-history features for hardware selection"),
        **{f"{name}_entity": entity for name, entity in entities().items()},
        **{view.name: view for view in (*history_views, hardware)},
        "ranking_v1": ranking(history_views, hardware),
    }


if __name__ == "definitions":  # Imported by the Feast CLI.
    settings = Settings.from_env()
    globals().update(define(settings))
    # The catalogue comes with the package, so its rows are made where they are registered.
    catalogue_rows.write(Path(__file__).parent / ".." / settings.history)

"""Feast's offline store for history: Parquet data sets, joined as of each entity row's time.

Every entity row is kept, in its order: two equal rows stay two, and a cold start has nulls. Times are UTC inside, and a
time without a zone is an error. See `as_of_join` for the join itself.

A materialization brings the latest row of every key up to its end, whatever its start. The start that Feast computes
is a memory of earlier runs: it misses rows that arrived after a run with an earlier stamp, all rows after a run up to
2099 by mistake, and rows of more than a year ago at first. The online store keeps what is newer, so that bringing a row
again is free of harm.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from feast.data_format import ParquetFormat
from feast.data_source import DataSource
from feast.feature_logging import LoggingConfig, LoggingSource
from feast.feature_view import DUMMY_ENTITY_ID, DUMMY_ENTITY_VAL, FeatureView
from feast.infra.offline_stores.file_source import FileSource
from feast.infra.offline_stores.offline_store import OfflineStore, RetrievalJob, RetrievalMetadata
from feast.infra.offline_stores.offline_utils import infer_event_timestamp_from_entity_df
from feast.infra.registry.base_registry import BaseRegistry
from feast.on_demand_feature_view import OnDemandFeatureView
from feast.repo_config import FeastConfigBaseModel, RepoConfig
from feast.utils import _get_requested_feature_views_to_features_dict

from leap_features import as_of_join, parquet_files
from leap_features.as_of_join import Rows, View
from leap_features.retrieval_job import AsOfRetrievalJob

EVENT_TIMESTAMP: Final = "event_timestamp"


class AsOfOfflineStoreConfig(FeastConfigBaseModel):
    """The `offline_store` section of `feature_store.yaml`: its type is all there is."""

    type: Literal["leap_features.offline_store.AsOfOfflineStore"] = "leap_features.offline_store.AsOfOfflineStore"


class AsOfOfflineStore(OfflineStore):
    """Reads Parquet files and folders; see the module."""

    supports_filter_by_created_timestamp = True

    @staticmethod
    def get_historical_features(
        config: RepoConfig,
        feature_views: list[FeatureView],
        feature_refs: list[str],
        entity_df: pd.DataFrame | str | None,
        registry: BaseRegistry,
        project: str,
        full_feature_names: bool = False,
        *,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
        filter_by_created_timestamp: bool = False,
    ) -> RetrievalJob:
        """Features as of each entity row's time.

        `entity_df` is a data frame, a query in DuckDB's SQL, or None: then it is every key with a row between
        `start_date` (None: ever) and `end_date`, as of `end_date`.

        Raises:
            ValueError: a time has no time zone, a key is missing, or a feature has the name of an entity column.
            NoRows: a view has no data.
        """
        _refuse_coercion(config)
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        requested, _ = _get_requested_feature_views_to_features_dict(feature_refs, feature_views, on_demand)
        views = [_view(config, view, names, full_feature_names) for view, names in requested.items()]
        if entity_df is None:
            entities, at = _snapshot(views, start_date, end_date), EVENT_TIMESTAMP
        elif isinstance(entity_df, str):
            entities, at = _from_query(entity_df)
        else:
            entities, at = _from_frame(entity_df)
        moments = _moments(entities, at)
        _check_columns(entities, views)

        def compute(timeout_s: float | None) -> pa.Table:
            key = "__leap_moment"
            joined = as_of_join.run(
                lambda connection: as_of_join.join(
                    connection,
                    entities.append_column(key, moments),
                    key,
                    views,
                    known_then=filter_by_created_timestamp,
                ),
                timeout_s,
            )
            return joined.drop_columns([key])

        bounds = pc.min_max(moments).as_py()
        epoch = datetime.fromtimestamp(0, UTC)
        return AsOfRetrievalJob(
            compute,
            config.repo_path,
            full_feature_names=full_feature_names,
            on_demand_feature_views=on_demand,
            metadata=RetrievalMetadata(
                features=feature_refs,
                keys=[name for name in entities.column_names if name != at],
                min_event_timestamp=bounds["min"] or epoch,
                max_event_timestamp=bounds["max"] or epoch,
            ),
        )

    @staticmethod
    def pull_latest_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None,
        start_date: datetime,
        end_date: datetime,
    ) -> RetrievalJob:
        """The latest row of each key up to `end_date`. `start_date` has no effect: see the module."""
        del start_date
        rows = _rows(config, _parquet(data_source), timestamp_field, created_timestamp_column)
        columns = [*join_key_columns, *feature_name_columns, timestamp_field]
        columns += [created_timestamp_column] if created_timestamp_column else []
        return _query_job(config, as_of_join.latest(rows, join_key_columns, columns, end_date), join_key_columns)

    @staticmethod
    def pull_all_from_table_or_query(
        config: RepoConfig,
        data_source: DataSource,
        join_key_columns: list[str],
        feature_name_columns: list[str],
        timestamp_field: str,
        created_timestamp_column: str | None = None,
        start_date: datetime | None = None,
        end_date: datetime | None = None,
    ) -> RetrievalJob:
        """All rows from `start_date` to `end_date`, both included, in order of time."""
        rows = _rows(config, _parquet(data_source), timestamp_field, created_timestamp_column)
        columns: list[str] = []
        if feature_name_columns:
            columns = [*join_key_columns, *feature_name_columns, timestamp_field]
            columns += [created_timestamp_column] if created_timestamp_column else []
        return _query_job(config, as_of_join.every(rows, columns, start_date, end_date), join_key_columns)

    @staticmethod
    def offline_write_batch(
        config: RepoConfig, feature_view: FeatureView, table: pa.Table, progress: Callable[[int], Any] | None
    ) -> None:
        """Add pushed rows to the view's data set: a new file in its folder, or a longer file.

        Raises:
            ValueError: the columns are not those of the data set, or the times have no time zone.
        """
        source = _parquet(feature_view.batch_source)
        path = _path(config, source)
        schema = parquet_files.schema_of(parquet_files.files_of(path))
        column_of = _columns_of(source)
        table = table.rename_columns([column_of.get(name, name) for name in table.column_names])
        added = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
        if set(added.column_names) != set(schema.names):
            raise ValueError(
                f"feature view {feature_view.name}: the columns {added.column_names} are not those of its data set, "
                f"{schema.names}"
            )
        for name in (source.timestamp_field, source.created_timestamp_column):
            column = column_of.get(name, name)
            if column:
                _require_zone(added.schema.field(column).type, column, "pushed rows")
        added = added.select(schema.names).cast(schema)
        if Path(path).is_dir():
            parquet_files.write(added, Path(path) / f"pushed-{time.time_ns():020d}-{uuid.uuid4().hex}.parquet")
        else:
            before = pq.read_table(path, schema=schema)
            parquet_files.write(pa.concat_tables([before, added]), Path(path))
        if progress is not None:
            progress(added.num_rows)

    @staticmethod
    def write_logged_features(
        config: RepoConfig,
        data: pa.Table | Path,
        source: LoggingSource,
        logging_config: LoggingConfig,
        registry: BaseRegistry,
    ) -> NoReturn:
        """Refused: what a ranking was based on comes back in the attempt's completion event."""
        raise NotImplementedError(
            "AsOfOfflineStore keeps no feature logs: the `ranking` of a completion event says what was served. "
            "Remove logging_config from the feature service"
        )

    def validate_data_source(self, config: RepoConfig, data_source: DataSource) -> None:
        """Check that the source is Parquet and, where it exists already, that it has its timestamp column.

        Raises:
            ValueError: it is not, or has not.
        """
        source = _parquet(data_source)
        path = _path(config, source)
        try:
            names = parquet_files.schema_of(parquet_files.files_of(path)).names
        except parquet_files.NoRows:
            return  # The first history is built after the first apply.
        column = _columns_of(source).get(source.timestamp_field, source.timestamp_field)
        if column not in names:
            raise ValueError(f"data source {source.name}: no timestamp column {column!r} among {names} at {path}")

    def get_table_column_names_and_types_from_data_source(
        self, config: RepoConfig, data_source: DataSource
    ) -> Iterable[tuple[str, str]]:
        """Names and Arrow types of the columns of a source."""
        schema = parquet_files.schema_of(parquet_files.files_of(_path(config, _parquet(data_source))))
        return [(field.name, str(field.type)) for field in schema]


def _refuse_coercion(config: RepoConfig) -> None:
    if config.coerce_tz_aware:
        raise ValueError(
            "coerce_tz_aware is on: Feast would read times without a time zone as UTC before the store sees them. "
            "Set `coerce_tz_aware: false` in feature_store.yaml"
        )


def _parquet(source: DataSource | None) -> FileSource:
    if not isinstance(source, FileSource) or not isinstance(source.file_format, ParquetFormat | None):
        raise ValueError(f"AsOfOfflineStore reads a FileSource in Parquet, got {source!r}")
    return source


def _path(config: RepoConfig, source: FileSource) -> str:
    """Where the Parquet of `source` lies; a relative path is relative to the feature repository."""
    return str(FileSource.get_uri_for_file_path(config.repo_path, source.path))


def _columns_of(source: FileSource) -> dict[str, str]:
    """Feast's name → column of the source, for the names that its field mapping changes."""
    return {name: column for column, name in source.field_mapping.items()}


def _rows(config: RepoConfig, source: FileSource, timestamp: str, created: str | None) -> Rows:
    return Rows(parquet_files.files_of(_path(config, source)), timestamp, created or None)


def _view(config: RepoConfig, view: FeatureView, features: list[str], full_feature_names: bool) -> View:
    source = _parquet(view.batch_source)
    column_of = _columns_of(source)
    shown = view.projection.name_alias or view.name
    renamed = view.projection.join_key_map
    keys = [column.name for column in view.entity_columns if column.name != DUMMY_ENTITY_ID]
    return View(
        name=shown,
        rows=_rows(
            config,
            source,
            column_of.get(source.timestamp_field, source.timestamp_field),
            column_of.get(source.created_timestamp_column, source.created_timestamp_column),
        ),
        keys={renamed.get(key, key): column_of.get(key, key) for key in keys},
        features={f"{shown}__{name}" if full_feature_names else name: column_of.get(name, name) for name in features},
        ttl_us=view.ttl // timedelta(microseconds=1) if view.ttl else 0,
    )


def _query_job(config: RepoConfig, query: str, join_keys: list[str]) -> RetrievalJob:
    def compute(timeout_s: float | None) -> pa.Table:
        table = as_of_join.run(lambda connection: connection.sql(query).to_arrow_table(), timeout_s)
        if not join_keys:
            table = table.append_column(DUMMY_ENTITY_ID, pa.repeat(DUMMY_ENTITY_VAL, table.num_rows))
        return table

    return AsOfRetrievalJob(compute, config.repo_path)


def _from_frame(frame: pd.DataFrame) -> tuple[pa.Table, str]:
    """The rows of `frame` and the name of their event timestamp."""
    at = infer_event_timestamp_from_entity_df(dict(zip(frame.columns, frame.dtypes, strict=True)))
    if frame[at].dtype == object:
        # Arrow and pandas read a naive time among aware ones as UTC.
        for number, value in enumerate(frame[at]):
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise ValueError(f"entity row {number}: {at} must be a time with a time zone, got {value!r}")
        frame = frame.assign(**{at: pd.to_datetime(frame[at], utc=True)})
    return pa.Table.from_pandas(frame, preserve_index=False), at


def _from_query(query: str) -> tuple[pa.Table, str]:
    table = as_of_join.run(lambda connection: connection.sql(query).to_arrow_table())
    if EVENT_TIMESTAMP in table.column_names:
        return table, EVENT_TIMESTAMP
    times = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    if len(times) != 1:
        raise ValueError(f"the entity query must give a column {EVENT_TIMESTAMP}, got {table.column_names}")
    return table, times[0]


def _snapshot(views: list[View], start: datetime | None, end: datetime | None) -> pa.Table:
    """Every key with a row between `start` and `end`, as of `end`."""
    for name, value in (("start_date", start), ("end_date", end)):
        if value is not None and value.tzinfo is None:
            raise ValueError(
                f"{name} {value.isoformat()} has no time zone: give one, for example datetime.now(UTC) "
                "(Feast's own default for end_date has none)"
            )
    until = end or datetime.now(UTC)
    names = {name for view in views for name in view.keys}
    widest = [view for view in views if set(view.keys) == names]
    if not widest:
        raise ValueError(
            f"no view has all the join keys {sorted(names)}, so their entities are unknown: give an entity_df"
        )
    if not names:
        return pa.table({EVENT_TIMESTAMP: pa.array([until], pa.timestamp("us", "UTC"))})
    query = as_of_join.keys_between(widest, start, until)
    table = as_of_join.run(lambda connection: connection.sql(query).to_arrow_table())
    moments = pa.array([until] * table.num_rows, pa.timestamp("us", "UTC"))
    return table.append_column(EVENT_TIMESTAMP, moments)


def _moments(entities: pa.Table, at: str) -> pa.ChunkedArray:
    """The event timestamps in microseconds, UTC, rounded down: nothing after them is seen."""
    column = entities.column(at)
    _require_zone(column.type, at, "entity rows")
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise ValueError(f"entity row {row} has no {at}")
    return pc.floor_temporal(column.cast(pa.timestamp(column.type.unit, "UTC")), unit="microsecond").cast(
        pa.timestamp("us", "UTC")
    )


def _require_zone(kind: pa.DataType, column: str, of: str) -> None:
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        raise ValueError(
            f"{column} of the {of} must be a time with a time zone, got {kind}: "
            f'use pd.to_datetime(…, utc=True) or .dt.tz_localize("UTC")'
        )


def _check_columns(entities: pa.Table, views: list[View]) -> None:
    for view in views:
        missing = sorted(set(view.keys) - set(entities.column_names))
        if missing:
            raise ValueError(
                f"the entity rows lack {missing}, join keys of feature view {view.name}; they have "
                f"{entities.column_names}"
            )
        taken = sorted(set(view.features) & set(entities.column_names))
        if taken:
            raise ValueError(
                f"features {taken} of view {view.name} have the names of entity columns: ask with "
                "full_feature_names=True, or rename the columns"
            )

"""Feast's retrieval job over a query that runs when its result is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
from feast.errors import SavedDatasetLocationAlreadyExists
from feast.infra.offline_stores.file_source import FileSource, SavedDatasetFileStorage
from feast.infra.offline_stores.offline_store import RetrievalJob, RetrievalMetadata
from feast.on_demand_feature_view import OnDemandFeatureView
from feast.saved_dataset import SavedDatasetStorage

from leap_features import parquet_files

Compute = Callable[[float | None], pa.Table]
"""Runs the query; the argument is a limit in seconds, after which it raises TimeoutError."""


class AsOfRetrievalJob(RetrievalJob):
    """What `get_historical_features` and its kin return. Each call of `to_df` or `to_arrow` runs the query anew."""

    def __init__(
        self,
        compute: Compute,
        repo_path: Path | None,
        *,
        full_feature_names: bool = False,
        on_demand_feature_views: list[OnDemandFeatureView] | None = None,
        metadata: RetrievalMetadata | None = None,
    ) -> None:
        self._compute = compute
        self._repo_path = repo_path
        self._full_feature_names = full_feature_names
        self._on_demand_feature_views = on_demand_feature_views or []
        self._metadata = metadata

    @property
    def full_feature_names(self) -> bool:
        """Whether features are named `view__feature`."""
        return self._full_feature_names

    @property
    def on_demand_feature_views(self) -> list[OnDemandFeatureView]:
        """Views that Feast computes from the result."""
        return self._on_demand_feature_views

    @property
    def metadata(self) -> RetrievalMetadata | None:
        """Features, keys and time range of the result."""
        return self._metadata

    def _to_arrow_internal(self, timeout: int | None = None) -> pa.Table:
        return self._compute(timeout)

    def _to_df_internal(self, timeout: int | None = None) -> pd.DataFrame:
        frame: pd.DataFrame = self._compute(timeout).to_pandas()
        return frame

    def persist(self, storage: SavedDatasetStorage, allow_overwrite: bool = False, timeout: int | None = None) -> None:
        """Write the result as Parquet to `storage`: a file if its path ends in `.parquet`, else a file in that folder.

        Raises:
            SavedDatasetLocationAlreadyExists: there is one, and `allow_overwrite` is False.
        """
        if not isinstance(storage, SavedDatasetFileStorage):
            raise TypeError(f"a saved data set is kept in a SavedDatasetFileStorage, got {type(storage).__name__}")
        location = storage.file_options.uri
        path = Path(FileSource.get_uri_for_file_path(self._repo_path, location))
        if path.exists() and not allow_overwrite:
            raise SavedDatasetLocationAlreadyExists(location=location)
        target = path if path.suffix == ".parquet" else path / "data.parquet"
        parquet_files.write(self.to_arrow(timeout=timeout), target)

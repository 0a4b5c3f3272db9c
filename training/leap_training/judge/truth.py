"""The truth beside a synthetic fleet: expected throughput on every eligible hardware type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from leap_features.columns import codes, logarithm


class TruthError(ValueError):
    """A file that is no truth of these attempts; the message says what to do."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Expected throughput in samples/s, one row per row of the data set."""

    hardware_types: tuple[str, ...]
    expected: NDArray[np.float32]
    """Shape (rows, hardware types). NaN: not eligible, or the truth has not this attempt; 0: runs out of memory."""

    def log_expected(self, rows: NDArray[np.int64], hardware_types: NDArray[Any]) -> NDArray[np.float64]:
        """Natural logarithm of what `rows` reach on `hardware_types`, one per row; NaN where the truth does not say."""
        places = {name: place for place, name in enumerate(self.hardware_types)}
        at = codes(hardware_types, places, missing=-1)
        found = self.expected[rows, at].astype(np.float64)
        return logarithm(np.where(at < 0, np.nan, found))


def read_truth(path: Path, attempt_ids: NDArray[Any]) -> Truth:
    """The truth of the attempts `attempt_ids` in the `truth.parquet` of a fleet.

    Raises:
        TruthError: the file cannot be read, is no truth, or has none of these attempts.
    """
    try:
        schema = pq.read_schema(path)
        types = tuple(field.name for field in schema if pa.types.is_floating(field.type))
        if "attempt_id" not in schema.names or not types:
            raise TruthError(f"{path} has no attempt_id and hardware types: give the truth.parquet of the fleet")
        table = pq.read_table(path, columns=["attempt_id", *types])
    except (pa.ArrowException, OSError) as error:
        raise TruthError(f"{path} cannot be read as Parquet: {error}") from None
    place = pc.index_in(pa.array(attempt_ids, pa.string()), value_set=table["attempt_id"].combine_chunks())
    if place.null_count == len(place):
        raise TruthError(f"{path} has none of the attempts: give the truth.parquet that was generated with these runs")
    at = place.fill_null(-1).to_numpy()
    expected = np.stack([table[name].to_numpy() for name in types], axis=1).astype(np.float32)[at]
    expected[at < 0] = np.nan
    return Truth(types, expected)

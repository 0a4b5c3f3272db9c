"""History rows built from an archive equal, bit for bit, what the fold makes of the same events one by one."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leap_features import archive, archive_reader
from leap_features.events import to_us
from leap_features.history import FEATURES, features
from leap_features.history_rows import write_history_rows
from leap_features.levels import LEVELS
from recorded_events import HORIZON_US, Recorded, archived, oracle, write_archive


def exact(value: object) -> object:
    """Floats by their bits: −0.0 is not 0.0."""
    return struct.pack("<d", value) if isinstance(value, float) else value


@given(archived(), st.lists(st.integers(2, 30), min_size=1, max_size=4))
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_rows_equal_the_fold_event_by_event(events: list[Recorded], cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as directory, archive_reader.connect() as connection:
        root, out = Path(directory, "archive"), Path(directory, "history")
        write_archive(root, events, cuts)
        counts = write_history_rows(connection, archive.segments(root), out, horizon_us=HORIZON_US)
        assert counts.archived == len(events)
        for level in LEVELS:
            expected = {key: features(row) for key, row in oracle(events, level).items()}
            found = {}
            for row in pq.read_table(out / level.view).to_pylist():
                stamp = row.pop("event_timestamp")
                key = (*(row.pop(name) for name in level.join_keys), to_us(stamp))
                assert key not in found
                found[key] = row
            assert {key: {n: exact(v) for n, v in row.items()} for key, row in found.items()} == {
                key: {n: exact(row[n]) for n, _ in FEATURES} for key, row in expected.items()
            }

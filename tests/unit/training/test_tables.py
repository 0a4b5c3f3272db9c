"""Tables of past runs are read row by row; a broken row does not stop the others."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leap_training.tables import BadRow, Table, TableError


def rows(path: Path) -> list[tuple[int, object]]:
    with Table(path) as table:
        return [(number, str(row) if isinstance(row, BadRow) else row) for number, row in table]


def test_csv_cells_are_text(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes('\ufeffid,läufe\na,1\n\n"b,\nc",2\n'.encode())
    assert rows(path) == [(1, {"id": "a", "läufe": "1"}), (2, {"id": "b,\nc", "läufe": "2"})]
    with Table(path) as table:
        assert table.columns == ["id", "läufe"]


def test_a_csv_row_of_another_length_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,rate\na\nb,1\n")
    (first, why), second = rows(path)
    assert (first, second) == (1, (2, {"id": "b", "rate": "1"}))
    assert "a row has 2 cells like the header, got 1" in str(why)


@pytest.mark.parametrize("text", ["", "a,a\n1,2\n"])
def test_a_csv_begins_with_distinct_column_names(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(TableError, match="must begin with a line of distinct column names"):
        Table(path)


def test_a_csv_with_another_mark_between_its_cells_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id;rate\na;1,5\n")
    with pytest.raises(TableError, match="parted by commas, got the header 'id;rate'"):
        Table(path)


def test_json_lines_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes('\ufeff{"id": 1}\n{"id": 2}\n'.encode())
    assert rows(path) == [(1, {"id": 1}), (2, {"id": 2})]


def test_parquet_times_of_nanoseconds_are_times(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    moment = 1_772_366_400_000_001_999
    pq.write_table(
        pa.table(
            {"there": pa.array([moment], pa.timestamp("ns")), "utc": pa.array([moment], pa.timestamp("ns", "UTC"))}
        ),
        path,
    )
    ((_, row),) = rows(path)
    assert row == {
        "there": datetime(2026, 3, 1, 12, 0, 0, 1),  # noqa: DTZ001 - without a zone, as in the file
        "utc": datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC),
    }
    assert {type(value) for value in row.values()} == {datetime}  # type: ignore[attr-defined]


def test_a_csv_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(b"id\n" + b"a\n" * 10_000 + b"\xe9\n")
    with pytest.raises(TableError, match="must be UTF-8"):
        rows(path)


def test_json_lines_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"id": 1, "rate": 2.5}\n\n[1]\n{"id": "b"\n{"ok": true}\n')
    found = rows(path)
    assert found[0] == (1, {"id": 1, "rate": 2.5})
    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert str(found[1][1]).startswith("a line is one JSON object")
    assert found[3] == (4, {"ok": True})


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"id": ["a", None], "n": [1, 2]}), path)
    assert rows(path) == [(1, {"id": "a", "n": 1}), (2, {"id": None, "n": 2})]
    with Table(path) as table:
        list(table)
        assert (table.columns, table.length, table.done) == (["id", "n"], 2, 2)


def test_what_has_been_read_is_known_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id\n" + "a\n" * 100_000)
    with Table(path) as table:
        done = [table.done for number, _ in table if number % 10_000 == 0]
    assert done == sorted(done)
    assert 0 < done[0] < done[-1] <= table.length


def test_the_name_says_the_format(tmp_path: Path) -> None:
    path = tmp_path / "runs.xls"
    path.write_text("x")
    with pytest.raises(TableError, match=r"must end in \.csv"):
        Table(path)
    with pytest.raises(TableError, match="No such file"):
        Table(tmp_path / "none.csv")
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(TableError, match="is no Parquet file"):
        Table(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "times",
    [pa.array([2**60], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("us", "Nowhere/Land"))],
    ids=["after the year 9999", "of an unknown zone"],
)
def test_parquet_times_that_are_none_are_an_error_of_the_table(tmp_path: Path, times: pa.Array) -> None:
    path = tmp_path / "runs.parquet"
    pq.write_table(pa.table({"began": times}), path)
    with pytest.raises(TableError, match="rows 1 and following cannot be read"):
        rows(path)

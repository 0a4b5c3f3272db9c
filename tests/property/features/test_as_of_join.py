"""The point-in-time join against a search through all rows, on small tables full of ties."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leap_features import as_of_join, parquet_files
from leap_features.as_of_join import Rows, View

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


class Fact(NamedTuple):
    """A row of a data set; times in microseconds after START."""

    family: str
    trainers: int
    at: int
    created: int | None


class Asked(NamedTuple):
    """An entity row."""

    family: str | None
    trainers: int | None
    at: int


# Few values, so that most keys meet, most times tie, and rows of one time differ in their creation alone.
families, trainers, moments = st.sampled_from(["a", "b'", ""]), st.sampled_from([1, 8]), st.integers(0, 5)
facts = st.lists(st.builds(Fact, families, trainers, moments, st.none() | moments), max_size=12)
files = st.lists(facts, min_size=1, max_size=3)
asked = st.lists(st.builds(Asked, families | st.none(), trainers | st.none(), moments), max_size=12)
ttls = st.sampled_from([0, 1, 2])


def time_of(us: int) -> datetime:
    return START + timedelta(microseconds=us)


def rows_at(directory: Path, data: list[list[Fact]], *, created: bool) -> Rows:
    """A data set of one file per list, in which every row has a number of its own."""
    number = 0
    for place, part in enumerate(data):
        table = pa.table(
            {
                "fam": pa.array([fact.family for fact in part], pa.string()),
                "trainers": pa.array([fact.trainers for fact in part], pa.int64()),
                "at": pa.array([time_of(fact.at) for fact in part], TIME),
                "made": pa.array([None if f.created is None else time_of(f.created) for f in part], TIME),
                "number": pa.array(range(number, number + len(part)), pa.int64()),
            }
        )
        number += len(part)
        parquet_files.write(table, directory / f"part-{place}.parquet")
    return Rows(parquet_files.files_of(directory), "at", "made" if created else None)


def found_by_search(
    data: list[list[Fact]], row: Asked, *, created: bool, known_then: bool, ttl: int, keys: bool
) -> int | None:
    """Number of the row that `row` must see: the last by time, creation and place of all that could be seen."""
    seen = [
        (fact.at, -1 if fact.created is None or not created else fact.created, number)
        for number, fact in enumerate(fact for part in data for fact in part)
        if (not keys or (fact.family, fact.trainers) == (row.family, row.trainers))
        and fact.at <= row.at
        and not (created and known_then and (fact.created is None or fact.created > row.at))
    ]
    if not seen or (ttl and max(seen)[0] < row.at - ttl):
        return None
    return max(seen)[2]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@given(data=files, rows=asked, ttl=ttls, created=st.booleans(), known_then=st.booleans(), keys=st.booleans())
def test_every_entity_row_sees_what_a_search_finds(
    scratch: Path, data: list[list[Fact]], rows: list[Asked], ttl: int, created: bool, known_then: bool, keys: bool
) -> None:
    directory = Path(tempfile.mkdtemp(dir=scratch))
    entities = pa.table(
        {
            "family": pa.array([row.family for row in rows], pa.string()),
            "trainer_count": pa.array([row.trainers for row in rows], pa.int64()),
            "submitted": pa.array([time_of(row.at) for row in rows], TIME),
            "label": pa.array(range(len(rows)), pa.int64()),
        }
    )
    view = View(
        "facts",
        rows_at(directory, data, created=created),
        keys={"family": "fam", "trainer_count": "trainers"} if keys else {},
        features={"facts__number": "number"},
        ttl_us=ttl,
    )
    joined = as_of_join.run(
        lambda connection: as_of_join.join(
            connection, entities, "submitted", [view, view_named(view, "again")], known_then=known_then
        )
    )
    assert joined.select(entities.column_names).equals(entities)
    expected = [found_by_search(data, row, created=created, known_then=known_then, ttl=ttl, keys=keys) for row in rows]
    assert joined.column("facts__number").to_pylist() == expected
    assert joined.column("again__number").to_pylist() == expected


def view_named(view: View, name: str) -> View:
    """The same view once more, as another one."""
    return View(name, view.rows, view.keys, {f"{name}__number": "number"}, view.ttl_us)


@given(data=files, until=moments, created=st.booleans(), keys=st.booleans())
def test_latest_rows_are_what_a_search_finds(
    scratch: Path, data: list[list[Fact]], until: int, created: bool, keys: bool
) -> None:
    rows = rows_at(Path(tempfile.mkdtemp(dir=scratch)), data, created=created)
    query = as_of_join.latest(rows, ["fam", "trainers"] if keys else [], ["number"], time_of(until))
    got = as_of_join.run(lambda connection: connection.sql(query).to_arrow_table())
    all_keys = {(fact.family, fact.trainers) for part in data for fact in part} if keys else {(None, None)}
    expected = {
        found_by_search(data, Asked(*key, until), created=created, known_then=False, ttl=0, keys=keys)
        for key in all_keys
    } - {None}
    assert sorted(got.column("number").to_pylist()) == sorted(expected, key=lambda number: number or 0)

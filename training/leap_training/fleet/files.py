"""A fleet on disk: its completion events, the truth beside them, and what it was made from.

A fleet's directory holds `completions.parquet` or `completions.jsonl`, `truth.parquet` with a row for each event in the
same order, and `fleet.json`, which comes last: where it stands, the fleet is whole. The same settings give the same
bytes. Memory is bounded by the fleet's own batches, however many attempts there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from leap_features.durable import publish, remove_leftovers, replaceable, sync, temporary_path
from leap_features.events import encode
from leap_training.fleet.events import EVENT_SCHEMA, event_table, events, truth_schema, truth_table
from leap_training.fleet.settings import FleetSettings

if TYPE_CHECKING:
    from leap_training.fleet.attempts import Attempts
    from leap_training.fleet.simulate import Fleet

Format = Literal["parquet", "jsonl"]

FLEET: Final = "fleet.json"
TRUTH: Final = "truth.parquet"
EVENTS: Final[dict[Format, str]] = {"parquet": "completions.parquet", "jsonl": "completions.jsonl"}
"""Name of the file of events, by format."""

ROW_GROUP: Final = 50_000
"""Rows that Parquet writes at once. Fewer make larger files, more take more memory."""


class FleetExists(ValueError):
    """The directory has a fleet already."""


class NoFleet(ValueError):
    """The directory has no fleet, or not all of one."""


class HardwareEntry(msgspec.Struct, frozen=True):
    """A hardware type of the fleet; days count from 0, the first."""

    name: str
    hourly_cost_usd: float
    available_from_day: int


class FleetDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What `fleet.json` says."""

    settings: FleetSettings
    hardware: list[HardwareEntry]
    models: int
    attempts: int
    format: Format


def write_fleet(
    fleet: Fleet,
    directory: Path,
    kind: Format,
    *,
    force: bool = False,
    progress: Callable[[int], None] = lambda _attempts: None,
) -> FleetDescription:
    """Write `fleet` to `directory`, which is made where absent; its files appear once all of them are complete.

    Args:
        kind: format of the events.
        force: replace a fleet that is there.
        progress: told after each batch how many attempts it had.

    Raises:
        FleetExists: there is a fleet, or part of one, and it is not to be replaced.
        OSError: the directory cannot be written.
    """
    there = [name for name in (FLEET, TRUTH, *EVENTS.values()) if (directory / name).exists()]
    if there and not force:
        raise FleetExists(f"{directory} has {there[0]} already: give another --out, or replace the fleet by --force")
    for name in there:
        replaceable(directory / name)
    directory.mkdir(parents=True, exist_ok=True)
    sync(directory.parent)
    remove_leftovers(directory, time.time())
    written = 0
    names = (EVENTS[kind], TRUTH)
    with _temporary(directory, names) as (events_path, truth_path):
        with _event_file(fleet, events_path, kind) as completions, _Parquet(truth_path, truth_schema(fleet)) as truth:
            for batch in fleet.batches():
                completions.add(batch)
                truth.add_table(truth_table(fleet, batch))
                written += len(batch)
                progress(len(batch))
        sync(events_path)
        sync(truth_path)
        for name in there:  # `fleet.json` first: files of two fleets must not pass for one
            (directory / name).unlink()
        events_path.replace(directory / names[0])
        truth_path.replace(directory / names[1])
    sync(directory)
    description = FleetDescription(
        settings=fleet.settings,
        hardware=[
            HardwareEntry(name, float(cost), int(day))
            for name, cost, day in zip(fleet.hardware, fleet.hourly_cost_usd, fleet.available_from_day, strict=True)
        ],
        models=len(fleet.models),
        attempts=written,
        format=kind,
    )
    text = msgspec.json.format(msgspec.json.encode(description), indent=2) + b"\n"
    publish(directory, FLEET, text, replace=False)
    return description


def read_description(directory: Path) -> FleetDescription:
    """What `fleet.json` in `directory` says.

    Raises:
        NoFleet: it is not there, or is none.
    """
    try:
        return msgspec.json.decode((directory / FLEET).read_bytes(), type=FleetDescription)
    except OSError:
        raise NoFleet(f"{directory} has no {FLEET}, so no whole fleet: make one by `leap fleet generate`") from None
    except msgspec.DecodeError as error:
        raise NoFleet(
            f"{directory / FLEET} describes no fleet: {error}; make it anew by `leap fleet generate`"
        ) from None


class _Parquet:
    """A Parquet file of `schema`, written in groups of `ROW_GROUP` rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add_table(self, table: pa.Table) -> None:
        """Write `table`, now or together with later ones."""
        self._waiting.append(table)
        self._rows += table.num_rows
        while self._rows >= ROW_GROUP:
            self._write(ROW_GROUP)

    def _write(self, rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        self._writer.write_table(waiting.slice(0, rows))
        self._waiting = [waiting.slice(rows)]
        self._rows -= rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._rows:
            self._write(self._rows)
        self._writer.close()


class _ParquetEvents(_Parquet):
    """`completions.parquet`."""

    def __init__(self, fleet: Fleet, path: Path) -> None:
        super().__init__(path, EVENT_SCHEMA)
        self._fleet = fleet

    def add(self, batch: Attempts) -> None:
        """Write the events of a batch."""
        self.add_table(event_table(self._fleet, batch))


class _LineEvents:
    """`completions.jsonl`."""

    def __init__(self, fleet: Fleet, path: Path) -> None:
        self._fleet = fleet
        self._file = path.open("wb")

    def add(self, batch: Attempts) -> None:
        """Write the events of a batch."""
        self._file.writelines(encode(event) + b"\n" for event in events(self._fleet, batch))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _event_file(fleet: Fleet, path: Path, kind: Format) -> _ParquetEvents | _LineEvents:
    return _ParquetEvents(fleet, path) if kind == "parquet" else _LineEvents(fleet, path)


@contextmanager
def _temporary(directory: Path, names: tuple[str, ...]) -> Iterator[list[Path]]:
    """Paths to write to in place of `names`; what is left there in the end is removed."""
    paths = [temporary_path(directory, name) for name in names]
    try:
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)

"""Tables of past runs: CSV, JSON Lines and Parquet files, row by row."""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import msgspec

ROWS_AT_ONCE: Final = 10_000
FORMATS: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}


class TableError(ValueError):
    """A file that is no table; the message says what to do."""


class BadRow(ValueError):
    """A row that cannot be told into columns."""


class Table:
    """An open table. Iterating gives (row number, row), the first row being 1; a row that is broken is a `BadRow`.

    Attributes:
        columns: names of the columns, None where each row has its own.
        length: how much there is to read, in the unit of `done`.
    """

    def __init__(self, path: Path) -> None:
        """Open the file at `path`; its name says the format.

        Raises:
            TableError: it cannot be read, or its name says no known format.
        """
        kind = FORMATS.get(path.suffix.lower())
        if kind is None:
            raise TableError(f"{path} must end in {', '.join(FORMATS)}")
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise TableError(f"{path}: {error.strerror}") from None
        self._path = path
        self.columns: list[str] | None = None
        self.length = path.stat().st_size
        self._parquet_rows = 0
        self._rows = {"csv": self._csv, "jsonl": self._json_lines, "parquet": self._parquet}[kind]()

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, object] | BadRow]]:
        return enumerate(self._rows, start=1)

    @property
    def done(self) -> int:
        """How much has been read."""
        return self._parquet_rows or min(self._file.tell(), self.length)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _csv(self) -> Iterator[Mapping[str, object] | BadRow]:
        lines = io.TextIOWrapper(self._file, encoding="utf-8-sig", newline="")
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, [])
        except (csv.Error, UnicodeDecodeError) as error:
            raise TableError(f"{self._path} is no CSV in UTF-8: {error}") from None
        if not header or len(set(header)) != len(header):
            raise TableError(f"{self._path} must begin with a line of distinct column names, got {header}")
        if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
            raise TableError(f"{self._path}: the cells of a CSV are parted by commas, got the header {header[0]!r}")
        self.columns = header
        return self._csv_rows(reader, header)

    def _csv_rows(self, reader: Iterator[list[str]], header: list[str]) -> Iterator[Mapping[str, object] | BadRow]:
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise TableError(f"{self._path} must be UTF-8: {error}") from None
            except csv.Error as error:
                yield BadRow(f"not CSV: {error}; mend the quotes")
                continue
            if not cells:  # a blank line
                continue
            if len(cells) != len(header):
                yield BadRow(
                    f"a row has {len(header)} cells like the header, got {len(cells)}; quote cells with commas"
                )
            else:
                yield dict(zip(header, cells, strict=True))

    def _json_lines(self) -> Iterator[Mapping[str, object] | BadRow]:
        decoder = msgspec.json.Decoder(dict[str, object])
        for number, line in enumerate(self._file):
            written = line.removeprefix(BOM_UTF8) if number == 0 else line
            if not written.strip():
                continue
            try:
                yield decoder.decode(written)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield BadRow(f"a line is one JSON object: {error}")

    def _parquet(self) -> Iterator[Mapping[str, object] | BadRow]:
        import pyarrow as pa  # noqa: PLC0415  # the other formats need no pyarrow
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            file = pq.ParquetFile(self._file)
        except pa.ArrowException as error:
            raise TableError(f"{self._path} is no Parquet file: {error}") from None
        self.columns = file.schema_arrow.names
        self.length = file.metadata.num_rows
        return self._parquet_batches(file.iter_batches(ROWS_AT_ONCE))

    def _parquet_batches(self, batches: Iterator[Any]) -> Iterator[Mapping[str, object]]:
        import pyarrow as pa  # noqa: PLC0415  # the other formats need no pyarrow

        for batch in batches:
            try:
                rows: list[dict[str, object]] = _in_microseconds(batch).to_pylist()
            except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:
                raise TableError(
                    f"{self._path}: rows {self._parquet_rows + 1:,} and following cannot be read: {error}; times must "
                    "lie in the years 1 to 9999, in a known zone"
                ) from None
            for row in rows:
                self._parquet_rows += 1
                yield row


def _in_microseconds(batch: Any) -> Any:
    """A batch of Arrow with its times of nanoseconds, which no `datetime` holds, rounded down to microseconds."""
    import pyarrow as pa  # noqa: PLC0415  # the other formats need no pyarrow

    def kind(given: Any) -> Any:
        finer = pa.types.is_timestamp(given) and given.unit == "ns"
        return pa.timestamp("us", given.tz) if finer else given

    wanted = pa.schema([field.with_type(kind(field.type)) for field in batch.schema])
    return batch.cast(wanted, safe=False)

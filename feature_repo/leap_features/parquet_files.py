"""Parquet data sets on disk: a file, or a folder of files that are only ever added whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from leap_features.durable import replaceable, sync, temporary_path


class NoRows(FileNotFoundError):
    """A data set has no Parquet file."""


def files_of(path: str | Path) -> tuple[str, ...]:
    """The Parquet files of the data set at `path` (a file, a folder, or an address such as s3://…), in name order.

    Names that begin with a dot or an underscore are not data: unfinished files have such names.

    Raises:
        NoRows: there is none.
    """
    if "://" in str(path):
        return (str(path),)
    # Resolved once: where the folder is a link, a build that is put in its place meanwhile is not mixed in.
    root = Path(path).resolve()
    if root.is_file():
        return (str(root),)
    found = sorted(
        str(file)
        for file in root.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)
    )
    if not found:
        raise NoRows(f"no Parquet files at {path}: `leap history build` makes them from the archive")
    return tuple(found)


def schema_of(files: tuple[str, ...]) -> pa.Schema:
    """The columns of all `files` together."""
    return pa.unify_schemas([pq.read_schema(file).remove_metadata() for file in files])


def write(table: pa.Table, path: Path) -> None:
    """Write `table` to `path`, replacing what is there: readers see the whole old file or the whole new one.

    Raises:
        NotReplaceable: what is there is no regular file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    target = replaceable(path)
    unfinished = temporary_path(target.parent, target.name)
    try:
        pq.write_table(table, unfinished, compression="zstd")
        sync(unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def read(path: Path) -> pa.Table:
    """The whole of one Parquet file."""
    return pq.ParquetFile(path).read()

"""Reads the judge's directory: its figures, and what the page shows of single rows, already counted."""

# ruff: noqa: S608 - columns and conditions are this product's own; paths are quoted by `file_literal`.

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from leap_features.archive_reader import connect, file_literal
from leap_training.judge_page.counted import Measured, count_rows, one_row
from leap_training.judge_page.verdict import HISTORIES, MEND, JudgedError, Verdict, read_verdict
from leap_training.judge_page.wording import REFERENCES

if TYPE_CHECKING:
    import duckdb

JUDGED: Final = "judged.json"
ROWS: Final = "rows.parquet"
PREDICTIONS: Final = "predictions.parquet"

NEEDED: Final[Mapping[str, Mapping[str, str]]] = {
    ROWS: {
        "window": "text",
        "attempt_id": "text",
        "job_family": "text",
        "model_type": "text",
        "log_measured": "number",
        "first_in_cell": "truth value",
    },
    PREDICTIONS: {
        "window": "text",
        "attempt_id": "text",
        "model": "text",
        "history": "text",
        "log_predicted": "number",
        "log_low": "number",
        "log_high": "number",
        "level": "text",
    },
}
"""The columns that are read, and what they hold."""

_SQL_TYPES: Final = {"text": "VARCHAR", "number": "DOUBLE", "truth value": "BOOLEAN"}


@dataclass(frozen=True)
class Judged:
    """All of a judge's directory that the page shows."""

    source: str
    verdict: Verdict
    measured: Measured


def read(directory: Path, references: Collection[str] = REFERENCES) -> Judged:
    """Read the judge's directory; `references` are the models that are shown beside the default by model type.

    Raises:
        JudgedError: a file is not there, is broken, lacks columns, or does not go with the others.
    """
    if not directory.is_dir():
        raise JudgedError(f"{directory} must be a directory of the judge; {MEND}")
    verdict = read_verdict(directory / JUDGED)
    for name, columns in NEEDED.items():
        _check(directory / name, columns)
    import duckdb  # noqa: PLC0415  # for its error

    with tempfile.TemporaryDirectory(prefix="leap-report-") as spill, connect(spill) as connection:
        try:
            _open(connection, directory, verdict)
            measured = count_rows(connection, verdict, references)
        except duckdb.Error as error:
            raise JudgedError(f"{directory}: {ROWS} and {PREDICTIONS} cannot be read: {error}; {MEND}") from None
    return Judged(str(directory), verdict, measured)


def _check(file: Path, columns: Mapping[str, str]) -> None:
    try:
        schema = pq.read_schema(file)
    except OSError as error:
        raise JudgedError(f"{file} cannot be read: {error.strerror or error}; {MEND}") from None
    except pa.ArrowException as error:
        raise JudgedError(f"{file} must be a Parquet file: {error}; {MEND}") from None
    if missing := [column for column in columns if column not in schema.names]:
        raise JudgedError(f"{file} must have the columns {', '.join(columns)}, and lacks {', '.join(missing)}; {MEND}")
    for column, kind in columns.items():
        held = schema.field(column).type
        if not _holds(held, kind):
            raise JudgedError(f"{file} must hold a {kind} as {column}, got the type {held}; {MEND}")


def _holds(held: pa.DataType, kind: str) -> bool:
    held = held.value_type if pa.types.is_dictionary(held) else held
    if pa.types.is_null(held):  # nothing but missing values
        return True
    if kind == "text":
        return bool(pa.types.is_string(held) or pa.types.is_large_string(held))
    return bool(pa.types.is_floating(held) if kind == "number" else pa.types.is_boolean(held))


def _open(connection: duckdb.DuckDBPyConnection, directory: Path, verdict: Verdict) -> None:
    """Make the views `rows` and `predictions`, and refuse what does not go together."""
    for table, name in (("rows", ROWS), ("predictions", PREDICTIONS)):
        columns = ", ".join(f'"{column}"::{_SQL_TYPES[kind]} AS "{column}"' for column, kind in NEEDED[name].items())
        connection.execute(
            f"CREATE VIEW {table} AS SELECT {columns} FROM read_parquet({file_literal(directory / name)})"
        )
    rows, distinct, unnamed = one_row(
        connection,
        """
        SELECT count(*), count(DISTINCT ("window", attempt_id)),
            count(*) FILTER ("window" IS NULL OR attempt_id IS NULL OR job_family IS NULL OR model_type IS NULL)
        FROM rows
        """,
    )
    if unnamed:
        raise JudgedError(
            f"{directory / ROWS} must name the window, attempt, job family and model type of each row, and does not in "
            f"{unnamed:,} of {rows:,}; {MEND}"
        )
    if distinct < rows:
        raise JudgedError(
            f"{directory / ROWS} must hold each attempt of a window once, and repeats {rows - distinct:,} of {rows:,}; "
            f"{MEND}"
        )
    strange, *_ = one_row(connection, 'SELECT count(*) FROM predictions ANTI JOIN rows USING ("window", attempt_id)')
    if strange:
        raise JudgedError(
            f"{directory / PREDICTIONS} must predict the attempts of {ROWS}, and {strange:,} predictions are of "
            f"others: the two files are not of one run; {MEND}"
        )
    uneven = connection.execute(f"""
        SELECT model, history, count(*) FROM predictions GROUP BY ALL HAVING count(*) <> {rows} ORDER BY ALL LIMIT 1
    """).fetchone()
    if uneven is not None:
        model, kept, number = uneven
        raise JudgedError(
            f"{directory / PREDICTIONS} must hold one prediction of each of the {rows:,} rows for each model "
            f"and history, and has {number:,} of {model} with {kept} history; {MEND}"
        )
    scored = {
        found["all"].rows
        for model in verdict.models.values()
        for history in HISTORIES
        if "all" in (found := model.under(history))
    }
    if scored - {rows}:
        raise JudgedError(
            f"{directory / ROWS} must hold the {max(scored - {rows}):,} rows that {JUDGED} has figures of, and holds "
            f"{rows:,}: the two files are not of one run; {MEND}"
        )

"""A table of completion events: its columns are the event's own fields, so that it needs no mapping.

JSON Lines hold events as the topic does. In Parquet and CSV, `config`, `architecture` and `ranking` are JSON text, and
an empty cell is a field that was left out; times carry an offset. Whatever comes out passes the same door as a live
event (`leap_features.events.decode`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from leap_features import cells
from leap_features.events import SCHEMA_VERSION, CompletionEvent, InvalidEvent, decode
from leap_training.mapping import MappingError, Row, RowRejected

FIELDS: Final = CompletionEvent.__struct_fields__
REQUIRED: Final = frozenset(
    field.encode_name for field in msgspec.structs.fields(CompletionEvent) if field.required
) - {"schema_version"}

_TRUTH: Final = frozenset({"kind", "family", "failure"})
"""Columns of the truth that lies beside a generated fleet's events."""


class EventColumns:
    """Makes events of the rows of such a table, as a `RunMapping` does of others.

    Attributes:
        columns: what a table must have.
    """

    columns: frozenset[str] = REQUIRED

    def event(self, row: Row) -> CompletionEvent:
        """The completion event of a row; `schema_version` is 1 where the row does not say.

        Raises:
            RowRejected: the row breaks a rule.
        """
        document: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        for name, value in row.items():
            if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
                continue
            convert = _CONVERTERS.get(name)
            try:
                document[name] = value if convert is None else convert(value)
            except cells.CellError as error:
                raise RowRejected(name, value, f"{name}: {error}") from None
        for name in sorted(REQUIRED - document.keys()):
            raise RowRejected(name, None, f"{name} is required, and the row says nothing of it")
        try:
            return decode(msgspec.json.encode(document))
        except InvalidEvent as error:
            raise RowRejected(error.rule, document.get(error.rule), str(error)) from None
        except (TypeError, ValueError) as error:
            raise RowRejected("json", None, f"the row cannot be written as JSON: {error}") from None

    def check_columns(self, columns: list[str] | None) -> None:
        """Check that `columns` (None where rows need not have the same ones) are an event's fields.

        Raises:
            MappingError: one is missing, or is no field of the event.
        """
        if columns is None:
            return
        found = set(columns)
        lacking, unknown = sorted(REQUIRED - found), sorted(found - set(FIELDS))
        if not lacking and not unknown:
            return
        if found >= _TRUTH and lacking:
            raise MappingError(
                "the table is the truth of a generated fleet, not its events: take completions.parquet or "
                "completions.jsonl beside it"
            )
        problems = [f"lacks {', '.join(map(repr, lacking))}"] if lacking else []
        problems += [f"has {', '.join(map(repr, unknown))} besides"] if unknown else []
        raise MappingError(
            f"without a mapping a table's columns are the fields of a completion event; this one "
            f"{' and '.join(problems)}: say by --mapping which column is what"
        )


def _number(value: object) -> float:
    return value if type(value) is float else cells.number(value)


def _count(value: object) -> float:
    return value if type(value) is int else cells.number(value, whole=True)


def _names(value: object) -> object:
    """A list as it is; in a text, as CSV has it, commas part the names."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _object(value: object) -> object:
    """An object as it is, or as the JSON text of one."""
    return _parsed(value) if isinstance(value, str | bytes) else value


@lru_cache(maxsize=4096)  # the same few architectures stand in many rows
def _parsed(text: str | bytes) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise cells.CellError(f"must be an object or the JSON text of one, got {text!r:.200} ({error})") from None


_CONVERTERS: Final[Mapping[str, Callable[[object], object]]] = {
    **dict.fromkeys(sorted(cells.NUMBERS), _number),
    **dict.fromkeys([*sorted(cells.COUNTS), "schema_version"], _count),
    **dict.fromkeys(["config", "architecture", "ranking"], _object),
    "eligible_hardware": _names,
}

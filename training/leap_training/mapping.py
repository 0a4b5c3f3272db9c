"""A mapping: how the rows of a table of past runs become completion events. `docs/imports.md` explains the file.

A mapping is TOML. `[event]` has an entry per field of the event, `[config]` and `[architecture]` one per key of those
maps. An entry is a constant, a template of columns (`"{org}-{benchmark}"`), or a table that names a source and what to
do with it. Whatever comes out passes the same door as a live event (`leap_features.events.decode`).
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard

import msgspec

from leap_features import cells
from leap_features.cells import COUNTS, NUMBERS, TIMES
from leap_features.events import SCHEMA_VERSION, CompletionEvent, InvalidEvent, decode, encode

Row = Mapping[str, object]
"""One row of a table: column → text, number, boolean, time or None."""

Source = Callable[[Row], object]
"""What an entry makes of a row; None where the row says nothing."""

REQUIRED: Final = ("attempt_id", "job_name", "model_type", "hardware_type", "completed_at", "status", "trainer_count")
OTHER_TIME: Final = {"submitted_at": "started_at", "started_at": "submitted_at"}
"""A run of which only one of these is known was started when it was submitted."""

TRAINER_HOURS: Final = "trainer_hours"

_PLACEHOLDER: Final = re.compile(r"\{([^{}]+?)(\?)?\}")
"""`{column}`, or `{column?}` for one that may be empty."""


class MappingError(ValueError):
    """A mapping that breaks a rule; the message names file, entry, rule and mend."""


class RowRejected(ValueError):
    """A row that is no event.

    Attributes:
        rule: the field or rule that it breaks, as for a dead letter.
        value: what stands there, None where it cannot be told.
    """

    def __init__(self, rule: str, value: object, message: str) -> None:
        super().__init__(message)
        self.rule = rule
        self.value = value


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How times are written, unless an entry says otherwise."""

    format: str = "iso"
    zone: str | None = None
    """IANA name of the zone of times without an offset; None: such times are rejected."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source (exactly one of the first five) and what to do with it."""

    column: str | None = None
    template: str | None = None
    constant: Any = None
    product: list[str] | None = None
    """Columns to multiply, divided by those in `over`."""
    derive: str | None = None
    over: list[str] = []
    values: dict[str, Any] | None = None
    """What each value of the source stands for; others are rejected."""
    scale: float | None = None
    """Factor by which a number is multiplied: its unit in the event's. Finite, not 0."""
    default: Any = None
    """Constant or template that is taken where the row says nothing."""
    split: str | None = None
    type: str | None = None
    """Of an entry of `[config]`: text (where absent), number or boolean."""
    format: str | None = None
    zone: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    event: dict[str, Any]
    times: Times = Times()
    config: dict[str, Any] = {}
    architecture: dict[str, Any] = {}


class RunMapping:
    """A mapping that is ready to be used. `columns` are those that it reads."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Compile the decoded TOML `document`.

        Raises:
            MappingError: it breaks a rule.
        """
        try:
            file = msgspec.convert(dict(document), _File)
        except msgspec.ValidationError as error:
            raise MappingError(f"{error}; a mapping has the tables event, times, config and architecture") from None
        fields = set(CompletionEvent.__struct_fields__) - {"schema_version", "config", "architecture", "ranking"}
        if unknown := sorted(set(file.event) - fields):
            raise MappingError(f"[event] has no field {', '.join(unknown)}; it has {', '.join(sorted(fields))}")
        missing = [name for name in REQUIRED if name not in file.event]
        if missing:
            raise MappingError(f"[event] must say where {', '.join(missing)} comes from")
        if not TIMES - {"completed_at"} & set(file.event):
            raise MappingError("[event] must say where started_at or submitted_at comes from")
        self.columns: set[str] = set()
        self._derive_hours = False
        self._event = {
            name: self._compile(f"event.{name}", name, entry, file.times) for name, entry in file.event.items()
        }
        self._config = {
            name: self._compile(f"config.{name}", "config", entry, file.times) for name, entry in file.config.items()
        }
        self._architecture = {
            name: self._compile(f"architecture.{name}", "architecture", entry, file.times)
            for name, entry in file.architecture.items()
        }

    @classmethod
    def load(cls, path: Path) -> RunMapping:
        """The mapping in the TOML file at `path`.

        Raises:
            MappingError: it cannot be read, or breaks a rule.
        """
        try:
            return cls(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, MappingError) as error:
            raise MappingError(f"{path}: {error}") from None

    def event(self, row: Row) -> CompletionEvent:
        """The completion event of a row.

        Raises:
            RowRejected: the row breaks a rule.
        """
        document = {"schema_version": SCHEMA_VERSION} | _known(self._event, row)
        for name, other in OTHER_TIME.items():
            if name not in document and other in document:
                document[name] = document[other]
        if "submitted_at" not in document:
            raise RowRejected("submitted_at", None, "submitted_at or started_at is required, the row has neither")
        for name in REQUIRED:
            if name not in document:
                raise RowRejected(name, None, f"{name} is required, and the row says nothing of it")
        document["config"] = _known(self._config, row)
        document["architecture"] = _known(self._architecture, row)
        try:
            event = decode(msgspec.json.encode(document))
            if self._derive_hours:
                hours = (event.completed_at - event.started_at).total_seconds() / 3600 * event.trainer_count
                event = decode(encode(msgspec.structs.replace(event, device_hours=hours)))
        except InvalidEvent as error:
            raise RowRejected(error.rule, document.get(error.rule), str(error)) from None
        return event

    def check_columns(self, columns: list[str] | None) -> None:
        """Check that a table with `columns` (None where rows need not have the same ones) has those that are read.

        Raises:
            MappingError: it lacks one.
        """
        lacking = sorted(self.columns - set(columns)) if columns is not None else []
        if lacking:
            raise MappingError(
                f"the table has no column {', '.join(map(repr, lacking))}; it has {', '.join(map(repr, columns or []))}"
            )

    def _compile(self, at: str, field: str, raw: object, times: Times) -> Source:
        """The source that the entry `raw` of `field` describes."""
        entry = _entry(at, raw)
        if entry.derive is not None:
            if field != "device_hours" or entry.derive != TRAINER_HOURS:
                raise MappingError(f'{at}: derive must be "{TRAINER_HOURS}", and stands at device_hours only')
            self._derive_hours = True
            return lambda _row: None
        find = self._find(at, entry)
        default = entry.default
        instead = self._template(at, default) if _is_template(default) else lambda _row: default
        convert = _converter(at, field, entry, times)
        _check_constants(at, entry, convert)

        def source(row: Row) -> object:
            value = None
            try:
                value = find(row)
                if value is not None and entry.values is not None:
                    if (written := cells.text(value)) not in entry.values:
                        known = ", ".join(sorted(entry.values))
                        raise cells.CellError(f"{at}.values knows {known}, not {value!r}: add it to the mapping")
                    value = entry.values[written]
                if value is None:
                    value = instead(row)
                return None if value is None else convert(value)
            except cells.CellError as error:
                raise RowRejected(field, value, f"{field}: {error}") from None

        return source

    def _find(self, at: str, entry: Entry) -> Source:
        """What finds the value of `entry` in a row, and notes the columns that it looks at."""
        if entry.column is not None:
            column = entry.column
            self.columns.add(column)
            return lambda row: cells.present(row.get(column))
        if entry.template is not None:
            return self._template(at, entry.template)
        if entry.product is not None:
            above, below = entry.product, entry.over
            self.columns.update(above, below)
            return lambda row: _quotient(at, row, above, below)
        constant = entry.constant
        return lambda _row: constant

    def _template(self, at: str, template: str) -> Source:
        if stray := re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
            raise MappingError(
                f"{at}: {stray[0]!r} in {template!r} is not part of a {{column}}: close it, or give a constant"
            )
        needed = {name for name, optional in _PLACEHOLDER.findall(template) if not optional}
        self.columns.update(name for name, _ in _PLACEHOLDER.findall(template))
        if needed == {template[1:-1]}:  # one column and nothing else keeps its type
            return lambda row: cells.present(row.get(template[1:-1]))

        def fill(row: Row) -> object:
            if any(cells.present(row.get(name)) is None for name in needed):
                return None
            found = _PLACEHOLDER.sub(lambda match: cells.text(cells.present(row.get(match[1])) or ""), template)
            return cells.present(found)

        return fill


def _is_template(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def _entry(at: str, raw: object) -> Entry:
    if isinstance(raw, str):
        return Entry(template=raw) if re.search(r"[{}]", raw) else Entry(constant=raw)
    if not isinstance(raw, dict):
        return Entry(constant=raw)
    try:
        entry = msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        raise MappingError(f"{at}: {error}") from None
    given = [entry.column, entry.template, entry.constant, entry.product, entry.derive]
    if sum(source is not None for source in given) != 1:
        raise MappingError(f"{at} must have exactly one of column, template, constant, product and derive")
    if entry.over and entry.product is None:
        raise MappingError(f"{at}: over divides a product; give product too")
    if entry.product == []:
        raise MappingError(f"{at}: product must name at least one column")
    if entry.values == {}:
        raise MappingError(f"{at}: values must say what at least one value stands for; leave it out to take all as is")
    if entry.scale is not None and (not math.isfinite(entry.scale) or entry.scale == 0):
        raise MappingError(f"{at}: scale must be finite and not 0, got {entry.scale}")
    if entry.derive is not None and len(raw) > 1:
        raise MappingError(f"{at}: derive stands alone; remove {', '.join(sorted(set(raw) - {'derive'}))}")
    return entry


def _check_constants(at: str, entry: Entry, convert: Callable[[object], object]) -> None:
    """Check what the mapping itself says, which would be wrong for every row."""
    constants = [] if entry.values is not None else [entry.constant]
    constants += list((entry.values or {}).values())
    constants += [] if _is_template(entry.default) else [entry.default]
    for constant in constants:
        if constant is not None:
            try:
                convert(constant)
            except cells.CellError as error:
                raise MappingError(f"{at}: {error}") from None


def _converter(at: str, field: str, entry: Entry, times: Times) -> Callable[[object], object]:
    """What makes a found value the value of `field`, by its type."""
    if field == "config" and entry.type not in (None, "text", "number", "boolean"):
        raise MappingError(f"{at}: type must be text, number or boolean, got {entry.type!r}")
    number = field in NUMBERS | COUNTS | {"architecture"} or (field == "config" and entry.type == "number")
    for key, has_meaning, says in (
        ("format", field in TIMES, "is how a time is written"),
        ("zone", field in TIMES, "is where a time was written"),
        ("scale", number, "multiplies numbers"),
        ("split", field == "eligible_hardware", "parts the entries of eligible_hardware"),
        ("type", field == "config", "stands in [config] only"),
    ):
        if getattr(entry, key) is not None and not has_meaning:
            raise MappingError(f"{at}: {key} {says}; remove it")
    if field in TIMES:
        try:
            return cells.time_parser(entry.format or times.format, entry.zone or times.zone)
        except ValueError as error:
            raise MappingError(f"{at}: {error}") from None
    if number:
        scale = entry.scale
        whole = field in COUNTS
        return lambda value: cells.number(value, scale=scale, whole=whole)
    if field == "eligible_hardware":
        split = entry.split or ","
        return lambda value: _names(value, split)
    return cells.boolean if entry.type == "boolean" else cells.text


def _names(value: object, split: str) -> list[str]:
    """Names in a list, as JSON Lines and Parquet have them, or in a text that `split` parts."""
    texts = [cells.text(item) for item in (value if isinstance(value, list) else [value])]
    return [part for text in texts for piece in text.split(split) if (part := piece.strip())]


def _quotient(at: str, row: Row, above: list[str], below: list[str]) -> object:
    """Product of the columns `above`, divided by that of the columns `below`; None where one is missing."""
    factors = {name: cells.present(row.get(name)) for name in (*above, *below)}
    if None in factors.values():
        return None
    result = 1.0
    try:
        for name in above:
            result *= cells.number(factors[name])
        for name in below:
            result /= cells.number(factors[name])
    except (cells.CellError, ZeroDivisionError) as error:
        raise RowRejected(at.partition(".")[2], factors[name], f"{at}: column {name!r}: {error}") from None
    return result


def _known(sources: Mapping[str, Source], row: Row) -> dict[str, Any]:
    found = {name: source(row) for name, source in sources.items()}
    return {name: value for name, value in found.items() if value is not None}

"""A transform: how dead letters are mended before they are replayed. `docs/dead-letters.md` explains the file.

A transform is TOML: a list of `[[mend]]`, each for the letters of some rules. `[mend.event]` has an entry per field of
the record, `[mend.config]` and `[mend.architecture]` one per key of those maps. An entry is a constant, or a table that
says what to do with the value. What no entry names stays as it is written. Whatever comes out is checked like any other
record.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from leap_features import cells
from leap_features.events import CompletionEvent, InvalidEvent
from leap_streams.dead_letter_rules import RULES

EVENT: Final = "event"
MAPS: Final = ("config", "architecture")
FIELDS: Final = frozenset(CompletionEvent.__struct_fields__)
WHOLES: Final = frozenset({*MAPS, "ranking"})
"""Fields that hold an object."""
TYPES: Final = ("text", "number", "boolean")

_Document = dict[str, msgspec.Raw]


class TransformError(ValueError):
    """A transform that breaks a rule; the message names file, entry, rule and mend."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do with one value, in the order of the fields here."""

    drop: bool = False
    rename: str | None = None
    """What it becomes: a name in the same table, or `event.NAME`, `config.NAME` or `architecture.NAME`."""
    default: Any = None
    """Constant that is taken where the value is absent or null."""
    values: dict[str, Any] | None = None
    """What some values stand for; others stay."""
    replace: str | None = None
    """Regular expression; each match in the text is replaced by `by`."""
    by: str | None = None
    type: str | None = None
    """text, number or boolean: what the value is made."""
    scale: float | None = None
    """Factor for a number. Finite, not 0."""
    format: str | None = None
    """How the time is written: iso (where absent), unix, unix_ms, unix_us, or a pattern of strptime."""
    zone: str | None = None
    """IANA name of the zone of a time without an offset."""


class _Mend(msgspec.Struct, forbid_unknown_fields=True):
    rules: list[str] | None = None
    event: dict[str, Any] = {}
    config: dict[str, Any] = {}
    architecture: dict[str, Any] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    mend: list[_Mend]


class _Step(NamedTuple):
    """One entry, compiled."""

    table: str
    name: str
    target: tuple[str, str]
    """Table and name of what it becomes."""
    constant: msgspec.Raw | None
    entry: Entry
    convert: Callable[[Any], Any]


class Transform:
    """A transform that is ready to be used."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Compile the decoded TOML `document`.

        Raises:
            TransformError: it breaks a rule.
        """
        try:
            file = msgspec.convert(dict(document), _File)
        except msgspec.ValidationError as error:
            raise TransformError(
                f"{error}; a transform is a list of [[mend]] with rules, [mend.event], [mend.config], "
                "[mend.architecture] and nothing else"
            ) from None
        self._mends = [_compiled(number, mend) for number, mend in enumerate(file.mend, 1)]

    @classmethod
    def load(cls, path: Path) -> Transform:
        """The transform in the TOML file at `path`.

        Raises:
            TransformError: it cannot be read, or breaks a rule.
        """
        try:
            return cls(tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TransformError) as error:
            raise TransformError(f"{path}: {error}") from None

    def apply(self, rule: str, value: bytes | None) -> bytes | None:
        """The mended value of a letter of `rule`; `value` itself where nothing changes.

        Raises:
            InvalidEvent: an entry cannot be applied to it.
        """
        steps = [step for rules, mend in self._mends if rules is None or rule in rules for step in mend]
        if not steps or value is None:
            return value
        record = _Record(value)
        for step in steps:
            record.apply(step)
        return record.encoded()


class _Record:
    """A record under repair: its fields as they are written, the maps among them opened where a step wants them."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._tables = {EVENT: _opened(value, "json", "only one JSON object in UTF-8 can be transformed")}
        self._changed = False

    def apply(self, step: _Step) -> None:
        before = self._table(step.table).get(step.name)
        if step.constant is not None:
            self._put((step.table, step.name), step.constant)
        elif step.entry.drop:
            self._drop(step)
        elif step.entry.default is not None and (before is None or bytes(before) == b"null"):
            self._put(step.target, msgspec.Raw(msgspec.json.encode(self._converted(step, step.entry.default))))
        elif before is not None:
            try:
                value = msgspec.json.decode(before)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InvalidEvent("json", f"{step.name}: {error}") from None
            self._move(step, value)

    def encoded(self) -> bytes:
        if not self._changed:
            return self._value
        for name in MAPS:
            opened = self._tables.get(name)
            # A map that a step only looked into, and did not find, is not made.
            if opened is not None and (opened or name in self._tables[EVENT]):
                self._tables[EVENT][name] = msgspec.Raw(msgspec.json.encode(opened))
        return msgspec.json.encode(self._tables[EVENT])

    def _table(self, name: str) -> _Document:
        if name not in self._tables:
            raw = self._tables[EVENT].get(name, b"{}")
            self._tables[name] = _opened(bytes(raw), name, f"{name} must be an object for its keys to be mended")
        return self._tables[name]

    def _move(self, step: _Step, value: object) -> None:
        """Put what the field's `value` becomes where it belongs."""
        converted = self._converted(step, value)
        if step.target != (step.table, step.name):
            table, name = step.target
            if name in self._table(table):
                raise InvalidEvent(step.name, f"{step.name} cannot be renamed: the record has {name} already")
            self._drop(step)
        elif converted is value:
            return  # it stays as it is written
        self._put(step.target, msgspec.Raw(msgspec.json.encode(converted)))

    def _converted(self, step: _Step, value: object) -> object:
        try:
            return step.convert(value)
        except cells.CellError as error:
            raise InvalidEvent(step.name, f"{step.name} cannot be transformed: {error}") from None

    def _drop(self, step: _Step) -> None:
        if self._table(step.table).pop(step.name, None) is not None:
            self._changed = True
        if step.table == EVENT and step.name in MAPS:
            self._tables.pop(step.name, None)  # it may have been opened

    def _put(self, target: tuple[str, str], raw: msgspec.Raw) -> None:
        table, name = target
        self._table(table)[name] = raw
        self._changed = True


def _opened(value: bytes, rule: str, says: str) -> _Document:
    try:
        return msgspec.json.decode(value, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(rule, f"{says}: {error}") from None


def _compiled(number: int, mend: _Mend) -> tuple[frozenset[str] | None, list[_Step]]:
    at = f"mend {number}"
    if unknown := sorted(set(mend.rules or ()) - set(RULES)):
        raise TransformError(f"{at}: rules has {', '.join(map(repr, unknown))}; the rules are {', '.join(RULES)}")
    steps = [
        _step(f"{at}, [mend.{table}] {name}", table, name, raw)
        for table in (EVENT, *MAPS)
        for name, raw in getattr(mend, table).items()
    ]
    if not steps:
        raise TransformError(f"{at} mends nothing: give [mend.event], [mend.config] or [mend.architecture] an entry")
    return None if mend.rules is None else frozenset(mend.rules), steps


def _step(at: str, table: str, name: str, raw: object) -> _Step:
    if isinstance(raw, dict):
        entry = _entry(at, raw)
        target = _target(at, table, name, entry)
        return _Step(table, name, target, None, entry, _converter(at, target, entry))
    if table == EVENT and name in MAPS:
        raise TransformError(f"{at}: is an object; give its keys in [mend.{name}]")
    _check_field(at, table, name)
    return _Step(table, name, (table, name), msgspec.Raw(msgspec.json.encode(raw)), Entry(), lambda value: value)


def _entry(at: str, raw: dict[str, Any]) -> Entry:
    try:
        entry = msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        raise TransformError(f"{at}: {error}; an entry has {', '.join(Entry.__struct_fields__)}") from None
    if not raw:
        raise TransformError(f"{at}: says nothing; remove it")
    if "drop" in raw and (len(raw) > 1 or not entry.drop):
        raise TransformError(f"{at}: drop = true stands alone")
    if entry.rename is not None and entry.default is not None:
        raise TransformError(f"{at}: default belongs into the entry of {entry.rename}")
    if (entry.replace is None) != (entry.by is None):
        raise TransformError(f'{at}: replace and by go together, as in {{ replace = "^prod-", by = "" }}')
    if entry.scale is not None and (not math.isfinite(entry.scale) or entry.scale == 0):
        raise TransformError(f"{at}: scale must be finite and not 0, got {entry.scale}")
    if entry.type not in (None, *TYPES):
        raise TransformError(f"{at}: type must be {', '.join(TYPES)}, got {entry.type!r}")
    return entry


def _target(at: str, table: str, name: str, entry: Entry) -> tuple[str, str]:
    """Table and name of what the field becomes."""
    target = (table, name)
    if entry.rename is not None:
        head, dot, rest = entry.rename.partition(".")
        target = (head, rest) if dot and rest and head in (EVENT, *MAPS) else (table, entry.rename)
        if target == (table, name):
            raise TransformError(f"{at}: rename must give another name")
    if entry.drop:
        return target
    _check_field(at, *target)
    if target[0] == EVENT and target[1] in WHOLES:
        raise TransformError(f"{at}: {target[1]} is an object; drop it, or mend its keys")
    return target


def _check_field(at: str, table: str, name: str) -> None:
    if table == EVENT and name not in FIELDS:
        raise TransformError(
            f'{at}: an event has no field {name!r}: drop it, rename it, or move it by rename = "config.{name}"; '
            f"the fields are {', '.join(sorted(FIELDS))}"
        )


def _converter(at: str, target: tuple[str, str], entry: Entry) -> Callable[[Any], Any]:
    """What makes a value what the entry says."""
    table, name = target
    time = table == EVENT and name in cells.TIMES
    number = table != EVENT or name in cells.NUMBERS | cells.COUNTS
    for key, has_meaning, says in (
        ("format", time, "is how a time is written"),
        ("zone", time, "is where a time was written"),
        ("scale", number, "multiplies numbers"),
    ):
        if getattr(entry, key) is not None and not has_meaning:
            raise TransformError(f"{at}: {key} {says}; remove it")
    steps: list[Callable[[Any], Any]] = []
    if entry.values is not None:
        known = entry.values
        steps.append(lambda value: known.get(cells.text(value), value))
    if entry.replace is not None and entry.by is not None:
        steps.append(_replacer(at, entry.replace, entry.by))
    if entry.type == "number" or entry.scale is not None:
        whole = table == EVENT and name in cells.COUNTS
        steps.append(lambda value: cells.number(value, scale=entry.scale, whole=whole))
    elif entry.type is not None:
        steps.append(cells.text if entry.type == "text" else cells.boolean)
    if entry.format is not None or entry.zone is not None:
        try:
            steps.append(cells.time_parser(entry.format or cells.ISO, entry.zone))
        except ValueError as error:
            raise TransformError(f"{at}: {error}") from None

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return convert


def _replacer(at: str, pattern: str, by: str) -> Callable[[Any], str]:
    try:
        compiled = re.compile(pattern)
        compiled.sub(by, "")
    except (re.error, IndexError) as error:
        raise TransformError(f"{at}: replace must be a regular expression, and by what replaces it: {error}") from None

    def replaced(value: Any) -> str:
        return compiled.sub(by, cells.text(value))

    return replaced

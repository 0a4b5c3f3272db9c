"""What is asked of the online store for one ranking, and what its answers mean. Pure: commands out, replies in.

One pipeline: meta, one HMGET for every distinct key of every level, and meta once more. If both readings of meta are
the same and say `ready`, no rebuild began or ended in between, so the rows belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from leap_features.layout import LayoutError, Value, decode_timestamp, decode_value, entity_key, timestamp_field
from leap_features.levels import Level, Subject
from leap_features.meta import meta_key
from leap_predictor.errors import StoreError
from leap_predictor.manifest import View

_META_FIELDS: Final = (b"schema", b"family_rule", b"generation", b"state")


@dataclass(frozen=True)
class MetaReading:
    """What the store says about itself, as far as a launcher must know; empty where a field is absent."""

    schema: str
    family_rule: str
    generation: str
    state: str


@dataclass(frozen=True)
class StoredRow:
    """A history row as it is served."""

    features: dict[str, Value]
    recorded_at_us: int | None
    """Greatest record time that the row has taken in, microseconds since 1970 UTC."""


@dataclass(frozen=True)
class Reading:
    """The answer to one request."""

    meta: MetaReading | None
    """None: the store has no meta, or it changed while the rows were read (see `torn`)."""
    torn: bool
    rows: tuple[dict[str, StoredRow | None], ...]
    """Per subject, by view; None: nothing was ever recorded under that key."""


class Command(NamedTuple):
    """An HMGET."""

    key: bytes
    fields: tuple[bytes, ...]


class HistoryRequest:
    """The commands for the history of some subjects, and the decoder of their replies.

    Args:
        project: Feast project, part of every key.
        views: the views to read.
        subjects: whose history; keys that they share are read once.
    """

    def __init__(self, project: str, views: Sequence[View], subjects: Sequence[Subject]) -> None:
        meta = Command(meta_key(project), _META_FIELDS)
        self.commands = [meta]
        packed = [_packed(meta)]
        self._places: list[tuple[_Served, list[int]]] = []  # per view: which reply is each subject's
        for view in views:
            served = _served(view)
            # Views of equal join keys share a Redis hash but not its fields, so each view has places of its own.
            places: dict[tuple[str | int, ...], int] = {}
            of_subjects = []
            for subject in subjects:
                values = served.key(subject)
                place = places.get(values)
                if place is None:
                    place = places[values] = len(self.commands)
                    key = entity_key(project, view.join_keys, values)
                    self.commands.append(Command(key, served.fields))
                    packed.append(b"%s%d\r\n%s\r\n%s" % (served.before_key, len(key), key, served.after_key))
                of_subjects.append(place)
            self._places.append((served, of_subjects))
        self.commands.append(meta)
        packed.append(packed[0])
        self.packed = b"".join(packed)
        """The commands as they are sent."""

    def decode(self, replies: Sequence[Any]) -> Reading:
        """The meaning of `replies`, one per command, in order.

        Raises:
            StoreError: they are not what the commands ask for.
        """
        if len(replies) != len(self.commands):
            raise StoreError(f"the store gave {len(replies)} replies to {len(self.commands)} commands")
        try:
            before, after = _meta(replies[0]), _meta(replies[-1])
            by_view = []
            for served, places in self._places:
                rows = {place: _row(served, replies[place]) for place in dict.fromkeys(places)}
                by_view.append([rows[place] for place in places])
        except (LayoutError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"the store's answer cannot be read ({error}): run `leap audit`") from error
        names = [served.view for served, _ in self._places]
        torn = before != after
        result = tuple(dict(zip(names, rows, strict=True)) for rows in zip(*by_view, strict=True))
        return Reading(None if torn else after, torn, result)


_Key = Callable[[Subject], tuple[str | int, ...]]


class _Served(NamedTuple):
    """What is asked of one view, made ready once."""

    view: str
    key: _Key
    """The values of its join keys, in order."""
    fields: tuple[bytes, ...]
    names: tuple[str, ...]
    types: tuple[type, ...]
    absent: list[None]
    """The reply where nothing was ever recorded."""
    before_key: bytes
    """Of its HMGET in the protocol of Redis, up to the length of the key."""
    after_key: bytes


@lru_cache(maxsize=64)
def _served(view: View) -> _Served:
    fields = (*(bytes.fromhex(feature.field) for feature in view.features), timestamp_field(view.view))
    names = tuple(feature.name for feature in view.features)
    types = tuple(_PYTHON_TYPES[feature.type] for feature in view.features)
    key: _Key = Level(view.view, view.join_keys).key
    if len(view.join_keys) > 1:  # the same, in a tenth of the time
        key = cast("_Key", attrgetter(*view.join_keys))
    return _Served(view.view, key, fields, names, types, [None] * len(fields), _before_key(fields), _bulk(fields))


def _packed(command: Command) -> bytes:
    key, fields = command
    return b"%s%d\r\n%s\r\n%s" % (_before_key(fields), len(key), key, _bulk(fields))


def _before_key(fields: tuple[bytes, ...]) -> bytes:
    return b"*%d\r\n$5\r\nHMGET\r\n$" % (2 + len(fields))


def _bulk(words: tuple[bytes, ...]) -> bytes:
    return b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _meta(reply: Sequence[bytes | None]) -> MetaReading | None:
    if len(reply) != len(_META_FIELDS):
        raise LayoutError(f"meta has {len(reply)} fields")
    if all(value is None for value in reply):
        return None
    return MetaReading(*((value or b"").decode(errors="replace") for value in reply))


def _row(served: _Served, reply: Sequence[bytes | None]) -> StoredRow | None:
    if len(reply) != len(served.fields):
        raise LayoutError(f"a row of {served.view} has {len(reply)} fields")
    if reply == served.absent:
        return None
    values = [decode_value(raw) for raw in reply[:-1]]
    if tuple(map(type, values)) != served.types:  # all values at once: rows with missing ones are rare
        for name, kind, value in zip(served.names, served.types, values, strict=True):
            if value is not None and type(value) is not kind:
                raise LayoutError(f"{served.view}:{name} must be {kind.__name__}, got {value!r}")
    stamp = reply[-1]
    return StoredRow(dict(zip(served.names, values, strict=True)), None if stamp is None else decode_timestamp(stamp))


_PYTHON_TYPES: Final[dict[str, type]] = {"Float64": float, "Int64": int, "String": str}

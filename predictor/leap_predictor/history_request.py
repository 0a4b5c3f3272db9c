"""What is asked of the online store for one ranking, and what its answers mean. Pure: commands out, replies in.

One pipeline: meta, one HMGET for every distinct key of every level, and meta once more. If both readings of meta are
the same and say `ready`, no rebuild began or ended in between, so the rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from leap_features.layout import LayoutError, Value, decode_timestamp, decode_value, entity_key, timestamp_field
from leap_features.levels import Level, Subject
from leap_features.meta import meta_key
from leap_predictor.errors import StoreError
from leap_predictor.manifest import View

Command = tuple[bytes | str, ...]

_META_FIELDS: Final = ("schema", "family_rule", "generation", "state")


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


class HistoryRequest:
    """The commands for the history of some subjects, and the decoder of their replies.

    Args:
        project: Feast project, part of every key.
        views: the views to read.
        subjects: whose history; keys that they share are read once.
    """

    def __init__(self, project: str, views: Sequence[View], subjects: Sequence[Subject]) -> None:
        self._views = views
        meta: Command = ("HMGET", meta_key(project), *_META_FIELDS)
        self.commands: list[Command] = [meta]
        places: dict[bytes, int] = {}
        self._places: list[list[int]] = []  # per subject and view: which reply
        for subject in subjects:
            own = []
            for view in views:
                key = entity_key(project, view.join_keys, Level(view.view, view.join_keys).key(subject))
                # Views of equal join keys share a Redis hash but not its fields, so the view is part of the place.
                place = places.setdefault(key + view.view.encode(), len(self.commands))
                if place == len(self.commands):
                    self.commands.append(("HMGET", key, *_fields(view)))
                own.append(place)
            self._places.append(own)
        self.commands.append(meta)

    def decode(self, replies: Sequence[Any]) -> Reading:
        """The meaning of `replies`, one per command, in order.

        Raises:
            StoreError: they are not what the commands ask for.
        """
        if len(replies) != len(self.commands):
            raise StoreError(f"the store gave {len(replies)} replies to {len(self.commands)} commands")
        try:
            before, after = _meta(replies[0]), _meta(replies[-1])
            rows: dict[int, StoredRow | None] = {}
            result = []
            for own in self._places:
                of_subject = {}
                for view, place in zip(self._views, own, strict=True):
                    if place not in rows:
                        rows[place] = _row(view, replies[place])
                    of_subject[view.view] = rows[place]
                result.append(of_subject)
        except (LayoutError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"the store's answer cannot be read ({error}): run `leap audit`") from error
        torn = before != after
        return Reading(None if torn else after, torn, tuple(result))


@lru_cache(maxsize=64)
def _fields(view: View) -> tuple[bytes, ...]:
    return (*(bytes.fromhex(feature.field) for feature in view.features), timestamp_field(view.view))


def _meta(reply: list[bytes | None]) -> MetaReading | None:
    if len(reply) != len(_META_FIELDS):
        raise LayoutError(f"meta has {len(reply)} fields")
    if all(value is None for value in reply):
        return None
    return MetaReading(*((value or b"").decode(errors="replace") for value in reply))


def _row(view: View, reply: list[bytes | None]) -> StoredRow | None:
    if len(reply) != len(view.features) + 1:
        raise LayoutError(f"a row of {view.view} has {len(reply)} fields")
    if all(value is None for value in reply):
        return None
    features = {}
    for feature, raw in zip(view.features, reply, strict=False):
        value = decode_value(raw)
        if value is not None and not isinstance(value, _PYTHON_TYPES[feature.type]):
            raise LayoutError(f"{view.view}:{feature.name} must be {feature.type}, got {value!r}")
        features[feature.name] = value
    stamp = reply[-1]
    return StoredRow(features, None if stamp is None else decode_timestamp(stamp))


_PYTHON_TYPES: Final[dict[str, type]] = {"Float64": float, "Int64": int, "String": str}

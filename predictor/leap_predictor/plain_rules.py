"""The rules that msgspec checks, in plain words: which value breaks one, and what would keep it.

A rule's words come from the type itself: its bounds, or the `description` and `examples` of its `msgspec.Meta`.
"""

from __future__ import annotations

import difflib
import functools
import json
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union

import msgspec
from msgspec import inspect

MAX_UNKNOWN: Final = 5
"""Each is compared with everything known, which takes a millisecond or two."""

Place = tuple[str | int, ...]
"""Keys, and places in lists; empty: the whole value."""


class Broken(NamedTuple):
    """The first place at which a value breaks the rules of its type."""

    path: Place
    value: object
    kind: Any
    """The type whose rule it is. Of an unknown key the struct that does not have it."""
    what: Literal["value", "key", "unknown key"] = "value"


def first_broken(value: object, kind: Any, path: Place = ()) -> Broken | None:
    """Where `value`, of maps, lists and scalars, breaks a rule of the type `kind`; None: nowhere."""
    if _takes(kind, value):
        return None
    for part in _parts(value, _bare(kind), path):
        if isinstance(part, Broken):
            return part
        if (broken := first_broken(*part)) is not None:
            return broken
    return Broken(path, value, kind)


def rule_of(kind: Any) -> str:
    """What a value of the type `kind` must be, with an example where the type has one.

    >>> rule_of(Annotated[float, msgspec.Meta(gt=0, le=1000000, examples=[24])])
    'a number above 0 and at most 1,000,000, such as 24'
    """
    found, said = _unwrapped(inspect.type_info(kind))
    example = f", such as {json.dumps(said['examples'][0], ensure_ascii=False)}" if "examples" in said else ""
    return f"{said.get('description') or _words(found)}{example}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What is put behind the news that there is no `name`; empty where nothing known is like it.

    >>> did_you_mean("model", ["models", "costs"]), did_you_mean("x", ["models", "costs"])
    ('; did you mean models?', '')
    """
    by_fold = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(name.casefold(), by_fold, 1)
    return f"; did you mean {by_fold[close[0]]}?" if close else ""


class Unknown(NamedTuple):
    """A name that means nothing."""

    warning: str
    name: str
    known: Iterable[str]
    """What would mean something."""


def unknown_warnings(unknown: Sequence[Unknown]) -> list[str]:
    """The warnings of the first `MAX_UNKNOWN` names, with what may have been meant, and how many more there are."""
    warnings = [one.warning + did_you_mean(one.name, one.known) for one in unknown[:MAX_UNKNOWN]]
    more = len(unknown) - MAX_UNKNOWN
    return [*warnings, f"and {more} more unknown names"] if more > 0 else warnings


def _takes(kind: Any, value: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of a lone surrogate
        return False
    return True


def _first_untaken(kind: Any, values: list[object]) -> int | None:
    """Where the first of `values` is that is not of the type `kind`; by halves, since there may be thousands."""

    def takes(low: int, high: int) -> bool:
        return _takes(list[kind], values[low:high])

    low, high = 0, len(values)
    if takes(low, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(low, middle) else (low, middle)
    return low


def _parts(value: object, kind: Any, path: Place) -> Iterator[Broken | tuple[object, Any, Place]]:
    """What `value` consists of, each with its type and path; of a key that is wrong by itself the finding."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, Mapping):
        kinds = _fields(kind)
        for key, item in value.items():
            known = isinstance(key, str) and key in kinds
            yield (item, kinds[key], (*path, key)) if known else Broken((*path, key), item, kind, "unknown key")
    elif typing.get_origin(kind) is dict and isinstance(value, Mapping):
        of_key, of_item = typing.get_args(kind)
        keys, items = list(value), list(value.values())
        if (at := _first_untaken(of_key, keys)) is not None:
            yield Broken((*path, keys[at]), keys[at], of_key, "key")
        if (at := _first_untaken(of_item, items)) is not None:
            yield items[at], of_item, (*path, keys[at])
    elif typing.get_origin(kind) is frozenset and isinstance(value, list):
        [of_item] = typing.get_args(kind)
        yield from ((item, of_item, (*path, at)) for at, item in enumerate(value))


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a struct with their types, of which there are few."""
    return typing.get_type_hints(kind, include_extras=True)


def _bare(kind: Any) -> Any:
    """A type without what is annotated to it, and without the None that may stand for it."""
    if typing.get_origin(kind) is Annotated:
        return _bare(typing.get_args(kind)[0])
    others = [one for one in typing.get_args(kind) if one is not NoneType]
    return _bare(others[0]) if typing.get_origin(kind) in (Union, UnionType) and len(others) == 1 else kind


def _unwrapped(found: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """As `_bare`, of msgspec's own types, with what `Meta` says beside them."""
    if isinstance(found, inspect.Metadata):
        inner, said = _unwrapped(found.type)
        return inner, {**said, **(found.extra_json_schema or {})}
    if isinstance(found, inspect.UnionType):
        others = [one for one in found.types if not isinstance(one, inspect.NoneType)]
        if len(others) == 1:
            return _unwrapped(others[0])
    return found, {}


def _words(found: inspect.Type) -> str:
    match found:
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(found, inspect.IntType) else "a number"
            return " ".join(filter(None, (number, _between(found))))
        case inspect.StrType():
            return f"text{_length(found.min_length, found.max_length)}"
        case inspect.BoolType():
            return "true or false"
    raise TypeError(f"a type without words of its own must have a description, got {found}")


def _between(found: inspect.IntType | inspect.FloatType) -> str:
    if found.ge is not None and found.le is not None:
        return f"from {_digits(found.ge)} to {_digits(found.le)}"
    bounds = (("above", found.gt), ("of at least", found.ge), ("at most", found.le))
    return " and ".join(f"{words} {_digits(bound)}" for words, bound in bounds if bound is not None)


def _digits(bound: float) -> str:
    return f"{int(bound) if bound == int(bound) else bound:,}"


def _length(low: int | None, high: int | None) -> str:
    if high is None:
        return ""
    return f" of {low}–{high:,} characters" if low else f" of at most {high:,} characters"

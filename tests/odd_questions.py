"""Questions that no launcher should ask, and some that it may: odd jobs and odd lists of candidates, without an end."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np

from leap_predictor import Job

GOOD: Final = ("A100-SXM-80", "H100-SXM-80", "L4", "A30", "MI300X", "T4")
_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Job))


class Hostile:
    """Raises whatever is asked of it."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __eq__ = __hash__ = __len__ = __iter__ = __bool__ = __lt__ = _raise  # type: ignore[assignment]
    __index__ = __int__ = __float__ = __getitem__ = __contains__ = __format__ = _raise  # type: ignore[assignment]


class HostileText(str):
    """Text that can neither be compared nor hashed nor shown."""

    __slots__ = ()

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __str__ = __repr__ = __eq__ = __hash__ = __len__ = __iter__ = encode = __format__ = _raise  # type: ignore[assignment]


class Unprintable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


class HostileMapping(Mapping[str, object]):
    """A mapping whose items raise once they are looked at."""

    def __getitem__(self, name: str) -> object:
        raise Unprintable

    def __iter__(self) -> Iterator[str]:
        yield "job_name"
        raise Unprintable

    def __len__(self) -> int:
        raise Unprintable


class HostileJob(Job):
    """A job whose fields raise once they are looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "model_type":
            raise Unprintable
        return super().__getattribute__(name)


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


_TEXTS: Final = (
    "",
    " ",
    "x",
    "bert",
    "bert/large",
    "\x00",
    "a\nb\r\n*1\r\n$3\r\nabc\r\n",
    "\ud800",
    "train-\udfff-7",
    "\x1b[31m",
    "é" * 512,
    "🚀" * 129,
    "x" * 512,
    "x" * 513,
    "0123456789" * 20,
    "-_-_-_" * 80,
    "%s{0}{name!r}",
    "../../etc/passwd",
    "x" * 100_000,
)
_ODD: Final = (
    None,
    True,
    False,
    0,
    -1,
    1,
    8,
    2**31 - 1,
    2**31,
    2**63,
    2**64,
    10**400,
    0.0,
    -0.0,
    0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    5e-324,
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    (),
    [],
    {},
    frozenset(),
    {"a": {"b": []}},
    {1: 2, None: 3},
    [None, math.nan],
    range(10**9),
    1j,
    ...,
    int,
    len,
    Decimal("NaN"),
    datetime(2026, 3, 1, tzinfo=UTC),
    np.float64("nan"),
    np.int64(3),
    np.str_("bert"),
    np.arange(3),
    np.array(["A100-SXM-80"]),
    object(),
    Hostile(),
    HostileText("A100-SXM-80"),
    HostileMapping(),
    _nested(20_000),
)


def questions(seed: int) -> Iterator[tuple[Any, Any]]:
    """Jobs with candidates, always the same ones; about one in ten can be answered."""
    draw = random.Random(seed)
    while True:
        yield _job(draw, draw.random() < 0.9), _candidates(draw, draw.random() < 0.85)


def _value(draw: random.Random) -> Any:
    return draw.choice(_TEXTS) if draw.random() < 0.4 else draw.choice(_ODD)


def _job(draw: random.Random, odd: bool) -> Any:
    fields: dict[Any, Any] = {
        "job_name": f"train-{draw.randrange(1000)}-2026",
        "model_type": draw.choice(("bert", "dlrm", "nobody-has-seen-it")),
        "trainer_count": 2 ** draw.randrange(10),
    }
    if draw.random() < 0.5:
        fields |= {"batch_size": draw.choice((32, 0.5, None)), "config": {"layers": 12, "precision": "bf16"}}
    if odd:
        kind = draw.random()
        if kind < 0.1:
            return _value(draw)
        if kind < 0.13:
            return HostileJob(**fields)
        for _ in range(draw.randrange(1, 4)):
            fields[draw.choice(_FIELDS)] = _value(draw)
        if kind < 0.3:
            fields["config"] = {str(at): _value(draw) for at in range(draw.randrange(5))}
        if kind < 0.4:
            fields["architecture"] = {f"n{at}": _value(draw) for at in range(draw.randrange(3))}
        if kind < 0.5:
            fields[draw.choice((None, 7, "surprise", (), "job_name\x00"))] = _value(draw)
            return fields
        if kind < 0.6:
            fields.pop(draw.choice(list(fields)))
            return fields
    return Job(**fields) if draw.random() < 0.5 else fields


def _candidates(draw: random.Random, odd: bool) -> Any:
    good = draw.sample(GOOD, draw.randrange(1, len(GOOD)))
    if not odd:
        return good
    kind = draw.random()
    if kind < 0.1:
        return _value(draw)
    if kind < 0.6:
        mixed = [*good, *(_value(draw) for _ in range(draw.randrange(1, 4)))]
        draw.shuffle(mixed)
        return mixed
    if kind < 0.7:
        return _raising(good)
    if kind < 0.75:
        return good * draw.randrange(2, 500)
    if kind < 0.76:
        return [f"{good[0]}-{at}" for at in range(10_000)]
    if kind < 0.77:
        return [good[0]] * 10_000
    if kind < 0.775:
        return itertools.cycle(good)
    if kind < 0.85:
        return np.array(good)
    if kind < 0.9:
        return dict.fromkeys(good)
    return iter(good)


def _raising(good: list[str]) -> Iterator[str]:
    yield from good
    raise Unprintable

"""A Redis filled with the history of very many families, in seconds: rows in Feast's layout as raw pipelined commands.

What is stored is what the worker stores, state and version included; only the values repeat themselves, since a row is
folded once for each hardware type, scale and throughput of a few, and written for many families.
"""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import redis

from leap_features.events import fixed_log
from leap_features.hardware import CATALOGUE
from leap_features.history import EMPTY, FEATURES, Position, Run, features, fold
from leap_features.layout import encode_timestamp, encode_value, entity_key, field, timestamp_field
from leap_features.levels import LEVELS, Level
from leap_features.meta import FIRST_LIVE_EPOCH
from small_training_set import MODELS
from stored_history import DAY_US, Subject, store_meta

CANDIDATES: Final = tuple(name for name in CATALOGUE if CATALOGUE[name].hourly_cost_usd is not None)[:22]
"""As many hardware types as a launcher asks about."""

_THROUGHPUTS: Final = (120.0, 260.0, 530.0, 1_070.0)
_PIPELINE: Final = 2_000
_OF_FAMILY: Final = tuple(level for level in LEVELS if "job_family" in level.join_keys)
_OF_MODEL: Final = tuple(level for level in LEVELS if "model_type" in level.join_keys)


class Family(NamedTuple):
    """Of which there is history."""

    name: str
    """The job family: `{model_type}/{stem}`."""
    stem: str
    model_type: str
    hardware: tuple[str, ...]
    """Types that it ran on."""
    trainer_count: int


def families(count: int, model_types: Sequence[str], hardware: Sequence[str], types_each: int) -> Iterator[Family]:
    """`count` families, always the same ones."""
    draw = random.Random(count)
    for number in range(count):
        model_type = model_types[number % len(model_types)]
        stem = f"team{number % 97}-train-{_letters(number)}"
        yield Family(
            f"{model_type}/{stem}",
            stem,
            model_type,
            tuple(draw.sample(hardware, types_each)),
            2 ** draw.randrange(7),
        )


def fill(
    host: str, port: int, project: str, given: Iterator[Family], model_types: Sequence[str], hardware: Sequence[str]
) -> int:
    """Store a row of every level of all `given` families, and of all `model_types` on all `hardware`; count them.

    Raises:
        RuntimeError: the server refused a command.
    """
    values = _Values()
    with socket.create_connection((host, port)) as connection:
        replies = _Replies(connection)
        part: list[bytes] = []
        stored = 0
        for level, subject in _subjects(given, model_types, hardware):
            key = entity_key(project, level.join_keys, level.key(subject))
            tail = values.of(level, subject, stored)
            part.append(b"*%d\r\n$4\r\nHSET\r\n$%d\r\n%s\r\n%s" % (_WORDS, len(key), key, tail))
            stored += 1
            if len(part) == _PIPELINE:
                connection.sendall(b"".join(part))
                part.clear()
        connection.sendall(b"".join(part))
        replies.wait_for(stored)
    return stored


def filled(redis_url: str, project: str, count: int, types_each: int, asked: int) -> list[Family]:
    """Make a Redis ready and store the history of `count` families in it; return `asked` of them, in no order.

    They are of the models of small training sets, and ran on some of `CANDIDATES`.
    """
    began = time.perf_counter()
    given = list(families(count, MODELS, CANDIDATES, types_each))
    with redis.Redis.from_url(redis_url) as client:
        store_meta(client, project)
        where = client.connection_pool.connection_kwargs
        stored = fill(where["host"], where["port"], project, iter(given), MODELS, CANDIDATES)
        memory = client.info("memory")["used_memory"]
    seconds = time.perf_counter() - began
    sys.stderr.write(f"{stored:,} rows in {seconds:.0f} s, {memory / 2**20:,.0f} MiB of Redis\n")
    return [given[at] for at in np.random.default_rng(1).integers(0, len(given), asked)]


_WORDS: Final = 2 + 2 * (len(FEATURES) + 1)


def _subjects(
    given: Iterator[Family], model_types: Sequence[str], hardware: Sequence[str]
) -> Iterator[tuple[Level, Subject]]:
    """What has a row, with its level; each once."""
    for model_type in model_types:
        for level in _OF_MODEL:
            types = hardware if "hardware_type" in level.join_keys else hardware[:1]
            scales = [2**power for power in range(7)] if "trainer_count" in level.join_keys else [1]
            for name in types:
                for scale in scales:
                    yield level, Subject("", model_type, name, scale)
    for family in given:
        for level in _OF_FAMILY:
            types = family.hardware if "hardware_type" in level.join_keys else family.hardware[:1]
            for name in types:
                yield level, Subject(family.name, family.model_type, name, family.trainer_count)


class _Values:
    """Fields and values of rows, as the end of a command; each different one is made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, int, float], bytes] = {}

    def of(self, level: Level, subject: Subject, number: int) -> bytes:
        throughput = _THROUGHPUTS[number % len(_THROUGHPUTS)]
        place = (level.view, subject.hardware_type, subject.trainer_count, throughput)
        made = self._made.get(place)
        if made is None:
            made = self._made[place] = _tail(level, subject, throughput)
        return made


def _tail(level: Level, subject: Subject, throughput: float) -> bytes:
    row = EMPTY
    for offset in range(3):
        run = Run(
            succeeded=True,
            completed_at_us=(20_000 + offset) * DAY_US,
            attempt_id=f"attempt-{offset}",
            x=fixed_log(throughput * (1 + 0.03 * offset)),
            log_trainers=fixed_log(subject.trainer_count),
            log_batch=fixed_log(32.0),
            hardware_type=subject.hardware_type,
            trainer_count=subject.trainer_count,
            batch_size=32.0,
        )
        row = fold(row, run, Position(FIRST_LIVE_EPOCH, 0, offset), run.completed_at_us + 1_000)
    of_row = features(row)
    words = []
    for name, _ in FEATURES:
        words += [field(level.view, name), encode_value(of_row[name])]
    words += [timestamp_field(level.view), encode_timestamp(row.recorded_at_us)]
    return b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class _Replies:
    """Reads what the server says beside what is sent to it: else both would wait for each other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._count = 0
        self._error = b""
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._count >= count)
        if self._count < count:
            raise RuntimeError(f"the server must take every row, it said {self._error!r}")

    def _read(self) -> None:
        error = b""
        while not error and (data := self._received()):
            if b"-" in data:  # of a number of new fields there is never a minus
                error = data[data.index(b"-") :][:200]
            with self._changed:
                self._count += data.count(b"\n")
                self._changed.notify()
        with self._changed:
            self._error = error or b"nothing more"
            self._changed.notify()

    def _received(self) -> bytes:
        try:
            return self._connection.recv(1 << 20)
        except OSError:  # closed, as after the last reply
            return b""


def _letters(number: int) -> str:
    """The number in letters: digits may be stripped from a job name when its family is derived."""
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text = chr(ord("a") + digit) + text
        if not number:
            return text

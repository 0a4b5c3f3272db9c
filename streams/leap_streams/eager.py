"""Run a coroutine until it has to wait, without a task.

Faust hands each record over in a task of its own, beside three more that watch for a stop. Nearly every record finds
room in its queue at once, and then all four are for nothing: a fifth of a worker's time.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Finished(NamedTuple):
    """A coroutine that ended without waiting, and its result."""

    result: Any


def begin(coroutine: Coroutine[Any, Any, T]) -> Finished | Coroutine[Any, Any, T]:
    """Run `coroutine` up to where it waits: its result if it ended, else a coroutine that goes on from there.

    Must be called within a task, as what the coroutine does may depend on it. What the coroutine raises is raised here.
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return Finished(end.value)
    return _go_on(coroutine, waits_for)


async def _go_on(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> T:
    return await _resume(coroutine, waits_for)


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Pass on what `coroutine` waits for, and to it what comes back, until it ends."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            go_on = partial(coroutine.throw, error)
        else:
            go_on = partial(coroutine.send, sent)
        try:
            waits_for = go_on()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

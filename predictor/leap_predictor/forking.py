"""Objects with threads, connections or locks, which a forked child must not share with its parent: made anew there."""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Remade(Protocol):
    """Something that can begin again in a child."""

    def after_fork_in_child(self) -> None:
        """Leave to the parent what is the parent's. Its locks may be held by a thread that the child does not have."""


_REMADE: Final[weakref.WeakSet[Remade]] = weakref.WeakSet()


def remake_in_children(one: Remade) -> None:
    """Have `one` told in every child that this process forks, as long as there is one that holds it."""
    _REMADE.add(one)


def _after_fork_in_child() -> None:
    for one in list(_REMADE):
        one.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)

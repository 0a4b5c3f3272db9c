"""Objects with threads, connections or locks, which a forked child must not share with its parent: made anew there."""

from __future__ import annotations

# What Python imports where a name is resolved, a bundle read or its packages' versions looked up, which threads of ours
# do. A module that was just being imported when a process forked can never be imported by the child.
import email.parser  # noqa: F401
import os
import weakref
from encodings import cp437, idna  # noqa: F401
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
    interrupted: BaseException | None = None
    for one in list(_REMADE):
        try:
            one.after_fork_in_child()
        except BaseException as error:  # a signal handler's, say; the others must be told all the same
            interrupted = error
    if interrupted is not None:
        raise interrupted


os.register_at_fork(after_in_child=_after_fork_in_child)

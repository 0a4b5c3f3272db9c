"""The three ways in which a batch can fail, by what to do about it."""

from __future__ import annotations


class Unavailable(RuntimeError):
    """Something does not answer now: wait, and do the same batch again."""


class Refused(RuntimeError):
    """The store is not the one that the batch began from: drop the batch and begin again at the store's checkpoints."""


class Halt(RuntimeError):
    """Waiting does not help: stop, with nothing acknowledged, and say why. The message names the mend."""

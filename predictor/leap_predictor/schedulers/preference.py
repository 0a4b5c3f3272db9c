"""A job with a ranking in it, and what of the ranking could not be expressed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from leap_predictor.explanation import Choice

Form = TypeVar("Form")
Name = TypeVar("Name")


class Preference(NamedTuple, Generic[Form]):
    """What a scheduler is given."""

    job: Form
    """A copy of the job, in the scheduler's own form."""
    warnings: tuple[str, ...] = ()
    """What was left out, and the mend."""


def named(
    choices: Sequence[Choice], name_of: Callable[[str], Name | None], kind: str, table: str
) -> tuple[list[tuple[Choice, Name]], list[str]]:
    """The choices that the scheduler has a name for, in order, each with it; a warning for every other.

    Args:
        name_of: the scheduler's name of a hardware type; None: it has none.
        kind: what such a name is, for the warning.
        table: where the labels file has such names.
    """
    pairs: list[tuple[Choice, Name]] = []
    warnings: list[str] = []
    for choice in choices:
        name = name_of(choice.hardware_type)
        if name is not None:
            pairs.append((choice, name))
        else:
            warnings.append(
                f"{choice.hardware_type!r} has no {kind} and is left out: name it under [{table}] of the labels"
            )
    return pairs, warnings

"""A job with a ranking in it, and what of the ranking could not be expressed. Pure."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from leap_predictor.explanation import Choice

Form = TypeVar("Form")
Name = TypeVar("Name")
Rest = ParamSpec("Rest")


class Preference(NamedTuple, Generic[Form]):
    """What a scheduler is given."""

    job: Form
    """A copy of the job, in the scheduler's own form."""
    warnings: tuple[str, ...] = ()
    """What was left out, and the mend."""


def never_raising(
    place: Callable[Concatenate[Any, Rest], Preference[Form]],
) -> Callable[Concatenate[Any, Rest], Preference[Form]]:
    """`place`, but a job that cannot be copied or walked through is given back itself, with a warning.

    Such a job holds itself, is nested too deeply, or holds what belongs to a process.
    """

    @functools.wraps(place)
    def placed(job: Any, /, *arguments: Rest.args, **options: Rest.kwargs) -> Preference[Form]:
        try:
            return place(job, *arguments, **options)
        except Exception as error:  # whatever is in a job, it must be submitted
            said = traceback.format_exception_only(error)[-1].strip()
            return Preference(job, (f"the job cannot be read or copied ({said}): it is left as it is",))

    return placed


def no_object(job: object, what: str) -> str:
    """The warning for what is no object, such as the None that an empty YAML file is."""
    return f"{what} must be an object (a dict, as JSON and YAML are read), got {job!r:.200}: it is left as it is"


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

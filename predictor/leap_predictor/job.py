"""What a launcher asks about: a job as it is submitted, and its candidates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

MAX_CANDIDATES: Final = 1_000
"""More than any fleet has hardware types; a longer list is a mistake and would not be answered in time."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
LongName = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True)
class Job:
    """A job as it is submitted. Nothing is checked here: `rank` answers [] to a job that breaks a rule."""

    job_name: str
    """1–512 characters, as submitted; the job family is derived from it."""
    model_type: str
    """1–128 characters, without `/`."""
    trainer_count: int
    """≥ 1."""
    batch_size: float | None = None
    """Samples per trainer and step, may be a fraction; None or 0: unknown."""
    reader_count: int | None = None
    """≥ 0; None: unknown."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Anything else known at submission: numbers, strings, booleans; None: unknown."""
    job_family: str | None = None
    """Stem of the job family, where it is given instead of derived."""


class InvalidJob(ValueError):
    """A job or a list of candidates that breaks a rule; the message names field, value and rule."""


class _Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_name: LongName
    model_type: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[^/]+$")]
    trainer_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
    batch_size: Annotated[float, msgspec.Meta(ge=0)] | None = None
    reader_count: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    config: dict[str, bool | int | float | str | None] = {}
    job_family: LongName | None = None


_FIELDS: Final = tuple(item.name for item in dataclasses.fields(Job))


def checked_job(job: Job | Mapping[str, object]) -> Job:
    """`job` itself, or the job in a mapping of its fields (as read from JSON), once every rule has been checked.

    Raises:
        InvalidJob: a field is missing, unknown, or breaks its rule.
    """
    if isinstance(job, Job):
        plain: dict[str, Any] = {name: getattr(job, name) for name in _FIELDS}
    elif isinstance(job, Mapping):
        plain = {str(name): value for name, value in job.items()}
    else:
        raise InvalidJob(f"job must be a Job or a mapping of its fields, got {type(job).__name__}")
    try:
        good = msgspec.convert(plain, _Checked)
    except msgspec.ValidationError as error:
        raise InvalidJob(_explain(str(error), plain)) from None
    return Job(**{name: getattr(good, name) for name in _FIELDS})


def _explain(problem: str, plain: Mapping[str, object]) -> str:
    rule, _, path = problem.partition(" - at `$.")
    name = path.rstrip("`")
    if not name:
        return f"job: {rule[:1].lower()}{rule[1:]}"
    shown = repr(plain.get(name, "…"))[:200]
    return f"job: {name} = {shown}: {rule[:1].lower()}{rule[1:]}"


def checked_candidates(candidates: Iterable[str]) -> tuple[str, ...]:
    """The candidates, each once, in the order given.

    Raises:
        InvalidJob: not a list of names, or too long.
    """
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Iterable):
        raise InvalidJob(f"candidates must be a list of hardware types, got {candidates!r:.200}")
    seen: dict[str, None] = {}
    for candidate in candidates:
        if not isinstance(candidate, str) or not 1 <= len(candidate) <= 128:
            raise InvalidJob(f"a candidate must be a name of 1–128 characters, got {candidate!r:.200}")
        seen[candidate] = None
        if len(seen) > MAX_CANDIDATES:
            raise InvalidJob(f"candidates must be at most {MAX_CANDIDATES}")
    return tuple(seen)

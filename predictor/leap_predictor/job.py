"""What a launcher asks about: a job as it is submitted, and its candidates."""

from __future__ import annotations

import dataclasses
import itertools
import reprlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from leap_features.columns import ARCHITECTURE_PREFIX, CONFIG_PREFIX
from leap_predictor.plain_rules import Broken, Unknown, did_you_mean, first_broken, rule_of, unknown_warnings

MAX_CANDIDATES: Final = 256
"""More than any fleet has hardware types; more different ones are a mistake and would not be answered in time."""
MAX_CONFIG_KEYS: Final = 10_000
"""A completion event has no room for more."""
MAX_REPEATED: Final = 20_000
"""Length of a list of candidates with repetitions (one per host, say): a list without an end is not an endless wait."""

# A lone surrogate cannot be part of a key of the store, nor of a line of the decision log.
LongName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=512,
        pattern=r"^[^\ud800-\udfff]+$",
        description="text of 1–512 characters, without lone surrogates",
    ),
]
ModelType = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[^/\ud800-\udfff]+$",
        description="text of 1–128 characters, without / and lone surrogates",
    ),
]
ConfigValue = Annotated[
    bool | int | float | str | None, msgspec.Meta(description="a number, text, true, false or null (None)")
]
MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True)
class Job:
    """A job as it is submitted. Nothing is checked here: `rank` answers [] to a job that breaks a rule.

    >>> job = Job("train-bert-2026-03-01", "bert", trainer_count=8, batch_size=32, config={"precision": "bf16"})
    >>> job.reader_count is None
    True
    >>> checked_job({"job_name": "train-bert", "model_type": "bert", "trainer_count": 0})
    Traceback (most recent call last):
    leap_predictor.job.InvalidJob: job: trainer_count = 0: must be a whole number from 1 to 2,147,483,647, such as 8
    """

    job_name: str
    """1–512 characters, as submitted; the job family is derived from it."""
    model_type: str
    """1–128 characters, without `/`."""
    trainer_count: int
    """≥ 1."""
    batch_size: float | None = None
    """Samples per trainer and step, may be a fraction; None or 0: unknown."""
    reader_count: int | None = None
    """≥ 0; None: unknown, which is taken as 0, as in completion events."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Anything else known at submission: numbers, strings, booleans; None: unknown."""
    job_family: str | None = None
    """Stem of the job family, where it is given instead of derived."""
    architecture: Mapping[str, float] = field(default_factory=dict)
    """Numbers that summarise the model definition, as completion events carry them (`leap_features.architecture`)."""
    attempt_id: str | None = None
    """1–512 characters, as the attempt's completion event will have it, where it is known by now. No prediction depends
    on it; it tells `leap impact` which attempt a decision was about."""


class InvalidJob(ValueError):
    """A job or a list of candidates that breaks a rule; the message names field, value and rule."""


class _Checked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_name: LongName
    model_type: ModelType
    trainer_count: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT, examples=[8])]
    batch_size: Annotated[float, msgspec.Meta(ge=0, examples=[32])] | None = None
    reader_count: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT, examples=[4])] | None = None
    config: Annotated[
        dict[str, ConfigValue],
        msgspec.Meta(
            max_length=MAX_CONFIG_KEYS, description=f"a mapping of at most {MAX_CONFIG_KEYS:,} keys to values"
        ),
    ] = {}
    job_family: LongName | None = None
    architecture: Annotated[
        dict[str, float],
        msgspec.Meta(
            max_length=MAX_CONFIG_KEYS, description=f"a mapping of at most {MAX_CONFIG_KEYS:,} names to numbers"
        ),
    ] = {}
    attempt_id: LongName | None = None


# Unlike repr(), it is short for a value of any size.
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 200

_QUOTES: Final = "'\""
_FIELDS: Final = tuple(item.name for item in dataclasses.fields(Job))
_REQUIRED: Final = ("job_name", "model_type", "trainer_count")
_OTHER_NAMES: Final = {
    "gpus": "trainer_count",
    "num_gpus": "trainer_count",
    "workers": "trainer_count",
    "world_size": "trainer_count",
    "hyperparameters": "config",
}
"""What others call a field, where it is not alike."""


def checked_job(job: Job | Mapping[str, object]) -> Job:
    """`job` itself, or the job in a mapping of its fields (as read from JSON), once every rule has been checked.

    Raises:
        InvalidJob: a field is missing, unknown, or breaks its rule.
    """
    if isinstance(job, Job):
        plain: dict[str, Any] = {name: getattr(job, name) for name in _FIELDS}
    elif isinstance(job, Mapping):
        # No more than are looked at: a mapping may go on without end.
        plain = {str(name): value for name, value in itertools.islice(job.items(), len(_FIELDS) + 1)}
    else:
        raise InvalidJob(f"job must be a Job or a mapping of its fields, got {type(job).__name__}")
    for name in ("config", "architecture"):  # before each of very many is looked at
        size = len(value) if isinstance(value := plain.get(name), Mapping) else 0
        if size > MAX_CONFIG_KEYS:
            raise InvalidJob(f"job: {name} has {size:,} keys: must be a mapping of at most {MAX_CONFIG_KEYS:,} keys")
    try:
        good = msgspec.convert(plain, _Checked)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter of a lone surrogate
        broken = first_broken(plain, _Checked)
        raise InvalidJob(f"job: {_explain(broken) if broken else error}") from None
    return Job(**{name: _plain(getattr(good, name)) for name in _FIELDS})


def _plain(value: Any) -> Any:
    """Text as plain `str`: a numpy.str_, or a class of the launcher's own, may compare or hash in ways of its own."""
    return str.__str__(value) if isinstance(value, str) else value


def _shown(value: object) -> str:
    try:
        return _short.repr(value[:200] if isinstance(value, bytes) else value)[:200]
    except Exception:  # Python writes no whole number of more than 4,300 digits, say
        return f"<{type(value).__name__}>"


def _explain(broken: Broken) -> str:
    name = ".".join(_shown(part).strip(_QUOTES) for part in broken.path)
    if broken.what == "unknown key":
        other = _OTHER_NAMES.get(name)
        meant = f"; did you mean {other}?" if other else did_you_mean(name, _FIELDS) or "; remove it"
        return f"unknown field {_shown(broken.path[0])}{meant} (a job has {', '.join(_FIELDS)})"
    if broken.what == "key":
        return f"{broken.path[0]} has the key {_shown(broken.value)}: a key must be {rule_of(broken.kind)}"
    if isinstance(broken.value, Mapping) and not broken.path:
        missing = ", ".join(field for field in _REQUIRED if field not in broken.value)
        return f"{missing} missing: a job needs {', '.join(_REQUIRED)}"
    kind = type(broken.value)
    own = "" if kind.__module__ == "builtins" else f", got {kind.__name__}: convert it (numpy's by `.item()`)"
    return f"{name} = {_shown(broken.value)}: must be {rule_of(broken.kind)}{own}"


def checked_candidates(candidates: Iterable[str]) -> dict[str, str | None]:
    """The candidates, each once, in the order given, with None; what is no name of a candidate, with the rule for one.

    Raises:
        InvalidJob: not a list, or too long.
    """
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Iterable):
        raise InvalidJob(f"candidates must be a list of hardware types, got {_shown(candidates)}")
    seen: dict[str, str | None] = {}
    for number, candidate in enumerate(candidates, 1):
        name = _plain(candidate) if isinstance(candidate, str) else ""
        if 1 <= len(name) <= 128:
            seen[name] = None
        else:
            seen.setdefault(_shown(candidate), "a candidate must be a name of 1–128 characters")
        if len(seen) > MAX_CANDIDATES or number > MAX_REPEATED:
            raise InvalidJob(
                f"candidates must be at most {MAX_CANDIDATES} different ones and {MAX_REPEATED} in all: "
                "give each hardware type once"
            )
    return seen


def check_config(config: Mapping[str, object], features: Iterable[str], categories: Container[str]) -> None:
    """Check that the keys of `config` that are `features` of a model and no categories hold numbers.

    Raises:
        InvalidJob: one holds text.
    """
    for name in features:
        if name.startswith(CONFIG_PREFIX) and name not in categories:
            value = config.get(name.removeprefix(CONFIG_PREFIX))
            if isinstance(value, str):
                key = name.removeprefix(CONFIG_PREFIX)
                raise InvalidJob(f"job: config.{key} = {_shown(value)}: the model was trained on numbers there")


def unknown_architecture(architecture: Mapping[str, float], features: Iterable[str]) -> list[str]:
    """Warnings of names in a job's `architecture` that no prediction will see, each with what may have been meant.

    Pure. A name is known that is a feature of the model, or one of `leap_features.architecture`.

    Args:
        architecture: of a checked job.
        features: of the model, as of `Bundle.model`.

    >>> unknown_architecture({"paramters": 3e9, "layers": 12}, ())
    ["job: architecture names 'paramters', which no model knows; did you mean parameters?"]
    """
    seen = {name.removeprefix(ARCHITECTURE_PREFIX) for name in features if name.startswith(ARCHITECTURE_PREFIX)}
    if not (unseen := architecture.keys() - seen):
        return []
    from leap_features.architecture import ARCHITECTURE_FEATURES  # noqa: PLC0415  # only warnings need so large a module

    known = [*seen, *ARCHITECTURE_FEATURES]
    unknown = sorted(unseen - ARCHITECTURE_FEATURES.keys())
    return unknown_warnings(
        [Unknown(f"job: architecture names {_shown(name)}, which no model knows", name, known) for name in unknown]
    )

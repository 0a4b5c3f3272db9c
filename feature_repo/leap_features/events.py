"""The completion event: what the training platform says once an attempt has ended, and the rules it must keep.

`decode` is the only door: whatever passes it may be folded into history, whatever does not goes to the dead letters
with the rule that it broke. Times are aware UTC datetimes of microsecond resolution.
"""

from __future__ import annotations

import hashlib
import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

SCHEMA_VERSION: Final = 1
MAX_EVENT_BYTES: Final = 65_536
MAX_NESTING: Final = 32
"""Levels of objects and arrays in `ranking`, far below what an encoder can follow on the stack that is left to it."""
FIXED_POINT: Final = 2**32
"""Logarithms enter history as integers in units of 2⁻³², so that sums are exact in any order."""
CLOCK_ALLOWANCE_US: Final = 5 * 60 * 1_000_000
"""A completion may lie this far after the broker's append time, in microseconds: clocks differ."""

NO_SLASH: Final = "^[^/]+$"
NOT_BLANK: Final = r"\S"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
LongName = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
NonNegative = Annotated[float, msgspec.Meta(ge=0)]

Status = Literal["succeeded", "failed", "cancelled", "preempted"]


class InvalidEvent(ValueError):
    """An event that breaks a rule.

    Attributes:
        rule: short, stable name of the rule (a field's name, or one of `json`, `size`, `time_order`, `too_late`,
            `from_the_future`, `unknown_field`, …); it becomes a header of the dead letter.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class CompletionEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One attempt that has ended. Throughput is samples per second over all trainers; batch size is per trainer."""

    schema_version: Annotated[int, msgspec.Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION, description="always 1")]
    attempt_id: Annotated[Name, msgspec.Meta(description="unique for one launch of a job")]
    job_name: Annotated[LongName, msgspec.Meta(description="as submitted; the job family is derived from it")]
    job_family: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=512, pattern=NOT_BLANK)] | None,
        msgspec.Meta(description="stem of the job family, instead of the derived one; not blank"),
    ] = None
    model_type: Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=NO_SLASH, description="without /")]
    hardware_type: Annotated[Name, msgspec.Meta(description="accelerator, as the launcher names its candidates")]
    submitted_at: Annotated[Instant, msgspec.Meta(description="RFC 3339 with offset")]
    started_at: Annotated[Instant, msgspec.Meta(description="RFC 3339 with offset, not before submitted_at")]
    completed_at: Annotated[Instant, msgspec.Meta(description="RFC 3339 with offset, not before started_at")]
    status: Status
    throughput: Annotated[
        float | None, msgspec.Meta(description="samples per second over all trainers; finite, > 0 when succeeded")
    ] = None
    trainer_count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    reader_count: Count = 0
    # Floats, like every given value: an integer would be written otherwise into a row's state.
    batch_size: Annotated[NonNegative, msgspec.Meta(description="samples per trainer and step; may be a fraction")] = (
        0.0
    )
    device_hours: NonNegative = 0.0
    eligible_hardware: Annotated[
        tuple[Name, ...], msgspec.Meta(description="the candidates at submission, may be empty")
    ] = ()
    config: Annotated[
        dict[str, bool | int | float | str], msgspec.Meta(description="anything else known at submission")
    ] = {}
    architecture: Annotated[dict[str, float], msgspec.Meta(description="summary features of the model definition")] = {}
    ranking: Annotated[
        dict[str, Any] | None,
        msgspec.Meta(description="what the predictor answered for this attempt; at most 32 levels deep"),
    ] = None


_decoder = msgspec.json.Decoder(CompletionEvent)
_encoder = msgspec.json.Encoder(order="deterministic")
_PATTERNS: Final = {NO_SLASH: "without /", NOT_BLANK: "that is not blank"}
_FIELD = re.compile(r" - at `(?:key in )?\$\.(\w+)")


def decode(raw: bytes) -> CompletionEvent:
    """The event in `raw` (JSON, UTF-8), with its times in UTC.

    Raises:
        InvalidEvent: `raw` is no event, or the event breaks a rule.
    """
    if len(raw) > MAX_EVENT_BYTES:
        raise InvalidEvent("size", f"an event has at most {MAX_EVENT_BYTES} bytes, got {len(raw)}: shorten config")
    try:
        event = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidEvent(*_explain(str(error), raw)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent("json", f"an event is one JSON object in UTF-8: {error}") from None
    if event.ranking is not None and _deeper(event.ranking, MAX_NESTING):
        raise InvalidEvent("ranking", f"ranking may be nested {MAX_NESTING} levels deep, got more {_of(event)}")
    return checked(event)


def checked(event: CompletionEvent) -> CompletionEvent:
    """`event` with its times in UTC, once the rules between its fields are known to hold.

    Raises:
        InvalidEvent: they do not.
    """
    try:
        submitted, started, completed = (
            t.astimezone(UTC) for t in (event.submitted_at, event.started_at, event.completed_at)
        )
    except OverflowError:
        raise InvalidEvent("time_order", f"a time lies outside the years 1 to 9999 {_of(event)}") from None
    if not submitted <= started <= completed:
        raise InvalidEvent(
            "time_order",
            f"submitted_at ≤ started_at ≤ completed_at must hold, got {submitted.isoformat()}, "
            f"{started.isoformat()}, {completed.isoformat()} {_of(event)}",
        )
    throughput = event.throughput
    if throughput is not None and not math.isfinite(throughput):
        raise InvalidEvent("throughput", f"throughput must be finite, got {throughput} {_of(event)}")
    if event.status == "succeeded" and (throughput is None or throughput <= 0):
        raise InvalidEvent(
            "throughput", f"throughput must be > 0 for a succeeded attempt, got {throughput} {_of(event)}"
        )
    if submitted.tzinfo is event.submitted_at.tzinfo is event.started_at.tzinfo is event.completed_at.tzinfo:
        return event
    return msgspec.structs.replace(event, submitted_at=submitted, started_at=started, completed_at=completed)


def encode(event: CompletionEvent) -> bytes:
    """`event` as JSON; the same event gives the same bytes."""
    return _encoder.encode(event)


def check_recorded(event: CompletionEvent, recorded_at_us: int, horizon_us: int, replay: bool) -> None:
    """Check `event` against the instant at which the broker recorded it (microseconds since 1970, UTC).

    Raises:
        InvalidEvent: `from_the_future`, if it completed more than 5 minutes after that; `too_late`, if it was
            recorded later than `horizon_us` after its completion and is not replayed by an operator.
    """
    age = recorded_at_us - to_us(event.completed_at)
    if age < -CLOCK_ALLOWANCE_US:
        raise InvalidEvent(
            "from_the_future",
            f"completed_at may be at most 5 min after the broker's record time, got {event.completed_at.isoformat()}, "
            f"recorded at {from_us(recorded_at_us).isoformat()} {_of(event)}: check the producer's clock",
        )
    if age > horizon_us and not replay:
        raise InvalidEvent(
            "too_late",
            f"an event must be recorded within {horizon_us / 86_400_000_000:g} days of its completion, got "
            f"{event.completed_at.isoformat()}, recorded at {from_us(recorded_at_us).isoformat()} {_of(event)}: "
            "replay it with the replay header if it is genuine",
        )


def content_digest(event: CompletionEvent) -> str:
    """32 hexadecimal digits that differ when anything in the event differs."""
    return hashlib.blake2b(_encoder.encode(event), digest_size=16).hexdigest()


def fixed_log(value: float) -> int:
    """Natural logarithm of `value` (> 0) as an integer in units of 2⁻³²."""
    return round(math.log(value) * FIXED_POINT)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the event, generated from the struct."""
    return msgspec.json.schema(CompletionEvent)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(instant: datetime) -> int:
    """Microseconds since 1970 of an aware datetime, exactly."""
    delta = instant - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_us(us: int) -> datetime:
    """The aware UTC datetime `us` microseconds after 1970."""
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def _deeper(value: Any, levels: int) -> bool:
    """Whether `value`, decoded from JSON, has more than so many levels of objects and arrays."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(inner, levels - 1) for inner in value)


def _of(event: CompletionEvent) -> str:
    return f"(attempt {event.attempt_id})"


def _explain(problem: str, raw: bytes) -> tuple[str, str]:
    """Rule and message for a complaint of msgspec, with the offending value where the JSON can be read at all."""
    found = _FIELD.search(problem)
    if "unknown field" in problem:
        return "unknown_field", f"{problem}; what is not a field of the event belongs into config"
    missing = re.search(r"missing required field `(\w+)`", problem)
    if missing:
        return missing[1], f"{missing[1]} is required"
    if not found:
        return "json", problem
    field = found[1]
    rule = problem.partition(" - at ")[0]
    for pattern, meaning in _PATTERNS.items():
        rule = rule.replace(f"matching regex {pattern!r}", meaning)
    if rule.startswith("Invalid enum value"):
        rule += f" (one of {', '.join(get_args(Status))})"
    return field, f"{field}: {rule[:1].lower()}{rule[1:]}, got {_shown(raw, field)}"


def _shown(raw: bytes, field: str) -> str:
    """The JSON of `field` in `raw`, shortened; the whole event where it cannot be told apart."""
    try:
        value = bytes(msgspec.json.decode(raw, type=dict[str, msgspec.Raw])[field])
    except (msgspec.DecodeError, RecursionError, KeyError):
        value = raw
    return value[:200].decode(errors="replace")

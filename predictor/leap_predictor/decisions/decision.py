"""A decision: what the predictor answered to one question, as a line of JSON that outlives the process."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal
from uuid import uuid4

import msgspec

from leap_predictor.explanation import Choice, Explanation, Reason
from leap_predictor.job import Job

MAX_DECISION_BYTES: Final = 1_000_000
"""Longest line: above what the most candidates with the longest names take, and below what a Kafka topic takes."""

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class InvalidDecision(ValueError):
    """What is no decision; the message names the value, the rule and the mend."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of the predictor.

    Fields that are added later have a default, and fields that a reader does not know are passed over, so that logs of
    other releases can be read.
    """

    decision_id: str
    """Tells decisions apart: 32 hexadecimal digits."""
    decided_at: Annotated[datetime, msgspec.Meta(tz=True)]
    """When the question came, aware; UTC once read from a log."""
    job_name: str
    attempt_id: str | None = None
    """Of the attempt that was asked about, where the launcher knew it."""
    job_family: str | None = None
    """None: it did not come to that."""
    model_type: str
    trainer_count: int
    candidates: tuple[str, ...] = ()
    """As asked."""
    choices: tuple[Choice, ...] = ()
    """Best first. What was answered or, with `control`, what would have been."""
    reason: str | None = None
    """Why the answer was empty (a value of `Reason`); None: it was not."""
    control: bool = False
    """The policy keeps the job as control group: the caller got nothing, whatever `choices` holds."""
    bundle_id: str | None = None
    history: Literal["live", "snapshot"] | None = None
    """Where the job's history was read; None: it was not."""
    took_ms: float
    """How long the answer took, in milliseconds."""


def decision_of(job: Job, answer: Explanation, decided_at: datetime, took_ms: float) -> Decision:
    """What is kept of an answer.

    Args:
        job: what was asked about.
        answer: what came of it.
        decided_at: aware time.
        took_ms: milliseconds.
    """
    return Decision(
        decision_id=uuid4().hex,
        decided_at=decided_at,
        job_name=job.job_name,
        attempt_id=job.attempt_id,
        job_family=answer.job_family,
        model_type=job.model_type,
        trainer_count=job.trainer_count,
        candidates=answer.asked,
        choices=answer.choices or answer.withheld,
        reason=None if answer.reason is None else answer.reason.value,
        control=answer.reason is Reason.CONTROL_GROUP,
        bundle_id=answer.bundle_id,
        history=answer.history,
        took_ms=took_ms,
    )


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Decision)


def encode(decision: Decision) -> bytes:
    """`decision` as JSON in one line, without the line's end. Halves of surrogate pairs in names become `�`.

    Raises:
        InvalidDecision: it cannot be written as JSON, or is too long.
    """
    try:
        try:
            line = _encoder.encode(decision)
        except UnicodeEncodeError:
            line = _encoder.encode(_legible(decision))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDecision(f"decision {decision.decision_id} cannot be written as JSON: {error}") from None
    if len(line) > MAX_DECISION_BYTES:
        raise InvalidDecision(
            f"decision {decision.decision_id} must have at most {MAX_DECISION_BYTES} bytes, got {len(line)}: "
            "ask about fewer candidates"
        )
    return line


def decode(line: bytes) -> Decision:
    """The decision in a line of a log, its time in UTC.

    Raises:
        InvalidDecision: the line is no decision.
    """
    try:
        decision = _decoder.decode(line)
        decided_at = decision.decided_at.astimezone(UTC)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        shown = line[:80].decode(errors="replace")
        raise InvalidDecision(f"a line of a decision log is one decision as JSON, got {shown!r}: {error}") from None
    return msgspec.structs.replace(decision, decided_at=decided_at)


def _legible(decision: Decision) -> Decision:
    """`decision` with � for what UTF-8 cannot hold. The names of choices are names of the catalogue, which it can."""

    def mend(text: str) -> str:
        return _LONE_SURROGATE.sub("\ufffd", text)

    return msgspec.structs.replace(
        decision,
        job_name=mend(decision.job_name),
        attempt_id=None if decision.attempt_id is None else mend(decision.attempt_id),
        job_family=None if decision.job_family is None else mend(decision.job_family),
        model_type=mend(decision.model_type),
        candidates=tuple(map(mend, decision.candidates)),
    )

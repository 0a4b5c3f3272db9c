"""Every rule under which a record becomes a dead letter: what it says, and how such a letter is mended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Rule(NamedTuple):
    """What a rule says, and what an operator does about a record that broke it."""

    says: str
    mend: str


UNKNOWN: Final = "unknown"
"""Stands for the rule of a record in the dead-letter topic that no worker wrote."""

_RETYPE: Final = 'replay through a transform, such as `{ type = "number" }` or a constant'
_ZONE: Final = 'replay through a transform that names the zone, `{ zone = "UTC" }`, or the format'
_SHORTEN: Final = 'replay through a transform that shortens it, `{ replace = "…", by = "…" }`'
_DROP: Final = "replay through a transform that drops or sets it"

RULES: Final[Mapping[str, Rule]] = {
    "empty": Rule("a record has a value", "nothing: such a record says nothing"),
    "json": Rule(
        "the value is one JSON object in UTF-8",
        "write it to a file (`leap dead-letter show POSITION --raw FILE`), mend it, and send it by "
        "`CompletionProducer.send_encoded(raw, replay=True)`",
    ),
    "size": Rule("an event has at most 64 KiB", "replay through a transform that drops what is large"),
    "unknown_field": Rule(
        "the event has no other fields",
        'replay through a transform that drops it, or renames it (`{ rename = "config.…" }` moves it into config)',
    ),
    "schema_version": Rule("it is 1", "replay through a transform that sets it, if the rest is of version 1"),
    "attempt_id": Rule("1 to 128 characters", _SHORTEN),
    "job_name": Rule("1 to 512 characters", _SHORTEN),
    "job_family": Rule("absent, or 1 to 512 characters, not blank", _DROP),
    "model_type": Rule("1 to 128 characters, no /", _SHORTEN),
    "hardware_type": Rule("1 to 128 characters", 'replay through a transform, `{ values = { "…" = "…" } }`'),
    "submitted_at": Rule("RFC 3339 with an offset", _ZONE),
    "started_at": Rule("RFC 3339 with an offset", _ZONE),
    "completed_at": Rule("RFC 3339 with an offset", _ZONE),
    "time_order": Rule(
        "submitted ≤ started ≤ completed, all in the years 1 to 9999",
        "find out which time is wrong; replay through a transform, if one mends all letters",
    ),
    "status": Rule(
        "succeeded, failed, cancelled or preempted",
        'replay through a transform, `{ values = { done = "succeeded" } }`',
    ),
    "throughput": Rule("a finite number, > 0 if succeeded", _RETYPE),
    "trainer_count": Rule("a whole number ≥ 1", _RETYPE),
    "reader_count": Rule("a whole number ≥ 0", _RETYPE),
    "batch_size": Rule("a number ≥ 0", _RETYPE),
    "device_hours": Rule("a number ≥ 0", _RETYPE),
    "eligible_hardware": Rule("an array of names of 1 to 128 characters", _DROP),
    "config": Rule("an object of numbers, strings and booleans", "replay through a transform that drops the wrong key"),
    "architecture": Rule("an object of numbers", "replay through a transform that drops or converts the wrong key"),
    "ranking": Rule("absent, or an object of at most 32 levels", _DROP),
    "from_the_future": Rule(
        "completed at most 5 minutes after the broker recorded it",
        "set the producer's clock; replay once the time has come, if the times are right",
    ),
    "too_late": Rule(
        "recorded within the horizon (LEAP_HORIZON_DAYS) after its completion",
        "replay as it is, if it is genuine: replayed records may be late, where the worker has the archive",
    ),
    "replay_without_archive": Rule(
        "a replayed record from before the horizon is counted only where the archive says that it was not before",
        "give worker and replay the archive (LEAP_ARCHIVE), then replay as it is",
    ),
    "conflicting_attempt": Rule(
        "an attempt and status is reported with one content",
        "if it is the same launch, nothing: the first report counts. If it is another, give it an attempt_id of its "
        'own: replay through a transform, `attempt_id = { replace = "$", by = "-2" }`',
    ),
    UNKNOWN: Rule(
        "a record of the dead-letter topic has the headers that tell where it came from",
        "no worker wrote it: look at it (`leap dead-letter show @PARTITION:OFFSET`); replay it if it is an event",
    ),
}
"""By the name that the header `leap-dead-letter-rule` has; those of a field are named like it."""

"""What the doctor says of one thing: how bad it is, what was found, which rule it breaks and what mends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["ok", "note", "warning", "error"]

SEVERITIES: Final[tuple[Severity, ...]] = ("ok", "note", "warning", "error")
"""From well to worst. A note needs nobody; a warning will do harm one day; an error does harm now."""

AREAS: Final = (
    "topic",
    "dead-letter",
    "producers",
    "history",
    "archive",
    "redis",
    "store",
    "versions",
    "registry",
    "settings",
    "clocks",
)
"""What a check's name begins with, in the order of the report. `history` and `archive` are the apps."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the report."""

    severity: Severity
    check: str
    """`area.name`; stable, for programs that read the report."""
    found: str
    """What was found, with its value."""
    rule: str = ""
    """What must hold; empty where it does."""
    mend: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding("ok", check, found)


def worst(findings: Iterable[Finding]) -> Severity:
    """The worst severity among `findings`."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")

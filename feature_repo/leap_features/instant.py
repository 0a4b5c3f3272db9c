"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click


class Instant(click.ParamType):
    """An RFC 3339 time with offset."""

    name = "rfc3339"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse `value`; a time without offset is refused."""
        if isinstance(value, datetime):
            return value
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"must be a time such as 2026-03-01T00:00:00Z, got {value!r}", param, ctx)
        if parsed.tzinfo is None:
            self.fail(f"must have an offset (Z for UTC), got {value!r}", param, ctx)
        try:
            return parsed.astimezone(UTC)
        except OverflowError:
            self.fail(f"must lie in the years 1 to 9999 in UTC, got {value!r}", param, ctx)

"""What stands in a cell of a table, or in a field of a record, as a number, a time, a boolean or text."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

UNIX_FORMATS: Final = {"unix": 1_000_000, "unix_ms": 1_000, "unix_us": 1}
"""Formats that count since 1970 (UTC), and the microseconds in their unit."""

ISO: Final = "iso"

NUMBERS: Final = frozenset({"throughput", "batch_size", "device_hours"})
COUNTS: Final = frozenset({"trainer_count", "reader_count"})
TIMES: Final = frozenset({"submitted_at", "started_at", "completed_at"})
"""Fields of the event by what they hold: numbers, whole numbers, times."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CellError(ValueError):
    """A cell that does not hold what it must; the message names value, rule and mend."""


def present(value: object) -> object:
    """`value`, or None if it is an empty cell: no value, no text, or not a number."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def text(value: object) -> str:
    """`value` as text, the way it is written in the table.

    Raises:
        CellError: it is a list or a map, or bytes that are no UTF-8.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CellError(f"must be text in UTF-8, got {value!r:.200}") from None
    if not isinstance(value, str | int | float | Decimal):
        raise CellError(f"must be a single value, got {value!r:.200}")
    return str(value)


def number(value: object, *, scale: float | None = None, whole: bool = False) -> float:
    """`value` as a finite number, times `scale`; a whole one as an int.

    Raises:
        CellError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise CellError(f"must be a number, got {value!r:.200}")
    try:
        result = float(value) if not isinstance(value, int) else value
        if scale is not None:
            result *= scale
        finite = math.isfinite(result)
    except ValueError:
        raise CellError(f"must be a number, got {value!r:.200}") from None
    except OverflowError:
        finite = False
    if not finite:
        raise CellError(f"must be finite, got {value!r:.200}")
    if not whole:
        return result
    if result != int(result):
        raise CellError(f"must be a whole number, got {value!r}")
    return int(result)


def boolean(value: object) -> bool:
    """`value` as a boolean: true or false, 1 or 0, yes or no.

    Raises:
        CellError: it is none.
    """
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = known.get(text(value).lower())
    if found is None:
        raise CellError(f"must be true or false, got {value!r}")
    return found


def time_parser(form: str, zone_name: str | None) -> Callable[[object], datetime]:
    """What reads a time in the format `form` (iso, unix, unix_ms, unix_us, or as for strptime) as UTC.

    Args:
        form: how it is written.
        zone_name: IANA name of the zone of a time that is written without an offset; None rejects such times.

    Raises:
        ValueError: there is no such format or zone.
    """
    if form != ISO and form not in UNIX_FORMATS:
        _check_pattern(form)
    try:
        zone = None if zone_name is None else ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"zone must be an IANA name such as Europe/Berlin or UTC, got {zone_name!r}") from None

    def parse(value: object) -> datetime:
        if isinstance(value, datetime):
            return _in_utc(value, zone)
        if unit := UNIX_FORMATS.get(form):
            return _since_1970(number(value) * unit)
        written = text(value)
        try:
            # The zone is looked at below; here the time may still lack one.
            parsed = datetime.fromisoformat(written) if form == ISO else datetime.strptime(written, form)  # noqa: DTZ007
        except ValueError:
            raise CellError(
                f"must be a time in the format {form!r}, got {written!r}: say by format how it is written"
            ) from None
        return _in_utc(parsed, zone)

    return parse


def _check_pattern(form: str) -> None:
    known = f"{ISO}, {', '.join(UNIX_FORMATS)} or a pattern of strptime such as %Y-%m-%d %H:%M:%S"
    try:
        datetime.strptime(datetime(2000, 1, 1, tzinfo=UTC).strftime(form), form)  # noqa: DTZ007  # it is only tried
    except ValueError as error:
        raise ValueError(f"format must be {known}, got {form!r} ({error})") from None
    if "%" not in form:
        raise ValueError(f"format must be {known}, got {form!r}")


def _since_1970(microseconds: float) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=round(microseconds))
    except OverflowError:
        raise CellError(f"lies outside the years 1 to 9999: {microseconds} µs after 1970; check its format") from None


def _in_utc(given: datetime, zone: ZoneInfo | None) -> datetime:
    if given.tzinfo is None and zone is None:
        raise CellError(f"has no offset: {given.isoformat()!r}; say by zone which zone it is in")
    try:
        moment = (given if given.tzinfo is not None else given.replace(tzinfo=zone)).astimezone(UTC)
        if given.tzinfo is None and moment.astimezone(zone).replace(tzinfo=None) != given:
            raise CellError(f"does not exist in {zone}: clocks were put forward over {given.isoformat()!r}")
    except OverflowError:
        raise CellError(f"lies outside the years 1 to 9999 in UTC: {given.isoformat()!r}") from None
    return moment

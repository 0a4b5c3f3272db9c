"""Numbers as people read them: dollars, shares, amounts and counts, with their units."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

# Keeps a number and its unit on one line.
SPACE: Final = "\u00a0"


def money(usd: float) -> str:
    """US dollars in full: `$12,345`, and with cents below 100 dollars."""
    return _signed(usd, f"{abs(usd):,.2f}" if abs(usd) < 99.995 and usd else f"{abs(usd):,.0f}")


def short_money(usd: float) -> str:
    """US dollars to three digits: `$12.3k`, `$4.56M`."""
    size = abs(usd)
    for limit, divisor, unit in ((999.5e6, 1e9, "B"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k")):
        if size >= limit:
            return _signed(usd, f"{_three_digits(size / divisor)}{unit}")
    return _signed(usd, _three_digits(size))


def round_money(usd: float) -> str:
    """As `short_money`, without zeros at the end: `$1.5M`, for the marks of a scale."""
    return re.sub(r"\.?0+(?=[kMB]?$)", "", text) if "." in (text := short_money(usd)) else text


def short(number: float) -> str:
    """Any number to three digits, without zeros at the end: `0.05`, `12.3k`, `1.5M`."""
    size = abs(number)
    text = round_money(size).removeprefix("$") if size >= 0.9995 or not size else f"{size:.3g}"
    return f"−{text}" if number < 0 else text


def percent(share: float, digits: int = 1) -> str:
    """A share of 0 to 1 as `12.3 %`."""
    return f"{_percent(share, digits)}{SPACE}%"


def interval(low: float, high: float, digits: int = 1) -> str:
    """An interval of shares as `10.1–14.5 %`."""
    return f"{_percent(low, digits)}–{_percent(high, digits)}{SPACE}%"


def count(number: int, what: str = "") -> str:
    """`12,345`, or with `what` there is, in the singular, `12,345 jobs`."""
    return f"{number:,}" if not what else f"{number:,} {what}{'' if number == 1 else 's'}"


def day(instant: datetime) -> str:
    """The day of `instant`, in its own zone."""
    return f"{instant.day} {instant:%B %Y}"


def _percent(share: float, digits: int) -> str:
    return f"{round(100 * share, digits) + 0.0:.{digits}f}"  # + 0.0: no minus before a zero


def _three_digits(size: float) -> str:
    if size >= 99.95 or size == 0:
        return f"{size:.0f}"
    return f"{size:.1f}" if size >= 9.995 else f"{size:.2f}"


def _signed(usd: float, digits: str) -> str:
    return f"−${digits}" if usd < 0 else f"${digits}"

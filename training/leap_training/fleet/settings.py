"""What a synthetic fleet is asked to be."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

FULL_SIZE: Final = 750_000
"""Attempts of the paper's thirty days, at which its figures are met."""

FULL_MODEL_TYPES: Final = 660
MAX_ATTEMPTS: Final = 100_000_000


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Size and seed of a fleet. Equal settings give equal fleets, byte for byte, with one release of this package.

    Attributes:
        days: days in which attempts are submitted.
        attempts_per_day: their mean number; weekends have fewer.
        hardware: number of hardware types, taken from the catalogue.
        seed: the world and everything that happens in it.
        new_hardware_days: the newest type appears on the first of these days, the next newest on the second, and so
            on; days count from 0. All other types are there from the start.
        model_types: their number; None takes the paper's 660, and fewer where there are fewer attempts.
        start: midnight at which day 0 begins.
    """

    days: int = 31
    attempts_per_day: int = 25_000
    hardware: int = 22
    seed: int = 7
    new_hardware_days: tuple[int, ...] = ()
    model_types: int | None = None
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def attempts(self) -> int:
        """Attempts in all."""
        return self.days * self.attempts_per_day

    @property
    def model_type_count(self) -> int:
        """Number of model types: the paper's at full size, and in a smaller fleet with the root of its attempts."""
        if self.model_types is not None:
            return self.model_types
        return max(8, round(FULL_MODEL_TYPES * math.sqrt(min(1.0, self.attempts / FULL_SIZE))))

    def checked(self) -> FleetSettings:
        """These settings with their start in UTC, once they are known to make a fleet.

        Raises:
            ValueError: one of them breaks a rule; names value, rule and mend.
        """
        _at_least("days", self.days, 1)
        _at_least("attempts_per_day", self.attempts_per_day, 1)
        _at_least("hardware", self.hardware, 2)
        _at_least("seed", self.seed, 0)
        if self.attempts > MAX_ATTEMPTS:
            raise ValueError(
                f"days × attempts_per_day may be {MAX_ATTEMPTS:,} at most, got {self.attempts:,}: ask for fewer"
            )
        if self.model_types is not None:
            _at_least("model_types", self.model_types, 2)
        wrong = [day for day in self.new_hardware_days if not 0 < day < self.days]
        if wrong:
            raise ValueError(
                f"new_hardware_days must lie within the days 1 to {self.days - 1}, got {wrong[0]}: "
                "name a day on which the fleet runs"
            )
        if len(self.new_hardware_days) > self.hardware - 2:
            raise ValueError(
                f"at least two types must be there from the start, got {len(self.new_hardware_days)} new ones of "
                f"{self.hardware}: ask for more hardware or fewer new types"
            )
        if self.start.tzinfo is None:
            raise ValueError(f"start must have an offset, got {self.start.isoformat()}: write {self.start.date()}Z")
        if self.start.astimezone(UTC).time() != datetime.min.time():
            raise ValueError(f"start must be midnight UTC, got {self.start.isoformat()}: leave out its time")
        try:
            self.start + timedelta(days=self.days + 30)
        except OverflowError:
            raise ValueError(
                f"the fleet must end before the year 9999, got start {self.start}: begin earlier"
            ) from None
        return msgspec.structs.replace(self, start=self.start.astimezone(UTC))


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}: ask for more")

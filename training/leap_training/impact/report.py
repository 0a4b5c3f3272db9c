"""What rankings changed: figures only, as plain data for the table, the Parquet file and the page."""

from __future__ import annotations

from datetime import date, datetime

import msgspec


class Interval(msgspec.Struct, frozen=True):
    """A share with the interval it lies in (95 % by default)."""

    value: float
    low: float
    high: float


class Group(msgspec.Struct, frozen=True):
    """Some of the eligible attempts."""

    attempts: int
    device_hours: float
    top_attempts: int
    """Of those, the ones that ran on the first choice; in the control group on what would have been it."""
    top_device_hours: float


class ImpactLine(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts that had a choice of hardware: of a model type, of a day, or all of them."""

    model_type: str | None = None
    """None: all of them."""
    day: date | None = None
    """Of submission, UTC; None: all of them."""
    attempts: int
    """Eligible ones."""
    device_hours: float
    ranked: Group
    """Got a ranking."""
    control: Group
    """Would have got one, had the policy not kept them as control group."""
    ranked_cost_usd: float
    """Of ranked attempts whose hardware has a price."""
    saving: Interval | None
    """Measured against the control group: 1 − cost per sample of ranked attempts ÷ of those of the control group."""
    compared_cost_usd: float
    """The part of `ranked_cost_usd` that the saving speaks of: of model types with enough families in both groups."""
    predicted_left: Interval | None
    """Predicted, not measured: what the first choice would have saved of the cost of ranked attempts, more than what
    they ran on did."""
    predicted_kept: Interval | None
    """Predicted, not measured: what attempts that ran on their first choice saved against the second, as a share of
    the cost of ranked attempts."""
    note: str
    """Empty, or why there is no saving."""

    @property
    def saved_usd(self) -> tuple[float, float, float] | None:
        """The saving in money, with its interval; of the compared cost, which is what was left to pay."""
        if self.saving is None:
            return None
        value, low, high = (
            self.compared_cost_usd * share / (1 - share)
            for share in (self.saving.value, self.saving.low, self.saving.high)
        )
        return value, low, high

    @property
    def ranked_share(self) -> float:
        """Of eligible device-hours; 0 where there are none."""
        return share_of(self.ranked.device_hours, self.device_hours)


class Unranked(msgspec.Struct, frozen=True):
    """Eligible attempts that got no ranking for one reason, but for the control group."""

    reason: str
    """A value of the predictor's `Reason`, or `no_decision`: no decision belongs to the attempt."""
    attempts: int
    device_hours: float


class ImpactReport(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one look at rankings and what came of them."""

    source: str
    """Where the attempts came from, as the user named it."""
    begin: datetime
    """First submission of an attempt, UTC."""
    end: datetime
    """Last one."""
    confidence: float
    window_hours: float
    """A decision that names no attempt counts for attempts submitted at most so long after it."""
    decisions: int
    total: ImpactLine
    by_model: list[ImpactLine]
    by_day: list[ImpactLine]
    unranked: list[Unranked]
    notes: list[str]
    """What was left out or assumed, with counts."""


def share_of(part: float, whole: float) -> float:
    """`part` of `whole`; 0 of nothing."""
    return part / whole if whole else 0.0

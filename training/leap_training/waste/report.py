"""What a measurement of waste found: figures only, as plain data for the table, the Parquet file and the page."""

from collections.abc import Iterable
from datetime import datetime

import msgspec


class Share(msgspec.Struct, frozen=True):
    """A share of something, 0 to 1, with the interval it lies in (90 % by default)."""

    value: float
    low: float
    high: float


class WasteLine(msgspec.Struct, frozen=True, kw_only=True):
    """The waste among some of the jobs: of a model type, of a hardware type, of both, or of all of them."""

    model_type: str | None
    """None: all of them."""
    hardware_type: str | None
    """None: all of them."""
    jobs: int
    """Succeeded attempts with a throughput and a price."""
    cost_usd: float
    """What those attempts cost: US dollars, or weights where the runs say no times (a note then says so)."""
    compared_jobs: int
    """Of those, the ones of which something can be said: similar jobs were measured on another eligible hardware type,
    or no other was eligible."""
    compared_cost_usd: float
    waste: Share | None
    """Share of the compared cost that the best eligible hardware would have saved."""
    misplaced: Share | None
    """Share of the compared cost spent on hardware whose value was below the best by more than the report's margin."""
    note: str
    """Empty, or why there is no figure."""

    @property
    def wasted_usd(self) -> float:
        """What the best eligible hardware would have saved of the compared cost; 0 without a figure."""
        return 0.0 if self.waste is None else max(0.0, self.waste.value) * self.compared_cost_usd


class BestValue(msgspec.Struct, frozen=True, kw_only=True):
    """For what share of a model type's jobs a hardware type gave most value; jobs without a choice are left out."""

    model_type: str
    hardware_type: str
    jobs: int
    """Jobs of the model type for which the hardware type could be compared with others."""
    share: Share


class WasteReport(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one measurement of waste."""

    source: str
    """Where the runs came from, as the user named it."""
    begin: datetime
    """First completion, UTC."""
    end: datetime
    """Last completion, UTC."""
    confidence: float
    """What share of such intervals hold the true value: 0.9 by default."""
    margin: float
    """How far below the best value a job's hardware must lie for the job to count as misplaced: 0.05 by default."""
    total: WasteLine
    by_model: list[WasteLine]
    by_hardware: list[WasteLine]
    by_model_hardware: list[WasteLine]
    best: list[BestValue]
    notes: list[str]
    """Assumptions made and what was left out, with counts."""
    weights: bool = False
    """No run says its device hours: amounts are weights of the jobs, not what anybody paid."""


def by_waste(lines: Iterable[WasteLine]) -> list[WasteLine]:
    """Lines by wasted cost, most first; those without a figure last, by cost."""
    return sorted(lines, key=lambda line: (line.waste is None, -line.wasted_usd, -line.cost_usd, line.model_type or ""))

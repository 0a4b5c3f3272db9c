"""Scales: where a value lies along a chart, and the round marks beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self


class Scale:
    """From the least to the greatest of `values`, laid over the whole width; with 0 on it unless `zero` is false."""

    def __init__(self, values: Iterable[float], *, zero: bool = True) -> None:
        held = [*values]
        if zero or not held:
            held.append(0.0)
        self.low, self.high = min(held), max(held)
        if self.high - self.low < 1e-300:  # nothing to draw, and too little for a logarithm
            self.high = self.low + 1.0

    def at(self, value: float) -> str:
        """The place of `value` in per cent of the width."""
        return self.wide(value - self.low)

    def along(self, value: float) -> float:
        """The place of `value`, 0 at the begin to 1 at the end."""
        return (value - self.low) / (self.high - self.low)

    def wide(self, size: float) -> str:
        """How much of the width `size` takes, in per cent."""
        return f"{100 * size / (self.high - self.low):.3f}%"

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers on the scale, 1, 2 or 5 times a power of ten apart."""
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """An edge of a plane: what it goes from and to, and the marks on it, each with its text."""

    low: float
    high: float
    marks: tuple[tuple[float, str], ...]
    title: str = ""
    """What is measured along it, with its unit."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"an axis must go from a finite number to a greater one, got {self.low} to {self.high}")

    @classmethod
    def linear(cls, low: float, high: float, unit: Callable[[float], str], title: str = "") -> Self:
        """From `low` to `high` with round marks, which `unit` writes."""
        return cls(low, high, tuple((tick, unit(tick)) for tick in Scale([low, high], zero=False).ticks()), title)

    @classmethod
    def decades(cls, low: int, high: int, unit: Callable[[float], str], title: str = "") -> Self:
        """Logarithms to base 10, marked at powers of ten: at each, or at every second where there are many."""
        step = 1 if high - low <= 7 else 2
        powers = range(low, high + 1, step)
        return cls(low, high, tuple((float(power), unit(10.0**power)) for power in powers), title)

    @classmethod
    def names(cls, names: Sequence[str], most: int, title: str = "") -> Self:
        """Places 0, 1, 2, … with a name each, of which `most` are written at most."""
        step = max(1, math.ceil(len(names) / most))
        room = 0.04 * max(1, len(names) - 1)
        marks = tuple((float(place), names[place]) for place in range(0, len(names), step))
        return cls(-room, max(0, len(names) - 1) + room, marks, title)

    def along(self, value: float) -> float:
        """The place of `value`, 0 at the begin to 1 at the end."""
        return (value - self.low) / (self.high - self.low)

"""Order of pairs: whether the better of two hardware types, run under equal conditions, is put first.

A pair is a family, trainers, batch size and two hardware types of one window. The model is asked about both at the
pair's first submission in the window, so before it saw either run. Better is the higher median of the measured
throughputs; where these differ by less than 5 % either order is as good, and the pair is left out. A model that says
the same of both is right half the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_training.training_set import TrainingSet

LEAST_DIFFERENCE: Final = float(np.log(1.05))


class PairFigures(msgspec.Struct, frozen=True):
    """How many pairs there are, and the percent that is in the right order; a pair without both answers is not."""

    pairs: int
    right: float | None
    """None: there are no pairs."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Two questions per pair: the better candidate and the other one."""

    row: NDArray[np.int64]
    """Per pair the scored row at whose submission both are asked about."""
    better: NDArray[Any]
    other: NDArray[Any]

    def __len__(self) -> int:
        return len(self.row)


def pairs_of(scored: TrainingSet) -> Pairs:
    """The pairs among the rows of one window, whose labels are looked at here and nowhere shown to a model."""
    frame = pd.DataFrame(
        {name: scored.columns[name] for name in ("job_family", "trainer_count", "batch_size", "hardware_type")}
    )
    frame["log"] = scored.log_throughput
    frame["at"] = scored.submitted_at_us
    frame["row"] = np.arange(len(scored))
    conditions = ["job_family", "trainer_count", "batch_size"]
    frame = frame[frame.groupby(conditions)["hardware_type"].transform("nunique") > 1].sort_values(["at", "row"])
    by_type = frame.groupby([*conditions, "hardware_type"]).agg(log=("log", "median"), row=("row", "first"))
    rows: list[int] = []
    better: list[str] = []
    other: list[str] = []
    first = frame.groupby(conditions)["row"].first().to_dict()
    for condition, group in by_type.groupby(level=conditions):
        measured = list(zip(group.index.get_level_values("hardware_type"), group["log"], strict=True))
        for (one, of_one), (two, of_two) in combinations(measured, 2):
            if abs(of_one - of_two) >= LEAST_DIFFERENCE:
                rows.append(first[condition])
                better.append(one if of_one > of_two else two)
                other.append(two if of_one > of_two else one)
    return Pairs(np.array(rows, dtype=np.int64), np.array(better, dtype=object), np.array(other, dtype=object))


def pair_figures(of_better: NDArray[np.float64], of_other: NDArray[np.float64]) -> PairFigures:
    """Figures of what a model said of the better and of the other candidate of each pair (NaN: nothing)."""
    if not len(of_better):
        return PairFigures(0, None)
    right = (of_better > of_other) + 0.5 * (of_better == of_other)
    return PairFigures(len(of_better), 100.0 * float(right.mean()))

"""Hold-outs: what a hardware type, or a family, costs that was never seen, against as many random rows left out.

Left out means: as if these runs had never been. They are not trained on, and the history of every other row is
recomputed without them. The scored rows of the type or family are asked about twice: with history frozen at the cut,
where nothing is known of it, as in the paper; and live, where its own first runs in the window are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.bootstrap import SEED
from leap_training.judge.figures import relative_error
from leap_training.judge.modes import Mode, as_asked, known_before
from leap_training.judge.windows import Window
from leap_training.model import NotRun, Recipe
from leap_training.training_set import TrainingSet

Kind = Literal["hardware_type", "job_family"]
KINDS: Final[tuple[Kind, ...]] = ("hardware_type", "job_family")
HISTORIES: Final[tuple[Mode, ...]] = ("live", "frozen")
VALUES: Final = 2
"""Of each kind: those with the most scored rows."""


class Holdout(msgspec.Struct, frozen=True):
    """One thing held out of one model's training. Shares within ±20 % are in percent, on its scored rows alone."""

    window: str
    model: str
    kind: Kind
    value: str
    history: Mode
    removed_rows: int
    scored_rows: int
    full: float
    """Trained on everything."""
    without: float
    random: float
    """Trained without as many random rows."""
    points: float
    """without − full."""
    points_random: float
    """random − full."""


def hold_outs(
    rows: TrainingSet,
    window: Window,
    recipes: Mapping[str, Recipe],
    catalogue: Catalogue,
    *,
    values: int = VALUES,
    seed: int = SEED,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Holdout]:
    """Hold out the `values` hardware types and families with the most scored rows, one by one.

    A model that cannot be fitted here is left out.
    """
    random = np.random.default_rng(seed)
    cases = []
    for kind in KINDS:
        for value in most_scored(rows, window, kind)[:values]:
            held = rows.columns[kind] == value
            removed = np.flatnonzero(held[window.train])
            drawn = window.train[random.choice(len(window.train), len(removed), replace=False)]
            others = np.zeros(len(rows), dtype=np.bool_)
            others[drawn] = True
            cases.append((kind, value, held, others))
    result = []
    for name, recipe in recipes.items():
        try:
            whole = _answers(rows, window, np.zeros(len(rows), dtype=np.bool_), recipe, catalogue)
            for kind, value, held, others in cases:
                say(f"{window.name}: {name} without {kind} {value}")
                without = _answers(rows, window, held, recipe, catalogue)
                as_many = _answers(rows, window, others, recipe, catalogue)
                chosen = held[window.scored]
                for history in HISTORIES:
                    full, left, fewer = (_near(each[history][chosen]) for each in (whole, without, as_many))
                    result.append(
                        Holdout(
                            window.name,
                            name,
                            kind,
                            value,
                            history,
                            int(held[window.train].sum()),
                            int(chosen.sum()),
                            full,
                            left,
                            fewer,
                            left - full,
                            fewer - full,
                        )
                    )
        except NotRun as error:
            say(f"{window.name}: {name} is not run: {error}")
    return result


def most_scored(rows: TrainingSet, window: Window, kind: Kind) -> list[str]:
    """The values of a column with the most scored rows, of those that training has and does not consist of."""
    trained = pd.Series(rows.columns[kind][window.train]).value_counts()
    scored = pd.Series(rows.columns[kind][window.scored]).value_counts().sort_index().sort_values(kind="stable")
    return [str(value) for value in scored.index[::-1] if value in trained.index and trained[value] < len(window.train)]


def _answers(
    rows: TrainingSet, window: Window, removed: NDArray[Any], recipe: Recipe, catalogue: Catalogue
) -> dict[Mode, NDArray[np.float64]]:
    """Relative errors of the scored rows, by history, where the `removed` runs before the cut had never been."""
    there = ~(removed & (rows.recorded_at_us < window.cut_us))
    runs = RecordedRuns(rows.where(there))
    train = rows.where(window.train[there[window.train]])
    fitted = recipe.fit(runs.as_known(train, train.submitted_at_us), catalogue)
    scored = rows.where(window.scored)
    result: dict[Mode, NDArray[np.float64]] = {}
    for history in HISTORIES:
        # A live row knows what was recorded at the very instant of its submission, like the join.
        at = known_before(history, scored, window.cut_us) - (history != "live")
        shown = as_asked(runs.as_known(scored, at))
        result[history] = relative_error(fitted.predict(shown).log_throughput, scored.log_throughput)
    return result


def _near(error: NDArray[np.float64]) -> float:
    return 100.0 * float((error <= 0.2).mean())

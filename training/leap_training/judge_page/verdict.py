"""The judge's figures as `judged.json` holds them: plain data, read strictly where the page depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

History = Literal["live", "nightly", "frozen"]
HISTORIES: Final[tuple[History, ...]] = ("live", "nightly", "frozen")

MEND: Final = "`leap evaluate --out` writes it whole"


class JudgedError(ValueError):
    """The judge's directory is not one; the message names the file, the rule and what to do."""


class Figures(msgspec.Struct, frozen=True):
    """How near some predictions came. Shares and errors are in percent; None: there is no such figure."""

    rows: int
    unanswered: int = 0
    """Rows without a prediction; they count as wrong."""
    within10: float | None = None
    within20: float | None = None
    median_error: float | None = None
    within20_device_hours: float | None = None
    """As `within20`, each row weighing as many device-hours as it took."""
    within20_low: float | None = None
    within20_high: float | None = None
    """95 % bootstrap interval of `within20`."""


Slices = Mapping[str, Figures]


class Window(msgspec.Struct, frozen=True):
    """A stretch of time that was scored, after a fit on what was known before it."""

    name: str
    cut: str | int | None = None
    train_rows: int | None = None
    scored_rows: int | None = None


class JudgedModel(msgspec.Struct, frozen=True):
    """One model under each kind of history, or why it was not run."""

    live: dict[str, Figures] | None = None
    nightly: dict[str, Figures] | None = None
    frozen: dict[str, Figures] | None = None
    fit_seconds: float | None = None
    not_run: str | None = None

    def under(self, history: History) -> Slices:
        """Its figures by slice; empty where it was not judged so."""
        return getattr(self, history) or {}


class Importance(msgspec.Struct, frozen=True):
    """How many points of accuracy are lost when the values of a feature change places among the rows."""

    feature: str | None
    """None: those of the whole group together."""
    group: str
    points: float


class Difference(msgspec.Struct, frozen=True):
    """By how many points one model is ahead of another on the same rows, and the paired 95 % bootstrap interval."""

    points: float
    low: float | None = None
    high: float | None = None


class Covered(msgspec.Struct, frozen=True):
    """How many of a level's rows lie in their intervals ("all": of every row, "none": without history). Percent."""

    level: str
    rows: int
    covered: float | None = None
    median_half_width: float | None = None


class Pairs(msgspec.Struct, frozen=True):
    """How often the better of two hardware types was put first. Percent."""

    pairs: int
    right: float | None = None


class Regret(msgspec.Struct, frozen=True):
    """What a fleet loses by following a model's top pick, held against the truth. Percent."""

    jobs: int
    lost: float | None = None
    """Mean share of the best value for money that the picks forgo."""
    lost_by_cost: float | None = None
    """The same, each job weighing what it cost."""
    best: float | None = None
    """Jobs whose pick is as good as the best."""


class OverWindows(msgspec.Struct, frozen=True):
    """A share within ±20 % over the windows that have rows of the slice. Percent."""

    windows: int
    median: float
    low: float
    high: float


class Holdout(msgspec.Struct, frozen=True):
    """What one model reaches on a hardware type or a family that it was not trained on. Percent."""

    window: str
    model: str
    kind: str
    """`hardware_type` or `job_family`."""
    value: str
    history: str
    removed_rows: int
    scored_rows: int
    full: float
    """Trained on everything."""
    without: float
    random: float
    """Trained without as many random rows."""


class Ablation(msgspec.Struct, frozen=True):
    """What a model reaches without one of its parts, in the windows that were studied."""

    of: str
    windows: list[str]
    figures: dict[str, Figures]
    points: dict[str, Difference]
    """Itself minus the whole model, by slice."""


class Verdict(msgspec.Struct, frozen=True):
    """What the judge found."""

    default: str
    models: dict[str, JudgedModel]
    by: str = "window"
    windows: list[Window] = []
    noise_floor: dict[str, Figures] | None = None
    over_windows: dict[str, dict[str, OverWindows]] | None = None
    holdouts: list[Holdout] | None = None
    ablations: dict[str, Ablation] | None = None
    importance: list[Importance] | None = None
    pairs: dict[str, Pairs] | None = None
    regret: dict[str, Regret] | None = None
    against_table: dict[str, Figures] | None = None
    differences: dict[str, dict[str, Difference]] | None = None
    intervals: dict[str, list[Covered]] | None = None

    @property
    def history(self) -> History | None:
        """The history that figures are shown for: live if the default was judged so, else nightly, else frozen."""
        return next((history for history in HISTORIES if self.models[self.default].under(history)), None)


def read_verdict(file: Path) -> Verdict:
    """The judge's figures from `judged.json`.

    Raises:
        JudgedError: the file is not there or holds something else.
    """
    try:
        verdict = msgspec.json.decode(file.read_bytes(), type=Verdict)
    except OSError as error:
        raise JudgedError(f"{file} cannot be read: {error.strerror}; {MEND}") from None
    except msgspec.ValidationError as error:
        raise JudgedError(f"{file} does not hold what the judge writes: {error}; {MEND}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JudgedError(f"{file} must be one JSON object, and is broken: {error}; {MEND}") from None
    if verdict.default not in verdict.models:
        raise JudgedError(
            f"{file} names the default model {verdict.default!r}, which must be one of its models "
            f"({', '.join(verdict.models)}): have it among --models of `leap evaluate`"
        )
    return verdict

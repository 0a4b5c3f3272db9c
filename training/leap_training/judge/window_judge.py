"""Judges models in one window: fits each on the training rows, asks each about the same scored rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.judge import leaks
from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.modes import MODES, Mode, as_asked, known_before, with_history
from leap_training.judge.slices import Flags, flags
from leap_training.judge.windows import Window
from leap_training.model import FittedModel, NotRun, Predictions, Recipe
from leap_training.training_set import TrainingSet

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class WindowResult:
    """What the models said of the rows of one window. Every array of an answer has one entry per scored row."""

    window: Window
    scored: TrainingSet
    """With labels and live history."""
    flags: Flags
    answers: dict[tuple[str, Mode], Predictions] = field(default_factory=dict)
    asked: dict[tuple[str, str], NDArray[np.float64]] = field(default_factory=dict)
    """By model and name of a further question: log throughput of its rows."""
    fit_seconds: dict[str, float] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    """Why a model could not be fitted here."""
    fitted: dict[str, FittedModel] = field(default_factory=dict)
    """The models that were to be kept."""


def judge_window(
    rows: TrainingSet,
    window: Window,
    runs: RecordedRuns,
    recipes: Mapping[str, Recipe],
    catalogue: Catalogue,
    modes: Sequence[Mode],
    *,
    questions: Mapping[str, TrainingSet] | None = None,
    keep: Collection[str] = (),
    say: Say = lambda _line: None,
) -> WindowResult:
    """Fit every recipe on the window's training rows and ask it about the scored ones.

    Args:
        rows: the data set.
        window: what to train on and to score.
        runs: every run of the data set.
        recipes: by name.
        catalogue: finds the specifications of hardware.
        modes: which histories the scored rows are given with.
        questions: further rows to ask about, by name.
        keep: names of the models to keep as fitted.
        say: is told what is done.

    Raises:
        Leak: the training rows know labels of after the cut.
    """
    train, scored = rows.where(window.train), rows.where(window.scored)
    leaks.check_labels(train, scored, window.cut_us)
    result = WindowResult(window, scored, flags(train, scored))
    by_mode = {mode: as_asked(with_history(mode, scored, runs, window.cut_us)) for mode in MODES if mode in modes}
    for shown in (*by_mode.values(), *(questions or {}).values()):
        leaks.check_hidden(shown)
    same = _frozen_is_nightly(scored, window.cut_us)
    for name, recipe in recipes.items():
        began = time.monotonic()
        try:
            fitted = recipe.fit(train, catalogue)
        except NotRun as error:
            result.not_run[name] = str(error)
            say(f"{window.name}: {name} is not run: {error}")
            continue
        fit_seconds = time.monotonic() - began
        for mode, shown in by_mode.items():
            if mode == "frozen" and same and (name, "nightly") in result.answers:
                result.answers[name, mode] = result.answers[name, "nightly"]
            else:
                result.answers[name, mode] = _checked(fitted.predict(shown), shown, name)
        for question, shown in (questions or {}).items():
            result.asked[name, question] = _checked(fitted.predict(shown), shown, name).log_throughput
        result.fit_seconds[name] = fit_seconds
        if name in keep:
            result.fitted[name] = fitted
        seconds = time.monotonic() - began
        say(
            f"{window.name}: {name} fitted on {len(train):,} in {fit_seconds:.1f} s, "
            f"asked in {seconds - fit_seconds:.1f} s"
        )
    return result


def _frozen_is_nightly(scored: TrainingSet, cut_us: int) -> bool:
    """Whether both histories are the same: a single day refreshed at its midnight is frozen there."""
    return bool((known_before("nightly", scored, cut_us) == known_before("frozen", scored, cut_us)).all())


def _checked(predictions: Predictions, rows: TrainingSet, name: str) -> Predictions:
    if len(predictions.log_throughput) != len(rows):
        raise ValueError(
            f"model {name!r} must give one prediction per row, got {len(predictions.log_throughput)} for {len(rows)}"
        )
    return predictions

"""Windows: what a model is fitted on and what it is scored on, forward in time only.

A window has a cut. Fitted is what was recorded before the cut, scored what was submitted at or after it, so attempts
that were under way at the cut are in neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.events import from_us
from leap_features.history import MICROSECONDS_PER_DAY
from leap_training.training_set import TrainingSet

NIGHTS: Final = 30
TRAIN_DAYS: Final = 30
MAX_TRAIN_DAYS: Final = 100_000
"""Longer than there have been computers: more is a slip."""
MAX_NAMED: Final = 10
"""Of windows in a message."""
MIN_EARLIER: Final = 2
"""By a key, the first two windows are fitted on and not scored: before them there is too little to learn from."""


class WindowError(ValueError):
    """The data set has no such windows; the message says what it has."""


@dataclass(frozen=True, eq=False)
class Window:
    """One cut. Indices are those of the data set's rows."""

    name: str
    cut_us: int
    """Microseconds since 1970 UTC."""
    train: NDArray[np.int64]
    scored: NDArray[np.int64]


def by_day(rows: TrainingSet, *, windows: int | None = None, train_days: float | None = None) -> list[Window]:
    """Rolling days, UTC: train on the `train_days` (30) before a midnight, score the day that follows it.

    Args:
        rows: the data set.
        windows: how many days, the last ones that can be scored (30).
        train_days: length of the training window.

    Raises:
        WindowError: no day can be scored.
    """
    submitted = rows.submitted_at_us // MICROSECONDS_PER_DAY
    length = _microseconds(TRAIN_DAYS if train_days is None else train_days)
    found: list[Window] = []
    for day in np.unique(submitted)[::-1].tolist():
        if len(found) == (NIGHTS if windows is None else windows):
            break
        cut = day * MICROSECONDS_PER_DAY
        train = _recorded(rows, cut - length, cut)
        if len(train):
            found.append(Window(from_us(cut).date().isoformat(), cut, train, np.flatnonzero(submitted == day)))
    if not found:
        raise WindowError("no day has attempts recorded before it to train on: give more days of runs")
    return found[::-1]


def by_key(
    rows: TrainingSet,
    key: str,
    *,
    windows: int | None = None,
    first: str | None = None,
    min_earlier: int = MIN_EARLIER,
    train_days: float | None = None,
) -> list[Window]:
    """Windows by a key of the jobs' configuration, in the order of their first submission.

    Each is scored after training on everything recorded before its own first submission, whichever window that is of.

    Args:
        rows: the data set; rows without the key are trained on and not scored.
        key: of the configuration.
        windows: score only so many, the last ones.
        first: name of the first window to score; None: all that have `min_earlier` windows before them.
        min_earlier: see `first`.
        train_days: train only on so many days before the cut; None: on all.

    Raises:
        WindowError: there are no such windows.
    """
    values, names = _named(rows, key)
    first_at = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first_at, values[values >= 0], rows.submitted_at_us[values >= 0])
    begins = dict(zip(names, first_at.tolist(), strict=True))
    ordered = sorted(names, key=lambda name: (begins[name], name))
    if first is not None:
        if first not in begins:
            raise WindowError(f"no window is called {first!r}; there are {_some(ordered)}")
        chosen = ordered[ordered.index(first) :]
    else:
        chosen = ordered[min_earlier:]
    if windows is not None:
        chosen = chosen[-windows:]
    length = None if train_days is None else _microseconds(train_days)
    found = []
    for name in chosen:
        cut = begins[name]
        train = _recorded(rows, None if length is None else cut - length, cut)
        if len(train):
            found.append(Window(name, cut, train, np.flatnonzero(values == names.index(name))))
    if not chosen:
        raise WindowError(
            f"by {key!r} there are {len(ordered)} windows ({_some(ordered)}), of which none is left to score "
            f"after {min_earlier} to train on: lower --min-train, or name the first with --from-window"
        )
    if not found:
        raise WindowError(
            f"by {key!r} no attempt to train on was recorded before any of the windows {_some(chosen)} began"
            f"{'' if length is None else ', within --train-days'}: judge by a key whose values follow one another, or "
            "by day"
        )
    return found


def without_key(rows: TrainingSet, key: str) -> TrainingSet:
    """`rows` whose configurations lack `key`, as models are shown them that are judged by it.

    No training row has the values of the window that is scored, so what a model learns of them can only mislead it.
    """
    shown: dict[str | None, str | None] = {None: None}
    for text, config in zip(rows.config.tolist(), rows.configs(), strict=True):
        if text not in shown:
            kept = {name: value for name, value in config.items() if name != key}
            shown[text] = msgspec.json.encode(kept).decode()
    config_texts = np.array([shown[text] for text in rows.config.tolist()], dtype=object)
    return replace(rows, config=config_texts)


def since(rows: TrainingSet, cut_us: int, *, train_days: float | None = None) -> list[Window]:
    """One window: everything submitted from `cut_us` on.

    Raises:
        WindowError: nothing was recorded before it, or nothing submitted from it on.
    """
    begin = None if train_days is None else cut_us - _microseconds(train_days)
    at = from_us(cut_us).isoformat()
    train, scored = _recorded(rows, begin, cut_us), np.flatnonzero(rows.submitted_at_us >= cut_us)
    if not len(train):
        raise WindowError(f"no attempt was recorded before {at} to fit on: choose a later time")
    if not len(scored):
        raise WindowError(f"no attempt submitted at or after {at}: nothing to judge")
    return [Window(at, cut_us, train, scored)]


def _some(names: list[str]) -> str:
    """The first names of a list that may be long."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _microseconds(train_days: float) -> int:
    """A length of so many days.

    Raises:
        WindowError: it is none that a calendar holds.
    """
    if not 0 < train_days <= MAX_TRAIN_DAYS:
        raise WindowError(f"a training window must be above 0 and at most {MAX_TRAIN_DAYS:,} days, got {train_days:g}")
    return round(train_days * MICROSECONDS_PER_DAY)


def _recorded(rows: TrainingSet, begin_us: int | None, end_us: int) -> NDArray[np.int64]:
    inside = rows.recorded_at_us < end_us
    if begin_us is not None:
        inside &= rows.recorded_at_us >= begin_us
    return np.flatnonzero(inside)


def _named(rows: TrainingSet, key: str) -> tuple[NDArray[np.int64], list[str]]:
    """Per row the place of its value of the configuration's `key` among the different ones, −1 without; the values."""
    places: dict[str, int] = {}
    values = np.full(len(rows), -1, dtype=np.int64)
    known: set[str] = set()
    for row, config in enumerate(rows.configs()):
        value: Any = config.get(key)
        if value is None:
            known.update(config)
            continue
        values[row] = places.setdefault(str(value), len(places))
    if not places:
        raise WindowError(
            f"no job has {key!r} in its configuration; "
            + (
                f"there are {', '.join(sorted(known))}: judge by one of these, by day,"
                if known
                else "no job has any key: judge by day,"
            )
            + " or map the column into [config]"
        )
    return values, list(places)

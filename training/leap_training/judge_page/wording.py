"""How the page of the judge calls things, and how it draws the same model in every figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from leap_features.levels import LEVELS
from leap_training.judge_page.verdict import Figures, History, Verdict
from leap_training.page import Dot, Line, Mark, count, interval, percent
from leap_training.page.charts import shortened
from leap_training.page.dots import Shape
from leap_training.page.numbers import SPACE

NONE: Final = "–"

# Characters that a row has room for in a window of 400 pixels.
LABEL_LENGTH: Final = 34

REFERENCES: Final = ("backoff_last", "leap", "lookup")
"""The models that are shown beside the default wherever there is no room for all, if they were judged."""

FIRST: Final = "first_in_cell"

SLICES: Final[Mapping[str, str]] = {
    "all": "all rows",
    FIRST: "first runs in a cell",
    "new_hardware_first": "first runs on new hardware",
    "new_hardware": "new hardware",
    "new_family": "new job families",
    "head": "common model types",
    "tail": "rare model types",
}

HISTORY_WORDS: Final[Mapping[History, str]] = {
    "live": "history live, updated by every completed run",
    "nightly": "history as of the midnight before",
    "frozen": "history as of the training cut",
}

_KEYS: Final = {
    "job_family": "family",
    "model_type": "model type",
    "hardware_type": "hardware",
    "trainer_count": "trainers",
}
ALL_LEVELS: Final = "all"
NO_LEVEL: Final = "no history"
_LEVELS: Final = {
    **{level.view: ", ".join(_KEYS.get(key, key) for key in level.join_keys) for level in LEVELS},
    ALL_LEVELS: "all levels",
    "none": NO_LEVEL,
}

# The default first, then the references; a shape and a dash go with each colour.
_PAINTS: Final = ("lead", "other", "hue-5", "hue-3")
_SHAPES: Final[tuple[Shape, ...]] = ("disc", "ring", "diamond", "stroke")
_DASHES: Final = ("", "dashed", "dotted", "dashed")


def per_cent(value: float | None, digits: int = 1) -> str:
    """A figure of the judge, which is in percent, as `12.3 %`; `–` where there is none."""
    return NONE if value is None else percent(value / 100, digits)


def points(value: float | None) -> str:
    """A difference of two figures in percent, with its sign."""
    return NONE if value is None else f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def scale_mark(value: float) -> str:
    """A percentage for the marks of a scale: with as many decimals as it has, two at most."""
    return f"{_without_zeros(value)}{SPACE}%"


def whole_points(value: float) -> str:
    """A difference for the marks of a scale, with its sign."""
    text = _without_zeros(abs(value))
    return text if text == "0" else f"{'+' if value > 0 else '−'}{text}"


def between(low: float | None, high: float | None) -> str:
    """An interval of figures in percent."""
    return NONE if low is None or high is None else interval(low / 100, high / 100)


def within(figures: Figures | None) -> str:
    """The share within ±20 % and its interval, for the right of a row."""
    if figures is None or figures.within20 is None:
        return "no rows"
    sure = between(figures.within20_low, figures.within20_high)
    return per_cent(figures.within20) if sure == NONE else f"{per_cent(figures.within20)} ({sure})"


def dot(figures: Figures | None, *, sure: bool = True) -> Dot | None:
    """The share within ±20 % as a point, with its interval if `sure`."""
    if figures is None or figures.within20 is None:
        return None
    return Dot(figures.within20, figures.within20_low, figures.within20_high) if sure else Dot(figures.within20)


def level_name(view: str | None) -> str:
    """A level of history by its keys; None: no level had history."""
    return NO_LEVEL if view is None else _LEVELS.get(view, view)


def feature_name(name: str) -> str:
    """A feature, short enough for the label of a row; tables have the full name."""
    view, _, feature = name.partition("__")
    if not feature:
        return shortened(name, LABEL_LENGTH)
    return shortened(f"{view.removesuffix('_history')}: {feature}", LABEL_LENGTH)


def slice_name(name: str) -> str:
    """A slice in words."""
    return SLICES.get(name, name)


def model_types(number: int) -> str:
    """So many model types."""
    return count(number, "model type")


def shown(verdict: Verdict) -> list[str]:
    """The default, and those of the references that were judged under the same history."""
    history = verdict.history
    judged = [] if history is None else [name for name in REFERENCES if name in verdict.models]
    return [
        verdict.default,
        *(
            name
            for name in judged
            if history is not None and name != verdict.default and verdict.models[name].under(history)
        ),
    ]


def marks(names: Sequence[str]) -> list[Mark]:
    """How the models of `shown` are drawn as points."""
    return [Mark(name, _PAINTS[rank], _SHAPES[rank]) for rank, name in enumerate(names)]


def line(
    rank: int,
    name: str,
    values: Iterable[tuple[str, float | None, float | None, float | None]],
) -> Line:
    """The model of this rank in `shown` as a line over windows: (window, value, low, high)."""
    held = [*values]
    banded = any(low is not None and high is not None for _, _, low, high in held)
    return Line(
        name,
        _PAINTS[rank],
        tuple((float(place), value) for place, (_, value, _, _) in enumerate(held)),
        tuple(low for _, _, low, _ in held) if banded else (),
        tuple(high for _, _, _, high in held) if banded else (),
        _DASHES[rank],
        tuple(f"{name}, {window}: {per_cent(value)}" for window, value, _, _ in held),
    )


def _without_zeros(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")

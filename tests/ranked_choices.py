"""Choices as `Predictor.rank` gives them, without a predictor."""

from __future__ import annotations

from hypothesis import strategies as st

from leap_features.hardware import CATALOGUE
from leap_predictor.explanation import Choice


def choice(hardware_type: str, score: float = 1.0, *, demoted: bool = False) -> Choice:
    """A choice of which only what is given matters."""
    return Choice(hardware_type, 8 * score, 7 * score, 9 * score, score, None, 1.0, demoted)


@st.composite
def rankings(draw: st.DrawFn, *, min_size: int = 0) -> list[Choice]:
    """Choices among hardware types that the catalogue knows, by any name, and some that it does not; best first."""
    known = [name for row in CATALOGUE.values() for name in (row.name, *row.aliases)]
    names = draw(st.lists(st.sampled_from([*known, "Warp9", "lab box 3"]), unique=True, min_size=min_size, max_size=6))
    drawn = [
        choice(name, draw(st.floats(1e-9, 1e9)), demoted=draw(st.booleans() if at else st.just(False)))
        for at, name in enumerate(names)
    ]
    return sorted(drawn, key=lambda one: (one.demoted, -one.score))

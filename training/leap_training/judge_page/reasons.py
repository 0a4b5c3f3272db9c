"""What predictions come from and what they are good for: importance, ablations, hold-outs, order of pairs, regret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leap_training.judge_page.comparison import figure_cells, figure_columns
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.verdict import Difference, Holdout
from leap_training.judge_page.wording import (
    FIRST,
    NONE,
    feature_name,
    per_cent,
    points,
    scale_mark,
    slice_name,
    whole_points,
)
from leap_training.page import (
    Bar,
    Column,
    Dot,
    DotRow,
    Element,
    Mark,
    Reference,
    bars,
    count,
    dots,
    figure,
    legend_of_marks,
    table,
)

FEATURES_SHOWN: Final = 20
HOLDOUTS_SHOWN: Final = 20
TABLE_ROWS: Final = 300
WHOLE: Final = "leap"

_KINDS: Final = {"hardware_type": "hardware", "job_family": "family", "model_type": "model type"}
# What the judge holds beside the models.
_SAID: Final = {"truth": "truth: what noise leaves", "as run": "as the owners ran them"}
_GROUPS: Final = {
    "family_history": "family history",
    "levels": "other history",
}


def importance(judged: Judged) -> list[Element]:
    """How much is lost when the values of a feature, or of a group of features, change places among the rows."""
    found = sorted(judged.verdict.importance or [], key=lambda each: -each.points)
    groups = [(_group(each.group), "", each.points) for each in found if each.feature is None]
    features = [(each.feature, _group(each.group), each.points) for each in found if each.feature is not None]
    part = features[:FEATURES_SHOWN]
    most = f", the {len(part)} of {count(len(features))} that matter most" if len(part) < len(features) else ""
    return [
        _importance(identity, heading, explained, lines)
        for identity, heading, explained, lines in (
            (
                "importance-groups",
                "What matters: groups of features",
                f"Points of the share within ±20\u00a0% that {WHOLE} loses when all values of a group of features "
                "change places among the rows.",
                groups,
            ),
            (
                "importance",
                "What matters: single features",
                f"The same for each feature by itself{most}. Features that say the same stand in for one another, "
                "so that each of them seems to matter little.",
                part,
            ),
        )
        if lines
    ]


def _importance(identity: str, heading: str, explained: str, lines: Sequence[tuple[str, str, float]]) -> Element:
    return figure(
        identity,
        heading,
        explained,
        bars(
            f"chart-{identity}",
            heading,
            "Bars: points of the share within ±20\u00a0% that are lost.",
            [
                Bar(feature_name(name), " · ".join(filter(None, (group, points(lost)))), lost)
                for name, group, lost in lines
            ],
            whole_points,
            "placed",
        ),
        level=3,
        numbers=table(
            heading,
            [Column("Feature", number=False), Column("Group", number=False), Column("Points lost")],
            [[name, group, points(lost)] for name, group, lost in lines],
        ),
    )


def ablations(judged: Judged) -> Element | None:
    """How far a model is behind without each of its parts."""
    found = judged.verdict.ablations
    if not found:
        return None
    whole = ", ".join(dict.fromkeys(each.of for each in found.values()))
    windows = dict.fromkeys(window for each in found.values() for window in each.windows)
    drawn = [Mark("all rows", "lead", "disc"), Mark("first runs", "hue-5", "diamond")]
    heading = f"What matters: {whole} with a part changed"
    return figure(
        "ablations",
        heading,
        f"Points of the share within ±20\u00a0% by which {whole} is ahead (+) or behind (−) with a group of "
        "features or a step taken out or added, against itself whole on the same rows, with paired 95\u00a0% "
        f"bootstrap intervals; in {_windows(list(windows))}. At the right: all rows · first runs.",
        legend_of_marks(drawn),
        dots(
            "chart-ablations",
            heading,
            "Points with intervals, one row for each part: the difference on all rows and on first runs.",
            drawn,
            [
                DotRow(
                    name,
                    " · ".join(points(held.points if (held := each.points.get(of)) else None) for of in ("all", FIRST)),
                    tuple(
                        Dot(held.points, held.low, held.high) if (held := each.points.get(of)) else None
                        for of in ("all", FIRST)
                    ),
                )
                for name, each in found.items()
            ],
            whole_points,
            [Reference(0.0)],
        ),
        level=3,
        numbers=table(
            f"Figures of {whole} with a part changed",
            [*figure_columns(["Model", "Slice"]), Column("Points"), Column("Points, interval")],
            [
                [
                    name,
                    slice_name(of),
                    *figure_cells(each.figures[of]),
                    *(_difference(each.points[of]) if of in each.points else (NONE, NONE)),
                ]
                for name, each in found.items()
                for of in ("all", FIRST)
                if of in each.figures
            ],
        ),
    )


def holdouts(judged: Judged) -> Element | None:
    """What the default model reaches on hardware and families that it never saw."""
    default = judged.verdict.default
    found = judged.verdict.holdouts or []
    if not found:
        return None
    own = [each for each in found if each.model == default][:HOLDOUTS_SHOWN]
    drawn = [
        Mark("trained without it", "lead", "disc"),
        Mark("without as many random rows", "other", "ring"),
        Mark("on everything", "bound", "stroke"),
    ]
    windows = list(dict.fromkeys(each.window for each in found))
    heading = "What was never seen"
    return figure(
        "holdouts",
        heading,
        f"Share within ±20\u00a0% of {default} on the rows of one hardware type or family of which it was trained "
        f"on no run, in {_windows(windows)}. History frozen: nothing is known of it; live: its own first runs are. "
        "At the right: without it · rows.",
        legend_of_marks(drawn) if own else None,
        dots(
            "chart-holdouts",
            heading,
            "Points, one row for each hold-out: trained without it, without as many random rows, and on everything.",
            drawn,
            [
                DotRow(
                    _held_out(each, windows),
                    f"{per_cent(each.without)} · {count(each.scored_rows)}",
                    (Dot(each.without), Dot(each.random), Dot(each.full)),
                )
                for each in own
            ],
            scale_mark,
        )
        if own
        else None,
        level=3,
        numbers=table(
            "Figures of the hold-outs",
            [
                *(Column(name, number=False) for name in ("Held out", "Model")),
                *(Column(name) for name in ("Removed rows", "Scored rows", "Trained on everything")),
                *(Column(name) for name in ("Without it", "Without random rows")),
            ],
            [
                [
                    _held_out(each, windows),
                    each.model,
                    count(each.removed_rows),
                    count(each.scored_rows),
                    *(per_cent(share) for share in (each.full, each.without, each.random)),
                ]
                for each in found[:TABLE_ROWS]
            ],
        ),
    )


def _held_out(each: Holdout, windows: Sequence[str]) -> str:
    name = f"{_KINDS.get(each.kind, each.kind)} {each.value}, {each.history}"
    return name if len(windows) == 1 else f"{name}, {each.window}"


def _windows(names: Sequence[str]) -> str:
    return f"window {names[0]}" if len(names) == 1 else count(len(names), "window")


def _difference(each: Difference) -> tuple[str, str]:
    return points(each.points), NONE if each.low is None else f"{points(each.low)} to {points(each.high)}"


def pairs(judged: Judged) -> Element | None:
    """How often the better of two hardware types is put first."""
    found = {name: each for name, each in (judged.verdict.pairs or {}).items() if each.right is not None}
    if not found:
        return None
    ranked = sorted(found.items(), key=lambda item: -(item[1].right or 0.0))
    return figure(
        "pairs",
        "Which of two is better",
        "How often the better of two hardware types is put first, where a family ran on both with as many trainers and "
        f"the same batch size: {count(ranked[0][1].pairs, 'pair')}. A coin gets 50\u00a0%.",
        dots(
            "chart-pairs",
            "Share of pairs in the right order",
            "Points, one row for each model: share of pairs of hardware types in the right order.",
            [Mark("right order", "lead", "disc")],
            [
                DotRow(_SAID.get(name, name), per_cent(each.right), (None if each.right is None else Dot(each.right),))
                for name, each in ranked
            ],
            scale_mark,
        ),
        level=3,
        numbers=table(
            "Pairs in the right order",
            [Column("Model", number=False), Column("Pairs"), Column("Right")],
            [[name, count(each.pairs), per_cent(each.right)] for name, each in ranked],
        ),
    )


def regret(judged: Judged) -> Element | None:
    """What is lost by following a model's picks, by the truth of a synthetic fleet."""
    found = {name: each for name, each in (judged.verdict.regret or {}).items() if each.lost is not None}
    if not found:
        return None
    ranked = sorted(found.items(), key=lambda item: item[1].lost or 0.0)
    return figure(
        "regret",
        "What following the picks would lose",
        "Mean share of the best value for money, by the truth of the synthetic fleet, that the top pick among the "
        f"eligible hardware types forgoes; {count(ranked[0][1].jobs, 'job')} with a choice. The less, the better.",
        bars(
            "chart-regret",
            "Share of the best value that is lost",
            "Bars, one for each model: mean share of the best value for money that its picks forgo.",
            [Bar(_SAID.get(name, name), per_cent(each.lost), (each.lost or 0.0) / 100) for name, each in ranked],
            lambda share: scale_mark(100 * share),
        ),
        level=3,
        numbers=table(
            "What is lost by following the picks",
            [
                Column("Model", number=False),
                Column("Jobs"),
                Column("Lost"),
                Column("Lost, by cost"),
                Column("Best pick"),
            ],
            [
                [name, count(each.jobs), per_cent(each.lost), per_cent(each.lost_by_cost), per_cent(each.best)]
                for name, each in ranked
            ],
        ),
    )


def _group(name: str) -> str:
    return _GROUPS.get(name, name)

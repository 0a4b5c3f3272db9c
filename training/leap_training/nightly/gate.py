"""The gate: whether tonight's model is published, decided from figures alone.

The candidate is what would be published, fitted without the judged days. Where last night's model was published, it
was fitted on the very rows that the candidate is fitted on, so that on a quiet night the two tie by construction. A tie
is published: the final model knows a day more, with its new families and hardware. See
docs/decisions/009-a-tie-is-published.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from leap_training.judge.intervals import Coverage
from leap_training.nightly.comparison import ALL, FIRST_IN_CELL, Difference

MIN_TRAIN_ROWS: Final = 200
"""A fit on fewer attempts says more about them than about the next."""
MIN_JUDGED_ROWS: Final = 50
"""Accuracy of fewer rows says nothing."""
MIN_FIRST_RUNS: Final = 20
"""Fewer first runs cannot show that a model beats the back-off; then they must only not show the contrary."""
SHRUNKEN: Final = 0.5
"""A data set with less than this share of last night's rows has lost some: days do not differ so much, nor do weeks."""
SILENT_SHARE: Final = 0.25
"""Share of the judged days, the latest, in which something must have been recorded."""
MIN_INTERVAL_ROWS: Final = 100
MIN_COVERED: Final = 60.0
"""Percent of the rows that an 80 % interval must hold. No upper bound: one that is too wide misleads nobody."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate decides from."""

    cut: datetime
    judge_days: int
    dataset_rows: int
    dataset_rows_before: int | None
    """Of the latest earlier night with the same windows; None: there is none."""
    newest_recorded_at: datetime | None
    """Of the data set; None: it is empty."""
    train_rows: int
    """Rows that the candidate was fitted on."""
    judged_rows: int
    above_backoff: Mapping[str, Difference]
    """Candidate minus the back-off's last value, by slice."""
    above_published: Mapping[str, Difference]
    """Candidate minus the published model on rows that it has not seen, by slice; empty: nothing to compare with."""
    published_before: datetime | None
    """What was recorded before this instant the published model has seen; None: none is published."""
    intervals: Coverage | None
    """Of the candidate's 80 % intervals; None: it has none."""


class Refusal(msgspec.Struct, frozen=True):
    """A reason not to publish."""

    rule: str
    why: str


def refusals(evidence: Evidence) -> tuple[Refusal, ...]:
    """Every reason not to publish; empty: publish."""
    return tuple(Refusal(rule, why) for found in (_of_rows(evidence), _of_accuracy(evidence)) for rule, why in found)


def _of_rows(evidence: Evidence) -> Iterator[tuple[str, str]]:
    if evidence.train_rows < MIN_TRAIN_ROWS:
        yield "few_training_rows", f"{evidence.train_rows:,} attempts to fit on, {MIN_TRAIN_ROWS} are needed"
    if evidence.judged_rows < MIN_JUDGED_ROWS:
        yield (
            "few_judged_rows",
            f"{evidence.judged_rows:,} attempts to judge by, {MIN_JUDGED_ROWS} are needed: judge on more days with "
            "--judge-days",
        )
    before = evidence.dataset_rows_before
    if before is not None and evidence.dataset_rows < SHRUNKEN * before:
        yield (
            "shrunken_dataset",
            f"{evidence.dataset_rows:,} attempts in the data set, {before:,} the night before: is the archive whole?",
        )
    silent_from = evidence.cut - SILENT_SHARE * timedelta(days=evidence.judge_days)
    if evidence.newest_recorded_at is not None and evidence.newest_recorded_at < silent_from:
        yield (
            "stale_dataset",
            f"nothing in the archive was recorded after {evidence.newest_recorded_at:%Y-%m-%d %H:%M} UTC: does "
            "`leap archive` keep up?",
        )
    if evidence.published_before is not None and evidence.published_before > evidence.cut:
        yield (
            "older_than_published",
            f"the published model knows what was recorded before {evidence.published_before:%Y-%m-%d %H:%M} UTC, this "
            f"one would know only what was before {evidence.cut:%Y-%m-%d %H:%M}",
        )


def _of_accuracy(evidence: Evidence) -> Iterator[tuple[str, str]]:
    for slice_name, title in ((ALL, "all attempts"), (FIRST_IN_CELL, "first runs in a new cell")):
        difference = evidence.above_published.get(slice_name)
        if difference is not None and difference.surely_below:
            yield f"behind_published_{slice_name}", f"{title}: {_said(difference)} of the published model"
    over_all = evidence.above_backoff.get(ALL)
    if over_all is not None and over_all.surely_below:
        yield f"behind_backoff_{ALL}", f"all attempts: {_said(over_all)} of the back-off's last value"
    first = evidence.above_backoff.get(FIRST_IN_CELL)
    if first is not None and (first.surely_below or (first.rows >= MIN_FIRST_RUNS and first.points <= 0)):
        yield (
            f"not_above_backoff_{FIRST_IN_CELL}",
            f"first runs in a new cell: {_said(first)} of the back-off's last value, which must be beaten",
        )
    intervals = evidence.intervals
    if intervals is not None and intervals.rows >= MIN_INTERVAL_ROWS and intervals.covered < MIN_COVERED:
        yield (
            "interval_coverage",
            f"the 80 % intervals hold {intervals.covered:.1f} % of {intervals.rows:,} attempts, {MIN_COVERED:.0f} % "
            "are needed",
        )


def _said(difference: Difference) -> str:
    where = "ahead" if difference.points > 0 else "behind" if difference.points < 0 else "level with"
    return (
        f"within ±20 % {abs(difference.points):.1f} points {where} ({difference.low:+.1f} to {difference.high:+.1f} on "
        f"{difference.rows:,} attempts)"
    )

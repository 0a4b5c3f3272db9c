"""The figures of each night, as Parquet: one file a night, one row per model and slice.

| column | type | meaning |
|---|---|---|
| night | date | the day at whose first instant (UTC) the night cut |
| written_at | timestamp, UTC | when the night was done |
| train_days, judge_days | int | its windows |
| dataset_rows, set_aside | int | attempts in the data set; of them without a usable throughput or description |
| train_rows, judged_rows | int | attempts that the candidate was fitted on, and judged by |
| published | bool | whether its model was published |
| reasons, why | list of text | rules of the gate that were broken, and the same in words; empty: none |
| bundle_id | text | what was published; null: nothing |
| compared_with | text | id of the bundle that was the current one; null: there was none |
| not_compared | text | why the published model took no part; null: it did |
| {phase}_seconds | float | time of a phase; null: it did not take place |
| interval_rows, covered, median_half_width | int, float, float | of the candidate's 80 % intervals; percent |
| model | text | candidate, published or backoff_last |
| slice | text | as `leap evaluate` names them: all, first_in_cell, new_hardware, … |
| rows, unanswered | int | attempts of the slice, and those without a prediction, which count as wrong |
| within10, within20, median_error | float | percent; null: no attempts |
| within20_device_hours | float | within20 with each attempt weighing its device-hours; null: none known |
| points, points_low, points_high | float | within20 of the candidate minus this model's, same attempts; 95 % interval |

`published` is judged on the attempts that it has not seen. A night without figures has one row, of the candidate, of no
attempts.
"""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from leap_features import parquet_files
from leap_features.durable import sync
from leap_training.judge.figures import Figures
from leap_training.nightly.comparison import ALL, BACKOFF_LAST, CANDIDATE, FIRST_IN_CELL, PUBLISHED, SliceFigures
from leap_training.nightly.state import StateError, dates_named

if TYPE_CHECKING:
    from leap_training.nightly.phases import Outcome

NIGHTS: Final = "nights"
PHASES: Final = ("dataset", "candidate", "judge", "gate", "fit", "publish")

SCHEMA: Final = pa.schema(
    [
        ("night", pa.date32()),
        ("written_at", pa.timestamp("us", tz="UTC")),
        ("train_days", pa.int64()),
        ("judge_days", pa.int64()),
        ("dataset_rows", pa.int64()),
        ("set_aside", pa.int64()),
        ("train_rows", pa.int64()),
        ("judged_rows", pa.int64()),
        ("published", pa.bool_()),
        ("reasons", pa.list_(pa.string())),
        ("why", pa.list_(pa.string())),
        ("bundle_id", pa.string()),
        ("compared_with", pa.string()),
        ("not_compared", pa.string()),
        *((f"{phase}_seconds", pa.float64()) for phase in PHASES),
        ("interval_rows", pa.int64()),
        ("covered", pa.float64()),
        ("median_half_width", pa.float64()),
        ("model", pa.string()),
        ("slice", pa.string()),
        ("rows", pa.int64()),
        ("unanswered", pa.int64()),
        ("within10", pa.float64()),
        ("within20", pa.float64()),
        ("median_error", pa.float64()),
        ("within20_device_hours", pa.float64()),
        ("points", pa.float64()),
        ("points_low", pa.float64()),
        ("points_high", pa.float64()),
    ]
)


class NightRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A night as `leap nightly` shows it."""

    night: date
    train_days: int
    judge_days: int
    dataset_rows: int
    set_aside: int
    train_rows: int
    judged_rows: int
    published: bool
    reasons: tuple[str, ...]
    why: tuple[str, ...]
    bundle_id: str | None
    compared_with: str | None
    not_compared: str | None
    written_at: datetime
    seconds: dict[str, float]
    within20: dict[str, dict[str, float | None]]
    """By model and slice."""


def write(root: Path, outcome: Outcome, now: datetime) -> NightRecord:
    """Keep what a night came to; from then on it is done.

    Args:
        root: the state directory.
        now: aware time.
    """
    path = _path(root, outcome.plan.night)
    for unfinished in path.parent.glob(".*"):  # of a run that was killed; nobody else writes here
        unfinished.unlink()
    parquet_files.write(pa.Table.from_pylist(_rows(outcome, now), schema=SCHEMA), path)
    sync(path.parent)
    sync(root)
    return _record(parquet_files.read(path).to_pylist())


def find(root: Path, night: date) -> NightRecord | None:
    """What `night` came to; None: it is not done.

    Raises:
        StateError: its file cannot be read.
    """
    path = _path(root, night)
    return _read(path) if path.exists() else None


def forget(root: Path, night: date) -> None:
    """Let `night` not be done."""
    _path(root, night).unlink(missing_ok=True)


def all_nights(root: Path) -> list[NightRecord]:
    """What every night came to, earliest first.

    Raises:
        StateError: the file of one cannot be read.
    """
    return [_read(_path(root, night)) for night in _nights(root)]


def rows_before(root: Path, night: date, train_days: int, judge_days: int) -> int | None:
    """Rows in the data set of the latest night before `night` with the same windows; None: there is none."""
    for earlier in reversed([each for each in _nights(root) if each < night]):
        try:
            found = _read(_path(root, earlier))
        except StateError:  # `--list` names it; tonight can do with the night before it
            continue
        if (found.train_days, found.judge_days) == (train_days, judge_days):
            return found.dataset_rows
    return None


def _nights(root: Path) -> list[date]:
    """The nights that are done, earliest first."""
    return dates_named(path.stem for path in (root / NIGHTS).glob("*.parquet"))


def _read(path: Path) -> NightRecord:
    try:
        return _record(parquet_files.read(path).to_pylist())
    except (OSError, pa.ArrowException, msgspec.ValidationError, LookupError) as error:
        raise StateError(
            f"{path} holds no figures of a night ({error}): remove it, or do its night again with --night "
            f"{path.stem} --again"
        ) from None


def _path(root: Path, night: date) -> Path:
    return root / NIGHTS / f"{night.isoformat()}.parquet"


def _rows(outcome: Outcome, now: datetime) -> list[dict[str, Any]]:
    judgement, intervals = outcome.judgement, outcome.judgement.intervals
    of_night = {
        "night": outcome.plan.night,
        "written_at": now,
        "train_days": outcome.plan.train_days,
        "judge_days": outcome.plan.judge_days,
        "dataset_rows": outcome.dataset.rows,
        "set_aside": outcome.candidate.set_aside,
        "train_rows": outcome.candidate.rows,
        "judged_rows": judgement.rows,
        "published": outcome.bundle_id is not None,
        "reasons": [refusal.rule for refusal in outcome.refusals],
        "why": [refusal.why for refusal in outcome.refusals],
        "bundle_id": outcome.bundle_id,
        "compared_with": judgement.published_id,
        "not_compared": judgement.not_compared or None,
        **{f"{phase}_seconds": outcome.seconds.get(phase) for phase in PHASES},
        "interval_rows": None if intervals is None else intervals.rows,
        "covered": None if intervals is None else intervals.covered,
        "median_half_width": None if intervals is None else intervals.median_half_width,
    }
    nothing = SliceFigures(CANDIDATE, ALL, Figures(0, 0, None, None, None, None), None)
    return [of_night | _figures(found) for found in judgement.figures or (nothing,)]


def _figures(found: SliceFigures) -> dict[str, Any]:
    ahead = found.below_candidate
    return {
        "model": found.model,
        "slice": found.slice,
        "rows": found.figures.rows,
        "unanswered": found.figures.unanswered,
        "within10": found.figures.within10,
        "within20": found.figures.within20,
        "median_error": found.figures.median_error,
        "within20_device_hours": found.figures.within20_device_hours,
        "points": None if ahead is None else ahead.points,
        "points_low": None if ahead is None else ahead.low,
        "points_high": None if ahead is None else ahead.high,
    }


def _record(rows: list[dict[str, Any]]) -> NightRecord:
    first = rows[0]
    within20: dict[str, dict[str, float | None]] = {}
    for row in rows:
        within20.setdefault(row["model"], {})[row["slice"]] = row["within20"]
    seconds = {phase: first[f"{phase}_seconds"] for phase in PHASES if first[f"{phase}_seconds"] is not None}
    return msgspec.convert(first | {"seconds": seconds, "within20": within20}, NightRecord)


def lines(nights: list[NightRecord]) -> list[str]:
    """A table of nights for people; shares are those within ±20 %."""
    models = f"{'model':>7}{'publ.':>7}{'last':>7}"
    result = [
        f"{'':31}{'all attempts':>21}  {'first runs in a cell':>21}",
        f"{'night':<12}{'rows':>10}{'judged':>9}{models}  {models}  came to",
    ]
    for night in nights:
        shares = "  ".join(
            "".join(_percent(night.within20.get(model, {}).get(of)) for model in (CANDIDATE, PUBLISHED, BACKOFF_LAST))
            for of in (ALL, FIRST_IN_CELL)
        )
        came_to = night.bundle_id or f"not published: {', '.join(night.reasons)}"
        result.append(f"{night.night!s:<12}{night.dataset_rows:>10,}{night.judged_rows:>9,}{shares}  {came_to}")
    return result


def _percent(share: float | None) -> str:
    return f"{'–' if share is None else f'{share:.1f}':>7}"

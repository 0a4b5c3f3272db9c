"""The fold: what one more ended attempt does to a history row. Pure, exact and free of order.

A run contributes the integer x = round(ln(throughput) · 2³²). A row keeps n, Σx and Σx² as exact integers and derives
mean and standard deviation from them, so that the statistics are the same in whatever order the runs arrive, and equal
to a window sum over the archive. The latest success is the greatest by (completed_at, attempt_id); the failures that
count are those greater than it. What makes a row newer is its version alone: the highest offset taken in per
(epoch, partition).

All times are microseconds since 1970, UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from leap_features.events import FIXED_POINT, CompletionEvent, fixed_log, to_us
from leap_features.layout import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_FAILURES: Final = 16
"""Failures kept since the last success: the count saturates here, so that a row stays small."""

FEATURES: Final[tuple[tuple[str, type], ...]] = (
    ("last", float),
    ("mean", float),
    ("std", float),
    ("count", int),
    ("last_seen", int),
    ("failures_since_success", int),
    ("last_hardware_type", str),
    ("last_trainer_count", int),
    ("last_batch_size", float),
    ("mean_log_trainers", float),
    ("mean_log_batch", float),
    ("state", str),
    ("version", str),
)
"""Name and type (Float64, Int64, String) of every feature of a history view. `last`, `mean` and `std` are of the
natural logarithm of throughput; `last_seen` is in microseconds since 1970; `state` and `version` continue the row."""

MICROSECONDS_PER_DAY: Final = 86_400_000_000


class Position(NamedTuple):
    """Where an event lies: in which life of the topic, which partition, at which offset."""

    epoch: int
    partition: int
    offset: int


class Run(msgspec.Struct, frozen=True):
    """A succeeded or failed attempt as the fold sees it. Logarithms are fixed-point (2⁻³²)."""

    succeeded: bool
    completed_at_us: int
    attempt_id: str
    x: int
    """Logarithm of throughput; 0 and unused for a failure."""
    log_trainers: int
    log_batch: int | None
    """None where the batch size is 0: such a run takes no part in the mean."""
    hardware_type: str
    trainer_count: int
    batch_size: float


class Latest(NamedTuple):
    """The latest success of a key, with the conditions under which it was measured."""

    completed_at_us: int
    attempt_id: str
    x: int
    hardware_type: str
    trainer_count: int
    batch_size: float


Failure = tuple[int, str]
"""(completed_at in microseconds, attempt_id)."""

Version = tuple[Position, ...]
"""Position vector: the highest offset taken in per (epoch, partition), in that order."""


class Row(msgspec.Struct, frozen=True):
    """The history of one key. `EMPTY` is a cold start."""

    n: int = 0
    sum_x: int = 0
    sum_xx: int = 0
    sum_log_trainers: int = 0
    n_batch: int = 0
    sum_log_batch: int = 0
    latest: Latest | None = None
    failures: tuple[Failure, ...] = ()
    """The greatest failures after `latest`, at most 16, ascending."""
    version: Version = ()
    recorded_at_us: int = 0
    """The greatest record time taken in: when this row became knowable."""


EMPTY: Final = Row()


def run_of(event: CompletionEvent) -> Run | None:
    """What `event` contributes to history; None for cancelled and preempted attempts, which change nothing."""
    succeeded = event.status == "succeeded"
    if not succeeded and event.status != "failed":
        return None
    return Run(
        succeeded,
        to_us(event.completed_at),
        event.attempt_id,
        fixed_log(event.throughput) if succeeded and event.throughput is not None else 0,
        fixed_log(event.trainer_count),
        fixed_log(event.batch_size) if event.batch_size > 0 else None,
        event.hardware_type,
        event.trainer_count,
        event.batch_size,
    )


def has(row: Row, position: Position) -> bool:
    """Whether `row` has taken in the event at `position` already: a redelivery."""
    epoch, partition, offset = position
    for at_epoch, at_partition, at_offset in row.version:
        if at_partition == partition and at_epoch == epoch:
            return at_offset >= offset
    return False


def fold(row: Row, run: Run, position: Position, recorded_at_us: int) -> Row:
    """`row` after `run`, or `row` itself if it has the event at `position` already."""
    if has(row, position):
        return row
    version = _advanced(row.version, position)
    recorded = max(row.recorded_at_us, recorded_at_us)
    at = (run.completed_at_us, run.attempt_id)
    if not run.succeeded:
        failures = row.failures
        if row.latest is None or at > row.latest[:2]:
            failures = tuple(sorted((*failures, at))[-MAX_FAILURES:])
        return _with(row, failures=failures, version=version, recorded_at_us=recorded)
    latest, failures = row.latest, row.failures
    if latest is None or at > latest[:2]:
        latest = Latest(*at, run.x, run.hardware_type, run.trainer_count, run.batch_size)
        if failures:
            failures = tuple(failure for failure in failures if failure > at)
    return Row(
        row.n + 1,
        row.sum_x + run.x,
        row.sum_xx + run.x * run.x,
        row.sum_log_trainers + run.log_trainers,
        row.n_batch + (run.log_batch is not None),
        row.sum_log_batch + (run.log_batch or 0),
        latest,
        failures,
        version,
        recorded,
    )


def touch(row: Row, position: Position, recorded_at_us: int) -> Row:
    """`row` after a duplicate: nothing is counted, the version and the stamp advance."""
    if has(row, position):
        return row
    return _with(
        row,
        failures=row.failures,
        version=_advanced(row.version, position),
        recorded_at_us=max(row.recorded_at_us, recorded_at_us),
    )


def _with(row: Row, *, failures: tuple[Failure, ...], version: Version, recorded_at_us: int) -> Row:
    return Row(
        row.n,
        row.sum_x,
        row.sum_xx,
        row.sum_log_trainers,
        row.n_batch,
        row.sum_log_batch,
        row.latest,
        failures,
        version,
        recorded_at_us,
    )


def _advanced(version: Version, position: Position) -> Version:
    epoch, partition, _ = position
    if len(version) == 1 and version[0][1] == partition and version[0][0] == epoch:
        return (position,)  # nearly always: the keys of a model type live in one partition
    for place, at in enumerate(version):
        if at[1] == partition and at[0] == epoch:
            return (*version[:place], position, *version[place + 1 :])
    return tuple(sorted((*version, position)))


def mean_of(total: int, count: int) -> float | None:
    """Mean of `count` fixed-point logarithms that sum to `total`, as a float; None for none."""
    return float(total) / count / FIXED_POINT if count else None


def std_of(n: int, sum_x: int, sum_xx: int) -> float | None:
    """Population standard deviation, √(n·Σx² − (Σx)²) / n; the numerator is exact, so nothing cancels."""
    return math.sqrt(float(n * sum_xx - sum_x * sum_x)) / n / FIXED_POINT if n else None


def features(row: Row) -> dict[str, Value]:
    """Every feature of `row` by name, as Feast stores it; what a cold start lacks is None, never a made-up zero."""
    latest = row.latest
    return {
        "last": latest.x / FIXED_POINT if latest else None,
        "mean": mean_of(row.sum_x, row.n),
        "std": std_of(row.n, row.sum_x, row.sum_xx),
        "count": row.n,
        "last_seen": latest.completed_at_us if latest else None,
        "failures_since_success": len(row.failures),
        "last_hardware_type": latest.hardware_type if latest else None,
        "last_trainer_count": latest.trainer_count if latest else None,
        "last_batch_size": latest.batch_size if latest else None,
        "mean_log_trainers": mean_of(row.sum_log_trainers, row.n),
        "mean_log_batch": mean_of(row.sum_log_batch, row.n_batch),
        "state": encode_state(row),
        "version": encode_version(row.version),
    }


class CorruptState(ValueError):
    """A stored `state` or `version` that no fold wrote."""


_State = tuple[int, int, str, int, int, int, Latest | None, tuple[Failure, ...]]
_state_encoder = msgspec.json.Encoder()
_state_decoder = msgspec.json.Decoder(_State)


def encode_state(row: Row) -> str:
    """Sums, latest success and failures of `row` as a JSON array; Σx² is a decimal string, since it needs 128 bits."""
    return _state_encoder.encode(
        (
            row.n,
            row.sum_x,
            str(row.sum_xx),
            row.sum_log_trainers,
            row.n_batch,
            row.sum_log_batch,
            row.latest,
            row.failures,
        )
    ).decode()


def encode_version(version: Iterable[tuple[int, int, int]]) -> str:
    """A position vector as `epoch:partition:offset`, joined by commas."""
    return ",".join(f"{epoch}:{partition}:{offset}" for epoch, partition, offset in version)


def decode_version(text: str) -> Version:
    """The inverse of `encode_version`.

    Raises:
        CorruptState: `text` is no position vector.
    """
    try:
        positions = tuple(Position(*map(int, part.split(":"))) for part in text.split(",") if part)
    except (TypeError, ValueError):
        raise CorruptState(f"not a position vector: {text[:200]!r}; run `leap audit --repair`") from None
    return positions


def from_state(state: str, version: str, recorded_at_us: int) -> Row:
    """The row that was stored as `state` and `version` and stamped `recorded_at_us`.

    Raises:
        CorruptState: no fold wrote them.
    """
    try:
        n, sum_x, sum_xx, sum_log_trainers, n_batch, sum_log_batch, latest, failures = _state_decoder.decode(state)
        exact = int(sum_xx)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptState(
            f"not the state of a history row: {state[:200]!r} ({error}); run `leap audit --repair`"
        ) from None
    return Row(
        n,
        sum_x,
        exact,
        sum_log_trainers,
        n_batch,
        sum_log_batch,
        latest,
        failures,
        decode_version(version),
        recorded_at_us,
    )


Number = TypeVar("Number", float, "NDArray[np.float64]")


def days_since(last_seen_us: Number, now_us: Number) -> Number:
    """Days from the latest success to `now_us`, the one feature that is computed when asked; NaN (cold) stays NaN."""
    return (now_us - last_seen_us) / MICROSECONDS_PER_DAY

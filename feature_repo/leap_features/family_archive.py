"""What the archive has of one job family: where it ran, and what each event did to a history row.

DuckDB picks the family's events out of the archive and spills to disk; the fold takes them one by one.
"""

# ruff: noqa: S608 - names are this product's own, other texts are quoted.

from __future__ import annotations

import difflib
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from leap_features import archive, archive_reader, attempts, family
from leap_features.archive_reader import quoted
from leap_features.events import CLOCK_ALLOWANCE_US
from leap_features.history import EMPTY, Position, Row, Run, fold, touch
from leap_features.history_rows import name_families_anew

MEMORY: Final = "1GB"
EVENTS_AT_ONCE: Final = 10_000
NAMES_COMPARED: Final = 200
"""Family names that are compared with a misspelt one: those that DuckDB finds nearest."""

_COLUMNS: Final = (
    *attempts.NEEDED,
    *("x", "log_trainers", "log_batch", "job_family", "family_given", "family_rule", "job_name", "model_type"),
    *("hardware_type", "trainer_count", "batch_size", "throughput"),
)

Effect = Literal["counted", "duplicate", "conflict", "too_late", "from_the_future", "cancelled", "preempted"]


class Change(NamedTuple):
    """One archived event, and what the row was after it."""

    position: Position
    recorded_at_us: int
    attempt_id: str
    status: str
    hardware_type: str
    trainer_count: int
    throughput: float | None
    """Samples per second; None where the platform gave none."""
    effect: Effect
    """All but `counted` are without effect on the statistics."""
    row: Row


class FamilyArchive:
    """The events of `job_family` in an archive, as it is when this is entered. Use it as a context manager.

    Args:
        horizon_us: the worker's horizon, in microseconds.
        rules: what derives job families; events that another version of the rules named are named anew.
    """

    def __init__(self, root: Path | str, job_family: str, *, horizon_us: int, rules: family.Rules) -> None:
        self.job_family = job_family
        self._root = root
        self._horizon_us = horizon_us
        self._rules = rules

    def __enter__(self) -> Self:
        """Pick the family's events.

        Raises:
            ArchiveError: there is no archive, or it cannot be read.
        """
        self._found = archive.segments(self._root)
        import duckdb  # noqa: PLC0415  # the launcher's side imports this package without it

        self._spill = tempfile.TemporaryDirectory(prefix="leap-history-")
        self._connection = archive_reader.connect(self._spill.name)
        try:
            self._connection.execute(f"SET memory_limit = '{MEMORY}'")
            self._connection.execute("SET preserve_insertion_order = false")
            self._pick()
        except duckdb.IOException as error:
            self._close()
            raise archive.ArchiveError(f"{self._root}: {error}") from None
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._connection.close()
        self._spill.cleanup()

    def _pick(self) -> None:
        """Make the tables `effective` (the family's events) and `judged` (their attempts, with who was first)."""
        model_type = self.job_family.partition("/")[0]
        named_otherwise = f"(NOT family_given AND family_rule <> {quoted(self._rules.version)})"
        mine = f"model_type = {quoted(model_type)} AND (job_family = {quoted(self.job_family)} OR {named_otherwise})"
        query = archive_reader.relation(self._found, _COLUMNS, mine)
        self._connection.execute(f"CREATE TABLE effective AS {query}")
        name_families_anew(self._connection, self._rules)
        self._connection.execute(f"DELETE FROM effective WHERE job_family <> {quoted(self.job_family)}")
        # Another family may have had an attempt first.
        everyone = archive_reader.relation(self._found, attempts.NEEDED, attempts.taken_in(self._horizon_us))
        self._connection.execute(
            f"CREATE TABLE rivals AS SELECT events.* FROM ({everyone}) AS events SEMI JOIN effective USING (attempt_id)"
        )
        self._connection.execute(f"CREATE TABLE judged AS {attempts.with_first('rivals')}")

    def scales(self) -> list[tuple[str, int]]:
        """The (hardware type, trainer count) pairs on which the family succeeded or failed, in order."""
        return self._connection.execute(
            "SELECT DISTINCT hardware_type, trainer_count FROM effective WHERE status IN ('succeeded', 'failed') "
            "ORDER BY ALL"
        ).fetchall()

    def changes(
        self, hardware_type: str | None, trainer_count: int | None, *, since_us: int | None, limit: int
    ) -> tuple[list[Change], Row]:
        """The latest events as they became known, and the row after all of them.

        The row is the family's on this hardware type and trainer count, where given; without hardware type it is the
        family's own.

        Args:
            since_us: only events that were recorded from this time on (microseconds since 1970 UTC).
            limit: at most so many.
        """
        latest: deque[Change] = deque(maxlen=limit)
        last = EMPTY
        for change in self._folded(hardware_type, trainer_count if hardware_type is not None else None):
            last = change.row
            if (trainer_count is None or change.trainer_count == trainer_count) and (
                since_us is None or change.recorded_at_us >= since_us
            ):
                latest.append(change)
        return list(latest), last

    def _folded(self, hardware_type: str | None, trainer_count: int | None) -> Iterator[Change]:
        events = self._connection.execute(
            """
            WITH mine AS (
                SELECT effective.*, epoch_us(effective.recorded_at) AS recorded_us, folds,
                    folds IS NOT NULL AND (folds OR effective.digest = first_digest) AS taken
                FROM effective LEFT JOIN judged USING (epoch, partition, "offset")
                WHERE ($hardware IS NULL OR effective.hardware_type = $hardware)
                    AND ($trainers IS NULL OR effective.trainer_count = $trainers)
            )
            SELECT epoch, partition, "offset", recorded_us, attempt_id, status, hardware_type, trainer_count,
                throughput, folds, taken, epoch_us(completed_at), x, log_trainers, log_batch, batch_size
            FROM mine
            ORDER BY coalesce(
                max(recorded_us) FILTER (taken) OVER (
                    PARTITION BY epoch, partition ORDER BY "offset" ROWS UNBOUNDED PRECEDING
                ), recorded_us
            ), epoch, partition, "offset"
            """,
            {"hardware": hardware_type, "trainers": trainer_count},
        )
        row = EMPTY
        while batch := events.fetchmany(EVENTS_AT_ONCE):
            for epoch, partition, offset, recorded_us, attempt_id, status, hardware, trainers, rate, *rest in batch:
                folds, taken, completed_us, x, log_trainers, log_batch, batch_size = rest
                position = Position(epoch, partition, offset)
                if folds:
                    run = Run(
                        status == "succeeded",
                        completed_us,
                        attempt_id,
                        x or 0,
                        log_trainers,
                        log_batch,
                        hardware,
                        trainers,
                        batch_size,
                    )
                    row = fold(row, run, position, recorded_us)
                elif taken:
                    row = touch(row, position, recorded_us)
                effect = _effect(folds, taken, status, recorded_us - completed_us)
                yield Change(position, recorded_us, attempt_id, status, hardware, trainers, rate, effect, row)

    def names_like(self, count: int) -> list[str]:
        """The family names of the archive that are closest to this one, the closest first."""
        query = archive_reader.relation(self._found, ("job_family",))
        nearest = self._connection.execute(
            f"SELECT job_family FROM ({query}) GROUP BY job_family "
            f"ORDER BY jaro_winkler_similarity(job_family, {quoted(self.job_family)}) DESC LIMIT {NAMES_COMPARED}"
        ).fetchall()
        return difflib.get_close_matches(self.job_family, [name for (name,) in nearest], count)


def _effect(folds: bool | None, taken: bool, status: Effect, age_us: int) -> Effect:
    if folds is None:
        if status in ("cancelled", "preempted"):
            return status
        return "from_the_future" if age_us < -CLOCK_ALLOWANCE_US else "too_late"
    if folds:
        return "counted"
    return "duplicate" if taken else "conflict"

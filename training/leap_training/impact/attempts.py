"""Reads the attempts whose placement is judged: from an archive, or from a table of completion events."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from leap_features import archive, archive_reader
from leap_features.events import content_digest, to_us
from leap_features.family import Rules, family_of_event
from leap_features.hardware import Catalogue
from leap_features.history_rows import name_families_anew
from leap_training.past_runs import Progress, Reading, Rejects, past_runs
from leap_training.tables import Table

ROWS_AT_ONCE: Final = 20_000
_US_PER_HOUR: Final = 3_600_000_000

_NEEDED: Final = (
    *("status", "attempt_id", "job_name", "model_type", "job_family", "family_given", "family_rule", "digest"),
    *("hardware_type", "eligible_hardware", "trainer_count", "device_hours", "throughput"),
    *("submitted_at", "started_at", "completed_at"),
)


class Attempt(NamedTuple):
    """One attempt that ended, whatever its end. Hardware types are by the catalogue's name where it has one."""

    attempt_id: str
    job_name: str
    model_type: str
    family: str
    hardware_type: str
    eligible: tuple[str, ...]
    """In order, each once; empty: it does not say."""
    trainers: int
    device_hours: float
    throughput: float | None
    """Samples per second over all trainers, > 0; None: it did not succeed."""
    submitted_us: int
    """Microseconds since 1970, UTC."""


class Attempts(NamedTuple):
    """What was read."""

    attempts: Sequence[Attempt]
    """By submission, then id."""
    notes: Sequence[str]
    """What was left out or taken to be, with counts."""


class Span(NamedTuple):
    """Times of submission, in microseconds since 1970 UTC: from `since` on and before `until`; None: no limit."""

    since: int | None = None
    until: int | None = None

    def holds(self, instant: int) -> bool:
        """Whether `instant` lies in it."""
        return (self.since is None or instant >= self.since) and (self.until is None or instant < self.until)


def read_table(
    table: Table, reading: Reading, rejects: Rejects, catalogue: Catalogue, rules: Rules, span: Span, progress: Progress
) -> Attempts:
    """The attempts of a table of completion events; what is no event goes to `rejects`.

    Raises:
        MappingError, TableError: the table cannot be read so.
    """
    builder = _Builder(catalogue)
    for _, event in past_runs(table, reading, rejects, progress):
        submitted = to_us(event.submitted_at)
        if span.holds(submitted):
            builder.add(
                (event.status != "succeeded", to_us(event.completed_at), content_digest(event)),
                event.attempt_id,
                event.job_name,
                event.model_type,
                family_of_event(event, rules),
                event.hardware_type,
                event.eligible_hardware,
                event.trainer_count,
                event.device_hours,
                event.throughput if event.status == "succeeded" else None,
                submitted,
                to_us(event.completed_at) - to_us(event.started_at),
            )
    return builder.attempts()


def read_archive(
    root: Path,
    catalogue: Catalogue,
    rules: Rules,
    span: Span,
    bar: Callable[[int], AbstractContextManager[Progress]],
) -> Attempts:
    """The attempts of an archive, also those that were recorded too late for history.

    Args:
        bar: is told how many events there are to read, and gives what is told of each step.

    Raises:
        ArchiveError: there is no archive, or it cannot be read.
    """
    found = archive.segments(root)
    builder = _Builder(catalogue)
    limits = [
        f"epoch_us(submitted_at) {sign} {limit:d}"
        for sign, limit in ((">=", span.since), ("<", span.until))
        if limit is not None
    ]
    with tempfile.TemporaryDirectory(prefix="leap-impact-") as spill, archive_reader.connect(spill) as connection:
        connection.execute("SET preserve_insertion_order = false")  # bounds the memory; the order does not matter
        events = archive_reader.relation(found, _NEEDED, " AND ".join(limits) or "true")
        connection.execute(f"CREATE TABLE effective AS {events}")
        name_families_anew(connection, rules)
        ((total,),) = connection.execute("SELECT count(*) FROM effective").fetchall()
        rows = connection.execute("""
            SELECT status <> 'succeeded', epoch_us(completed_at), digest, attempt_id, job_name, model_type, job_family,
                hardware_type, eligible_hardware, trainer_count, device_hours,
                CASE WHEN status = 'succeeded' THEN throughput END, epoch_us(submitted_at),
                epoch_us(completed_at) - epoch_us(started_at)
            FROM effective
        """)
        with bar(total) as progress:
            while batch := rows.fetchmany(ROWS_AT_ONCE):
                for unsuccessful, completed, digest, *fields in batch:
                    builder.add((unsuccessful, completed, digest), *fields)
                progress(len(batch))
    return builder.attempts()


class _Builder:
    """Keeps one event per attempt: a success if there is one, else the one that ended first."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._found: dict[str, tuple[tuple[bool, int, str], Attempt, bool]] = {}
        self._texts: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._counts: Counter[str] = Counter()

    def add(
        self,
        rank: tuple[bool, int, str],
        attempt_id: str,
        job_name: str,
        model_type: str,
        family: str,
        hardware_type: str,
        eligible: Iterable[str],
        trainers: int,
        device_hours: float,
        throughput: float | None,
        submitted_us: int,
        lasted_us: int,
    ) -> None:
        """Take an event; of those of one attempt the one of least `rank` stays."""
        before = self._found.get(attempt_id)
        if before is not None:
            self._counts["repeated"] += 1
            if before[0] <= rank:
                return
        derived = device_hours == 0
        attempt = Attempt(
            attempt_id,
            job_name,
            self._texts.setdefault(model_type, model_type),
            self._texts.setdefault(family, family),
            self._type(hardware_type),
            self._types_in_order(tuple(eligible)),
            trainers,
            trainers * lasted_us / _US_PER_HOUR if derived else device_hours,
            throughput,
            submitted_us,
        )
        self._found[attempt_id] = rank, attempt, derived

    def attempts(self) -> Attempts:
        """The attempts so far, whatever the order they came in."""
        notes = []
        if repeated := self._counts["repeated"]:
            notes.append(
                f"{repeated:,} further events of attempts that have one already are left out; a success comes first"
            )
        if derived := sum(derived for _, _, derived in self._found.values()):
            notes.append(
                f"{derived:,} attempts say no device-hours: trainers × the time from start to completion stands in"
            )
        attempts = sorted(
            (attempt for _, attempt, _ in self._found.values()), key=lambda each: (each.submitted_us, each.attempt_id)
        )
        return Attempts(attempts, notes)

    def _type(self, name: str) -> str:
        found = self._types.get(name)
        if found is None:
            found = self._types[name] = self._catalogue.canonical(name) or name
        return found

    def _types_in_order(self, names: tuple[str, ...]) -> tuple[str, ...]:
        found = self._sets.get(names)
        if found is None:
            found = self._sets[names] = tuple(sorted({self._type(name) for name in names}))
        return found

"""Past runs: the events of a table, and the rows that are none, set aside with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Protocol, Self

import msgspec

from leap_features.events import CompletionEvent
from leap_training.event_columns import EventColumns
from leap_training.mapping import Row, RowRejected, RunMapping
from leap_training.tables import BadRow, Table

MENDS: Final[Mapping[str, str]] = {
    "throughput": "leave the run out, give it the status failed, or correct its throughput",
    "time_order": "check which columns hold the times, and their zone",
    "conflicting_attempt": "give each launch an attempt_id of its own; to replace an import, remove its directory "
    "epoch=… from the archive, import again and run `leap rebuild`",
    "table": "correct the row in the table",
    "size": "take fewer columns into config",
}
"""What to do about a row that breaks a rule; for the other rules, `DEFAULT_MEND`."""

DEFAULT_MEND: Final = "correct the value in the table, or the entry in the mapping"

Progress = Callable[[int], None]
"""Is told how much of the table has been read since it was last told."""


class Reading(Protocol):
    """How the rows of a table become events: by a mapping, or as columns that are the event's own fields."""

    @property
    def columns(self) -> Set[str]:
        """Columns that the table must have, or that some row of it must."""

    def event(self, row: Row) -> CompletionEvent:
        """The event of a row; raises RowRejected where it is none."""

    def check_columns(self, columns: list[str] | None) -> None:
        """Check the columns of a table (None: each row has its own); raises MappingError."""


def reading_of(mapping_path: Path | None) -> Reading:
    """How to read a table: by the mapping in a TOML file, or, without one, as completion events.

    Raises:
        MappingError: the mapping cannot be read, or breaks a rule.
    """
    return EventColumns() if mapping_path is None else RunMapping.load(mapping_path)


class PastRun(NamedTuple):
    """An event and the number of its row; the first is 1."""

    row: int
    event: CompletionEvent


class Rejects:
    """Rows that break a rule: counted by rule, and written to a file of JSON Lines, which is made for the first one.

    A line has `row` (its number), `rule`, `value`, `message`, `mend` and `columns` (the row itself).
    """

    def __init__(self, path: Path | None) -> None:
        """Write to `path`; None only counts."""
        self.counts: Counter[str] = Counter()
        self.first: list[str] = []
        """What is wrong with the first few."""
        self.path = path
        self._file: BinaryIO | None = None

    @property
    def total(self) -> int:
        """How many there are."""
        return self.counts.total()

    def add(self, row: int, rule: str, value: object, message: str, columns: Mapping[str, object] | None) -> None:
        """Set a row aside."""
        self.counts[rule] += 1
        mend = MENDS.get(rule, DEFAULT_MEND)
        if len(self.first) < 5:
            self.first.append(f"row {row}: {message} ({mend})")
        if self.path is None:
            return
        if self._file is None:
            self._file = self.path.open("wb")
        line = {"row": row, "rule": rule, "value": value, "message": message, "mend": mend, "columns": columns}
        self._file.write(msgspec.json.encode(line, enc_hook=str) + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def past_runs(
    table: Table, mapping: Reading, rejects: Rejects, progress: Progress = lambda _done: None
) -> Iterator[PastRun]:
    """The events of `table`, in its order; what is none goes to `rejects`.

    Raises:
        MappingError: `mapping` reads a column that the table has not, or that no row of it has.
        TableError: the table cannot be read on.
    """
    mapping.check_columns(table.columns)
    unseen = set(mapping.columns)
    columns: dict[str, None] = {}
    done = 0
    for number, row in table:
        if number % 1000 == 0:
            progress(table.done - done)
            done = table.done
        if isinstance(row, BadRow):
            rejects.add(number, "table", None, str(row), None)
            continue
        if unseen:
            unseen.difference_update(row)
            columns |= dict.fromkeys(row)
        try:
            event = mapping.event(row)
        except RowRejected as error:
            rejects.add(number, error.rule, error.value, str(error), row)
        else:
            yield PastRun(number, event)
    if columns and unseen:  # where each row has its own columns, a misspelt one would pass for an empty one
        mapping.check_columns(list(columns))
    progress(table.length - done)

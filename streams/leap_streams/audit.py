"""`leap audit`: the online store beside what the archive gives, row by row and attempt by attempt; and its repair.

Rows are compared field by field, integers and texts as such and floats by their bits, together with the timestamp. The
total is the union of the keys on both sides: a row that only one side has is not equal. A row that has taken in events
that the archive has not yet is shown apart, and so is one that lacks events of the archive which the store's checkpoint
has not come to yet: there one of the two apps is ahead of the other, and nothing need be wrong.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from leap_features import archive, archive_reader, family, first_events, history_build
from leap_features.events import CLOCK_ALLOWANCE_US, to_us
from leap_features.history_build import Build
from leap_features.layout import Value
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams import attempt_compare, row_compare
from leap_streams.attempt_compare import AttemptDifference, AttemptVerdict
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.lost_records import shown
from leap_streams.repair import Mended, Repair
from leap_streams.row_compare import Pair, Verdict
from leap_streams.row_restore import Say
from leap_streams.store import Store
from leap_streams.store_scan import Key

SHOWN: Final = 10
ARCHIVE_LAG_S: Final = 30.0
"""How long, beyond the wait for a segment to fill, the archive may take to come to where the store is."""
LOOK_EVERY_S: Final = 1.0

MEANINGS: Final[Mapping[Verdict, str]] = {
    "equal": "equal on both sides",
    "ahead": "online has events that the archive has not yet: let `leap archive` catch up",
    "behind": "the archive has events that the worker has not come to yet: let `leap worker` catch up",
    "never_archived": "online has events of an earlier epoch that were never archived; `leap rebuild` drops them",
    "different": "differ: `leap audit --repair` makes them from the archive",
    "only_online": "only online: no archived event gives them; `leap audit --repair` removes them",
    "only_archive": "only in the archive: after an import, or a loss; `leap audit --repair` brings them",
}


class Difference(msgspec.Struct, frozen=True):
    """A row that is not equal. Values are those online and those of the archive, for the fields that differ."""

    view: str
    key: Key
    verdict: Verdict
    fields: dict[str, tuple[Value, Value]]


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """How many of how many rows are equal, and what the others are; the counts add up to `total`."""

    equal: int
    total: int
    ahead: int
    behind: int
    never_archived: int
    different: int
    only_online: int
    only_archive: int
    attempts: dict[AttemptVerdict, int]
    """Attempts that are not remembered as they should be."""
    state: str
    """Of the online store, `ready` or `rebuilding`."""
    first: list[Difference]
    """The first few rows that are not equal."""
    first_attempts: list[AttemptDifference]
    mended: Mended | None
    """None for an audit without repair."""

    @property
    def sound(self) -> bool:
        """Whether everything is equal, or has been made so."""
        wrong = self.total - self.equal + sum(self.attempts.values())
        if self.mended is not None:
            wrong -= sum(self.mended.written.values()) + sum(self.mended.removed.values()) + self.mended.attempts
        return wrong == 0


def audit(
    settings: Settings,
    *,
    rules: family.Rules,
    repair: bool = False,
    say: Say = lambda _line: None,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Audit:
    """Compare the online store of `settings` with its archive.

    Args:
        repair: also mend what the archive has in full. Workers may run.
        pause: waits so many seconds, for the archive to come to where the store is; before a repair.

    Raises:
        ArchiveError: there is no archive, or it has a hole.
        Halt: the store has no meta or other family rules, or does not work; or it is being rebuilt, before a repair.
        MetaError: its meta cannot be read.
        Unavailable: the store does not answer, or was rebuilt meanwhile; or the archive does not catch up.
    """
    store = Store(settings)
    try:
        meta = _meta(store, rules)
        if repair:
            if meta.state != "ready":
                raise Halt("the online store is being rebuilt: run `leap rebuild` to its end")
            _wait_for_the_archive(settings, meta, say, pause)
        mending = Repair(store, meta.generation, settings.attempt_memory_ms) if repair else None
        found = archive.check_complete(settings.archive)
        with tempfile.TemporaryDirectory(prefix="leap-audit-") as scratch:
            target = Path(scratch) / "history"
            built = history_build.build_into(target, found, horizon_us=settings.horizon_us, rules=rules, say=say)
            counts: Counter[Verdict] = Counter()
            first: list[Difference] = []
            for pairs in row_compare.compare(store, target, meta, built.ends, say):
                counts.update(pair.verdict for pair in pairs)
                unequal = [pair for pair in pairs if pair.verdict != "equal"]
                first += map(_difference, unequal[: SHOWN - len(first)])
                if mending is not None:
                    mending.rows(unequal)
            attempts: Counter[AttemptVerdict] = Counter()
            first_attempts: list[AttemptDifference] = []
            for differences in _attempts(settings, store, meta, built, now, Path(scratch), say):
                attempts.update(difference.verdict for difference in differences)
                first_attempts += differences[: SHOWN - len(first_attempts)]
                if mending is not None:
                    mending.attempts(differences)
        if _meta(store, rules).generation != meta.generation:
            raise Refused
    except Refused:
        raise Unavailable("the online store was rebuilt, or got a new epoch, during the audit: run it again") from None
    finally:
        store.close()
    return Audit(
        equal=counts["equal"],
        total=counts.total(),
        ahead=counts["ahead"],
        behind=counts["behind"],
        never_archived=counts["never_archived"],
        different=counts["different"],
        only_online=counts["only_online"],
        only_archive=counts["only_archive"],
        attempts=dict(attempts),
        state=meta.state,
        first=first,
        first_attempts=first_attempts,
        mended=mending.result() if mending is not None else None,
    )


def _meta(store: Store, rules: family.Rules) -> Meta:
    meta = store.read_meta()
    if meta is None:
        raise Halt(
            f"the online store has no meta for project {store.project!r}: `leap init` makes it, `leap rebuild` "
            "fills it from the archive"
        )
    if meta.family_rule != rules.version:
        raise Halt(
            f"the online store was made under family rule {meta.family_rule!r}, this audit has {rules.version!r}: "
            "use the same rules (LEAP_FAMILY_RULES)"
        )
    return meta


def _wait_for_the_archive(settings: Settings, meta: Meta, say: Say, pause: Callable[[float], None]) -> None:
    """Wait until the archive has everything that the store had when `meta` was read.

    Raises:
        Unavailable: it does not come to that.
    """
    left_s = settings.archive_within_s + ARCHIVE_LAG_S
    waits = False
    while True:
        ends = archive.end_offsets(settings.archive, meta.epoch)
        lacking = {
            p: range(ends.get(p, 0), offset) for p, offset in meta.checkpoints.items() if ends.get(p, 0) < offset
        }
        if not lacking:
            return
        if left_s <= 0:
            raise Unavailable(
                f"the archive lacks {shown(lacking)} that the online store has taken in, and nothing is mended from "
                "less than all: run `leap archive`, and the repair again"
            )
        if not waits:
            say(f"waits for the archive to come to where the online store is: it lacks {shown(lacking)}")
            waits = True
        pause(LOOK_EVERY_S)
        left_s -= LOOK_EVERY_S


def _attempts(
    settings: Settings,
    store: Store,
    meta: Meta,
    built: Build,
    now: Callable[[], datetime],
    scratch: Path,
    say: Say,
) -> Iterator[list[AttemptDifference]]:
    """The attempts that are not remembered as they should be."""
    with archive_reader.connect(scratch / "spill") as connection:
        first_events.load(connection, history_build.segments_of(built, settings.archive), settings.horizon_us)
        # Brokers' clocks and this one's differ.
        since_us = to_us(now()) - settings.attempt_memory_ms * 1000 + CLOCK_ALLOWANCE_US
        yield from attempt_compare.compare(connection, store, meta, built.ends, since_us, say)


def _difference(pair: Pair) -> Difference:
    return Difference(pair.level.view, pair.key, pair.verdict, pair.differing)


def report(result: Audit) -> Iterator[str]:
    """Lines that say what came out, the last one how many rows are equal."""
    if result.state != "ready":
        yield f"the online store is {result.state}: rows may be missing"
    for difference in result.first:
        fields = ", ".join(
            f"{name} {online!r} online, {own!r} from the archive" for name, (online, own) in _short(difference)
        )
        yield f"{difference.view} {difference.key}: {difference.verdict.replace('_', ' ')}; {fields}"
    for attempt in result.first_attempts:
        yield f"attempt {attempt.attempt_id} ({'succeeded' if attempt.succeeded else 'failed'}): {attempt.verdict}"
    for verdict, meaning in MEANINGS.items():
        count = getattr(result, verdict)
        if verdict != "equal" and count:
            yield f"{count:,} rows {meaning}"
    for kind, count in sorted(result.attempts.items()):
        yield f"{count:,} attempts {attempt_compare.MEANINGS[kind]}"
    if result.mended is not None:
        yield from _mended(result.mended)
    yield f"{result.equal:,} of {result.total:,} rows are equal"


def _mended(mended: Mended) -> Iterator[str]:
    for done, rows in (("written", mended.written), ("removed", mended.removed)):
        if rows:
            yield f"mended: {done} {', '.join(f'{count:,} of {view}' for view, count in sorted(rows.items()))}"
    if mended.attempts:
        yield f"mended: {mended.attempts:,} attempts"
    if mended.left:
        yield f"left as they are: {mended.left:,} that a worker changed meanwhile; run it again"


def _short(difference: Difference) -> list[tuple[str, tuple[Value, Value]]]:
    """The fields that tell most; the state says in one line what the others say in parts."""
    fields = difference.fields
    if difference.verdict in ("only_online", "only_archive"):
        return [(name, fields[name]) for name in ("count", "version") if name in fields]
    return [(name, values) for name, values in fields.items() if name != "state" or len(fields) == 1]

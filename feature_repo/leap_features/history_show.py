"""`leap history show`: the history rows of one job family, as the launcher reads them, and how they changed lately."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from leap_features import family, layout
from leap_features.archive import ArchiveError
from leap_features.events import from_us
from leap_features.family_archive import Change, FamilyArchive
from leap_features.history import MICROSECONDS_PER_DAY, Row, decode_version, features
from leap_features.levels import FAMILY, FAMILY_HARDWARE, FAMILY_SCALE, LEVELS, MODEL_SCALE, Level
from leap_features.meta import Meta, decode_meta, meta_key
from leap_features.natural_units import from_log, shown
from leap_features.row_fields import FEATURE_NAMES, RowFields
from leap_features.settings import Settings
from leap_features.terminal import printable

if TYPE_CHECKING:
    import redis

KEYS_AT_ONCE: Final = 500
SCANNED_AT_ONCE: Final = 5_000
SUGGESTIONS: Final = 3
_FIELDS: Final = {level.view: RowFields(level).all for level in LEVELS}


class UnknownFamily(LookupError):
    """Neither the online store nor the archive has the family; the message names close ones."""


class Question(msgspec.Struct, frozen=True):
    """What is asked for."""

    job_family: str
    hardware_type: str | None = None
    """Only rows and events of this hardware type."""
    trainer_count: int | None = None
    """Only rows and events of this many trainers."""
    days: float | None = None
    """Only events that were recorded in so many last days."""
    limit: int = 20
    """At most so many events, the latest."""

    def wants(self, hardware_type: str, trainer_count: int | None = None) -> bool:
        """Whether rows of that hardware type, and trainer count if any, are asked for."""
        return self.hardware_type in (None, hardware_type) and (
            trainer_count is None or self.trainer_count in (None, trainer_count)
        )


class ShownRow(msgspec.Struct, frozen=True):
    """A history row in natural units. Times are UTC."""

    view: str
    key: dict[str, str | int]
    count: int
    last: float | None
    """Samples per second over all trainers, of the latest success."""
    mean: float | None
    """Geometric, of all successes."""
    std: float | None
    """Of the natural logarithm."""
    last_seen: str | None
    """When the latest success completed."""
    age_days: float | None
    """How long ago that is."""
    failures_since_success: int
    last_hardware_type: str | None
    last_trainer_count: int | None
    last_batch_size: float | None
    recorded_at: str | None
    """The greatest record time that the row has taken in."""
    version: str


class ShownChange(msgspec.Struct, frozen=True):
    """An archived event, and what its family's row was after it, in natural units."""

    position: str
    recorded_at: str
    attempt_id: str
    status: str
    hardware_type: str
    trainer_count: int
    throughput: float | None
    effect: str
    count: int
    last: float | None
    mean: float | None
    failures_since_success: int


class Shown(msgspec.Struct, frozen=True):
    """The answer."""

    job_family: str
    state: str
    """Of the online store: ready, rebuilding or absent."""
    notes: list[str]
    rows: list[ShownRow]
    changes: list[ShownChange] | None
    """None where there is no archive."""


def show(
    client: redis.Redis,
    settings: Settings,
    question: Question,
    *,
    rules: family.Rules,
    now_us: int | None = None,
) -> Shown:
    """What the online store and the archive have of a family.

    Args:
        client: of the online store, bytes in and out.
        now_us: microseconds since 1970 UTC; the clock's by default.

    Raises:
        UnknownFamily: neither has it.
        MetaError: the store is of another schema.
        redis.RedisError: the store does not answer.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    store = _Store(client, settings.project)
    meta = store.meta()
    notes = [*_notes(meta, rules)]
    try:
        with FamilyArchive(
            settings.archive, question.job_family, horizon_us=settings.horizon_us, rules=rules
        ) as archived:
            scales = _with_latest(archived.scales(), store.row(FAMILY, (question.job_family,), now))
            rows = store.rows(question, scales, now)
            since_us = None if question.days is None else now - round(question.days * MICROSECONDS_PER_DAY)
            changes, last = archived.changes(
                question.hardware_type, question.trainer_count, since_us=since_us, limit=question.limit
            )
            if not rows and not last.version and not changes:
                raise _unknown(question.job_family, archived.names_like(SUGGESTIONS))
            notes += _compared(rows, _changing(question), last)
            return Shown(question.job_family, _state(meta), notes, rows, [_shown_change(change) for change in changes])
    except ArchiveError as error:
        notes.append(f"{error}; without it every key of the online store was looked at, and changes are not known")
    rows = store.rows(question, store.scales(question.job_family), now)
    if not rows:
        names = store.families()
        raise _unknown(question.job_family, difflib.get_close_matches(question.job_family, names, SUGGESTIONS))
    return Shown(question.job_family, _state(meta), notes, rows, None)


class _Store:
    """The online store as this command reads it."""

    def __init__(self, client: redis.Redis, project: str) -> None:
        self._client: Any = client  # redis-py's types know texts only
        self._project = project

    def meta(self) -> Meta | None:
        return decode_meta(self._client.hgetall(meta_key(self._project)))

    def row(self, level: Level, key: tuple[str | int, ...], now_us: int) -> ShownRow | None:
        """The row under `key`, None where there is none."""
        return next(self._read([(level, key)], now_us), None)

    def rows(self, question: Question, scales: Iterable[tuple[str, int]], now_us: int) -> list[ShownRow]:
        """The rows of a family that ran at `scales`, at all levels."""
        job_family = question.job_family
        wanted = [scale for scale in scales if question.wants(*scale)]
        keys: list[tuple[Level, tuple[str | int, ...]]] = [(FAMILY, (job_family,))]
        keys += [(FAMILY_HARDWARE, (job_family, hardware)) for hardware in sorted({scale[0] for scale in wanted})]
        keys += [(FAMILY_SCALE, (job_family, *scale)) for scale in wanted]
        keys += [(MODEL_SCALE, (job_family.partition("/")[0], *scale)) for scale in wanted]
        return list(self._read(keys, now_us))

    def _read(self, keys: Iterable[tuple[Level, tuple[str | int, ...]]], now_us: int) -> Iterator[ShownRow]:
        remaining = iter(keys)
        while some := list(islice(remaining, KEYS_AT_ONCE)):
            with self._client.pipeline(transaction=False) as pipeline:
                for level, key in some:
                    pipeline.hmget(layout.entity_key(self._project, level.join_keys, key), _FIELDS[level.view])
                replies = pipeline.execute()
            for (level, key), reply in zip(some, replies, strict=True):
                if any(value is not None for value in reply):
                    yield _shown_row(level, key, reply, now_us)

    def scales(self, job_family: str) -> list[tuple[str, int]]:
        """The (hardware type, trainer count) pairs of a family, by looking at every key."""
        found = {
            (str(by_name["hardware_type"]), int(by_name["trainer_count"]))
            for by_name in self._keys(FAMILY_SCALE)
            if by_name["job_family"] == job_family
        }
        return sorted(found)

    def families(self) -> Iterator[str]:
        """The names of all families, by looking at every key; one may come twice."""
        return (str(by_name["job_family"]) for by_name in self._keys(FAMILY))

    def _keys(self, level: Level) -> Iterator[dict[str, str | int]]:
        prefix = layout.key_prefix(level.join_keys)
        # The prefix has bytes that a pattern would take for its own signs.
        for key in self._client.scan_iter(match=b"*" + self._project.encode(), count=SCANNED_AT_ONCE):
            if key.startswith(prefix):
                try:
                    yield dict(zip(*layout.decode_entity_key(key, self._project), strict=True))
                except layout.LayoutError:
                    continue


def _with_latest(scales: list[tuple[str, int]], row: ShownRow | None) -> list[tuple[str, int]]:
    """`scales`, and the latest run's, which the archive may not have yet."""
    if row is None or row.last_hardware_type is None or row.last_trainer_count is None:
        return scales
    return sorted({*scales, (row.last_hardware_type, row.last_trainer_count)})


def _changing(question: Question) -> Level:
    """The level whose row the changes are shown of."""
    if question.hardware_type is None:
        return FAMILY
    return FAMILY_HARDWARE if question.trainer_count is None else FAMILY_SCALE


def _state(meta: Meta | None) -> str:
    return meta.state if meta else "absent"


def _notes(meta: Meta | None, rules: family.Rules) -> Iterator[str]:
    if meta is None:
        yield "the online store has no meta, so no job is ranked: `leap init`, or `leap rebuild` if it lost its data"
    elif meta.state != "ready":
        yield f"the online store is {meta.state}: rows may be missing, and no job is ranked until it is ready"
    elif meta.family_rule != rules.version:
        yield (
            f"the online store was made under family rule {meta.family_rule!r}, this command has {rules.version!r}: "
            "use the same rules (LEAP_FAMILY_RULES)"
        )


def _compared(rows: Sequence[ShownRow], level: Level, archived: Row) -> Iterator[str]:
    """Whether the row that the changes lead to is the one online; `rows` has at most one of that level."""
    online = {at[:2]: at.offset for row in rows if row.view == level.view for at in decode_version(row.version)}
    own = {at[:2]: at.offset for at in archived.version}
    if any(offset > own.get(lane, -1) for lane, offset in online.items()):
        yield (
            "the online row has events that the archive has not yet: they are not among those below, nor is a row at a "
            "scale that only they have"
        )
    if any(offset > online.get(lane, -1) for lane, offset in own.items()):
        yield "the archive has events that the online row has not: the worker is behind, or `leap audit` says more"


def _unknown(job_family: str, close: Sequence[str]) -> UnknownFamily:
    meant = f"; did you mean {' or '.join(close)}?" if close else ", nor any like it"
    return UnknownFamily(f"no history of family {job_family!r}{meant} (a family is MODEL_TYPE/STEM)")


def _shown_row(level: Level, key: tuple[str | int, ...], reply: Sequence[bytes | None], now_us: int) -> ShownRow:
    *raw, stamp = reply
    value: dict[str, Any] = dict(zip(FEATURE_NAMES, map(layout.decode_value, raw), strict=True))
    seen = value["last_seen"]
    return ShownRow(
        view=level.view,
        key=dict(zip(level.join_keys, key, strict=True)),
        count=value["count"] or 0,
        last=_natural(value["last"]),
        mean=_natural(value["mean"]),
        std=value["std"],
        last_seen=None if seen is None else from_us(seen).isoformat(),
        age_days=None if seen is None else (now_us - seen) / MICROSECONDS_PER_DAY,
        failures_since_success=value["failures_since_success"] or 0,
        last_hardware_type=value["last_hardware_type"],
        last_trainer_count=value["last_trainer_count"],
        last_batch_size=value["last_batch_size"],
        recorded_at=None if stamp is None else from_us(layout.decode_timestamp(stamp)).isoformat(),
        version=value["version"] or "",
    )


def _shown_change(change: Change) -> ShownChange:
    after: dict[str, Any] = features(change.row)
    return ShownChange(
        position=":".join(map(str, change.position)),
        recorded_at=from_us(change.recorded_at_us).isoformat(),
        attempt_id=change.attempt_id,
        status=change.status,
        hardware_type=change.hardware_type,
        trainer_count=change.trainer_count,
        throughput=change.throughput,
        effect=change.effect,
        count=after["count"],
        last=_natural(after["last"]),
        mean=_natural(after["mean"]),
        failures_since_success=after["failures_since_success"],
    )


def _natural(log: float | None) -> float | None:
    return None if log is None else from_log(log)


_TITLES: Final = {
    FAMILY.view: "the family",
    FAMILY_HARDWARE.view: "on one hardware type",
    FAMILY_SCALE.view: "at one scale",
    MODEL_SCALE.view: "other families of the model too, at that scale",
}


def lines(answer: Shown, question: Question) -> Iterator[str]:
    """What the command prints."""
    yield f"family {printable(answer.job_family)}, online store {answer.state}; throughputs in samples/s"
    for note in answer.notes:
        yield f"note: {note}"
    for level in LEVELS:
        of_level = [row for row in answer.rows if row.view == level.view]
        if of_level:
            yield ""
            yield f"{level.view}: {_TITLES[level.view]}"
            yield from _table([_ROW_HEAD, *(_row_cells(row) for row in of_level)])
    if answer.changes:
        yield ""
        yield f"what became of the {_changing(question).view} row, by the latest events (recorded at, UTC)"
        yield from _table([_CHANGE_HEAD, *(_change_cells(change) for change in answer.changes)])
    elif answer.changes is not None:
        yield ""
        yield "no archived event" + ("" if question.days is None else f" in the last {question.days:g} days")


_ROW_HEAD: Final = ("key", "runs", "last", "mean", "std", "last seen (UTC)", "age", "failures", "latest run")


def _row_cells(row: ShownRow) -> tuple[str, ...]:
    run = "–"
    if row.last_hardware_type is not None:
        run = f"{row.last_trainer_count} × {printable(row.last_hardware_type)}, batch {row.last_batch_size:g}"
    return (
        _key(row.key),
        f"{row.count:,}",
        _rate(row.last),
        _rate(row.mean),
        "–" if row.std is None else f"{row.std:.3f}",
        "–" if row.last_seen is None else row.last_seen[:19].replace("T", " "),
        "–" if row.age_days is None else _age(row.age_days),
        str(row.failures_since_success),
        run,
    )


def _key(key: dict[str, str | int]) -> str:
    scale = f"{key['trainer_count']} × " if "trainer_count" in key else ""
    return f"{scale}{printable(str(key['hardware_type']))}" if "hardware_type" in key else "all runs"


_CHANGE_HEAD: Final = ("recorded at", "run on", "throughput", "runs", "last", "mean", "failures", "position", "attempt")


def _change_cells(change: ShownChange) -> tuple[str, ...]:
    after = (f"{change.count:,}", _rate(change.last), _rate(change.mean), str(change.failures_since_success))
    if change.effect != "counted":
        after = ("without effect:", change.effect.replace("_", " "), "", "")
    return (
        change.recorded_at[:19].replace("T", " "),
        f"{change.trainer_count} × {printable(change.hardware_type)}",
        _rate(change.throughput) if change.status == "succeeded" else change.status,
        *after,
        change.position,
        printable(change.attempt_id),
    )


def _rate(value: float | None) -> str:
    return "–" if value is None else shown(value)


def _age(days: float) -> str:
    if days >= 2:
        return f"{days:.1f} d"
    return f"{days * 24:.1f} h" if days * 24 >= 2 else f"{days * 1440:.1f} min"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of equal width, the first and the last to the left, numbers between them to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if at in (0, len(row) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()

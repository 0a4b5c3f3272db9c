"""The list of events that a chaos run sends: all kinds that a fleet may send, each with what it ought to come to.

Nothing here uses the product: a record says by itself whether it is valid, which rule it breaks, and what it reports.
All choices come from one random generator. Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate, product
from typing import Any, Final, Literal, NamedTuple

NUMBER_HEADER: Final = "chaos-number"
"""Names the record in the list: by it, a record that is read back is known again."""
REPLAY: Final = ("leap-replay", b"1")

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
HORIZON_US: Final = 7 * DAY_US

SHARE_OF_DUPLICATES: Final = 0.05
SHARE_OF_INVALID: Final = 0.01
SHARE_OUT_OF_ORDER: Final = 0.10
REPLAYED_AT_ONCE: Final = 30
"""An operator replays what came too late, some events in a row."""

Partitioner = Literal["murmur2_random", "consistent_random"]
PARTITIONERS: Final[tuple[Partitioner, ...]] = ("murmur2_random", "consistent_random")
"""Java's, and librdkafka's default."""

HARDWARE: Final = (
    "H100-SXM-80",
    "A100-SXM-80",
    "A100-PCIE-40",
    "V100-SXM2-32",
    "L4",
    "TPU-v5e",
    "MI300X",
    "Eigenbau é",
)
EAST: Final = timezone(timedelta(hours=5, minutes=30))

Document = dict[str, Any]
"""An event's JSON, its times still as datetimes."""


class Size(NamedTuple):
    """How large a run is."""

    events: int
    families: int
    portions: int
    """Parts of the list; something happens to the deployment while each of them is sent."""


class Attempt(NamedTuple):
    """What a valid event reports."""

    attempt_id: str
    status: str
    completed_at_us: int
    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int
    throughput: float | None
    batch_size: float


class Record(NamedTuple):
    """One record of the list."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partitioner: Partitioner
    attempt: Attempt | None
    """None where the record breaks a rule."""
    rule: str
    """The rule that it breaks; empty where it breaks none."""


class _Family(NamedTuple):
    model_type: str
    stem: str
    given: bool
    """Whether its events name the stem, or leave it to be derived from the job's name."""
    hardware: tuple[str, ...]
    trainers: tuple[int, ...]
    fails: float
    """Share of its attempts that fail."""


class _Told(NamedTuple):
    """A valid event, and the record by which it was told first."""

    document: Document
    attempt: Attempt
    record: Record


def portions_of(size: Size, seed: int, began_us: int) -> list[list[Record]]:
    """The list in the order of sending, cut into portions; the same seed gives the same list, moved to `began_us`."""
    return _Fleet(size, random.Random(seed), began_us).portions()


class _Fleet:
    def __init__(self, size: Size, rng: random.Random, began_us: int) -> None:
        self._size = size
        self._rng = rng
        self._began_us = began_us
        self._families = _families(size.families, rng)
        self._weights = list(accumulate(1 / (rank + 10) for rank in range(len(self._families))))
        self._unseen = list(self._families)
        self._number = 0
        self._told: list[_Told] = []
        self._failed: list[_Told] = []
        """Failed attempts that have not succeeded after all."""
        self._repeated: set[str] = set()
        self._disputed: set[str] = set()
        """Attempts of which another content was sent. An attempt is never both: across partitions there is no order to
        say which content was first."""

    def portions(self) -> list[list[Record]]:
        size = self._size
        ends = [size.events * (portion + 1) // size.portions for portion in range(size.portions)]
        # A conflict needs the first event in its own partition, and partitions are added between portions alone.
        return [self._portion(end, self._number) for end in ends]

    def _portion(self, end: int, begin: int) -> list[Record]:
        rng = self._rng
        records: list[Record] = []
        told_before = len(self._told)
        replays_at = rng.randrange(begin, end) if rng.random() < 0.25 else end
        while self._number < end:
            chance = rng.random()
            if replays_at <= self._number < replays_at + REPLAYED_AT_ONCE:
                records.append(self._event(replayed=True))
            elif chance < SHARE_OF_INVALID / 3:
                records.append(self._conflict(self._told[told_before:][-300:]))
            elif chance < SHARE_OF_INVALID:
                records.append(self._broken())
            elif chance < SHARE_OF_INVALID + SHARE_OF_DUPLICATES:
                records.append(self._duplicate())
            else:
                records.append(self._event())
        return records

    def _event(self, *, replayed: bool = False) -> Record:
        """A valid event: a new attempt, or one that failed before and has succeeded now."""
        rng = self._rng
        completed_us = self._completed_us()
        if replayed:
            completed_us -= HORIZON_US + rng.randrange(20 * DAY_US)
        if self._failed and rng.random() < 0.02:
            failed = self._failed.pop(rng.randrange(len(self._failed)))
            attempt, document = self._succeeded_after_all(failed, completed_us)
        else:
            attempt, document = self._new_attempt(completed_us)
        headers = (REPLAY,) if replayed else rng.choice(((), (), (("trace", b"\x00\xff"),), (("trace", None),)))
        key = attempt.model_type.encode() if rng.random() > 0.005 else None
        record = self._record(key, self._json(document), headers, attempt)
        told = _Told(document, attempt, record)
        self._told.append(told)
        if attempt.status == "failed":
            self._failed.append(told)
        return record

    def _completed_us(self) -> int:
        rng = self._rng
        # In order, the list spans 50 minutes of the hour before the run.
        at_us = self._began_us - HOUR_US + 50 * MINUTE_US * self._number // self._size.events
        if rng.random() < SHARE_OUT_OF_ORDER:
            at_us -= rng.randrange(rng.choice((MINUTE_US, HOUR_US, 6 * DAY_US)))
        # Some complete at the same instant: the attempt's name decides then.
        return at_us - at_us % MINUTE_US if rng.random() < 0.02 else at_us

    def _new_attempt(self, completed_us: int) -> tuple[Attempt, Document]:
        rng = self._rng
        if self._unseen and rng.random() < 0.5:
            family = self._unseen.pop()
        else:
            (family,) = rng.choices(self._families, cum_weights=self._weights)
        status = "failed" if rng.random() < family.fails else "succeeded"
        if rng.random() < 0.04:
            status = rng.choice(("cancelled", "preempted"))
        throughput = rng.choice((1e-9, 1e15, 99.9999999)) if rng.random() < 0.01 else rng.lognormvariate(5, 2)
        attempt = Attempt(
            attempt_id=f"{rng.choice(('attempt', 'läufe-漢字', 'a'))}-{self._number}",
            status=status,
            completed_at_us=completed_us,
            job_family=f"{family.model_type}/{family.stem}",
            model_type=family.model_type,
            hardware_type=rng.choice(family.hardware),
            trainer_count=rng.choice(family.trainers),
            throughput=throughput if status == "succeeded" else rng.choice((None, 7.0)),
            batch_size=rng.choice((0.0, 8.0, 32.0, 32.5, 1 / 3, 1024.0)),
        )
        document = {
            "schema_version": 1,
            "attempt_id": attempt.attempt_id,
            "job_name": f"{family.stem}-run{self._number}",
            "model_type": attempt.model_type,
            "hardware_type": attempt.hardware_type,
            **_times(completed_us),
            "status": status,
            "trainer_count": attempt.trainer_count,
            "reader_count": rng.randrange(32),
            "batch_size": attempt.batch_size,
            "config": {"precision": "bf16", "layers": rng.randrange(100)},
        }
        if family.given:
            document |= {"job_name": f"whatever-{self._number}", "job_family": family.stem}
        if attempt.throughput is not None:
            document["throughput"] = attempt.throughput
        return attempt, document

    def _succeeded_after_all(self, failed: _Told, completed_us: int) -> tuple[Attempt, Document]:
        throughput = self._rng.lognormvariate(5, 2)
        attempt = failed.attempt._replace(status="succeeded", throughput=throughput, completed_at_us=completed_us)
        document = failed.document | _times(completed_us) | {"status": "succeeded", "throughput": throughput}
        return attempt, document

    def _duplicate(self) -> Record:
        """An event once more, by either partitioner, its JSON written in another way; mostly a recent one."""
        rng = self._rng
        among = self._told[-500:] if rng.random() < 0.7 else self._told
        told = rng.choice(among) if among else None
        if told is None or told.attempt.attempt_id in self._disputed:
            return self._event()
        self._repeated.add(told.attempt.attempt_id)
        key = told.attempt.model_type.encode()
        return self._record(key, self._json(told.document), told.record.headers, told.attempt)

    def _conflict(self, recent: list[_Told]) -> Record:
        """Another content under the attempt and status of a recent event, by the same key and partitioner.

        So both come to one partition, whose order says which was first.
        """
        candidates = [
            told
            for told in recent
            if told.attempt.status in ("succeeded", "failed")
            and told.record.key is not None
            and told.attempt.attempt_id not in self._repeated
        ]
        if not candidates:
            return self._broken()
        told = self._rng.choice(candidates)
        self._disputed.add(told.attempt.attempt_id)
        value = self._json(told.document | {"trainer_count": told.attempt.trainer_count + 1})
        record = self._record(told.record.key, value, told.record.headers, None, "conflicting_attempt")
        return record._replace(partitioner=told.record.partitioner)

    def _broken(self) -> Record:
        """A record that breaks a rule all by itself."""
        rng = self._rng
        attempt, document = self._new_attempt(self._completed_us())
        rule = rng.choice((*_CHANGES, "json", "empty", "size", "too_late", "from_the_future"))
        value: bytes | None
        match rule:
            case "json":
                value = rng.choice((b"", b"not JSON", b'["a list"]', b"\xff\xfe", self._json(document)[:-1]))
            case "empty":
                value = None
            case "size":
                value = self._json(document | {"config": {"note": "x" * 66_000}})
            case "too_late":
                value = self._json(document | _times(self._began_us - HORIZON_US - HOUR_US - rng.randrange(9 * DAY_US)))
            case "from_the_future":
                value = self._json(document | _times(self._began_us + DAY_US + rng.randrange(DAY_US)))
            case _:
                change = _CHANGES[rule]
                value = self._json({name: v for name, v in (document | change).items() if v is not ...})
        key = rng.choice((attempt.model_type.encode(), None, b"", b"\xff"))
        return self._record(key, value, (), None, rule.partition(":")[0])

    def _json(self, document: Document) -> bytes:
        """`document` in one of the ways in which clients write the same JSON."""
        rng = self._rng
        zone = rng.choice((UTC, EAST))
        names = list(document)
        rng.shuffle(names)
        plain = {
            name: value.astimezone(zone).isoformat() if isinstance(value := document[name], datetime) else value
            for name in names
        }
        return json.dumps(plain, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1))).encode()

    def _record(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        attempt: Attempt | None,
        rule: str = "",
    ) -> Record:
        number = self._number
        self._number += 1
        headers = (*headers, (NUMBER_HEADER, str(number).encode()))
        return Record(number, key, value, headers, self._rng.choice(PARTITIONERS), attempt, rule)


_CHANGES: Final[dict[str, Document]] = {
    "attempt_id": {"attempt_id": ...},
    "hardware_type": {"hardware_type": ""},
    "job_family": {"job_family": " \t"},
    "job_name": {"job_name": "n" * 513},
    "model_type": {"model_type": "vision/resnet"},
    "schema_version": {"schema_version": 2},
    "started_at": {"started_at": "2026-03-01T00:00:00"},
    "completed_at": {"completed_at": "yesterday"},
    "status": {"status": "done"},
    "throughput": {"status": "succeeded", "throughput": 0},
    "throughput:text": {"throughput": "1234"},
    "throughput:absent": {"status": "succeeded", "throughput": ...},
    "time_order": {"completed_at": datetime(2020, 1, 1, tzinfo=UTC)},
    "trainer_count": {"trainer_count": 0},
    "batch_size": {"batch_size": -1},
    "config": {"config": {"a": [1]}},
    "unknown_field": {"batchsize": 32},
}
"""Rule (and kind of offence) → what of a valid event breaks it; ... takes the field away."""


def _times(completed_us: int) -> Document:
    completed = datetime.fromtimestamp(completed_us // 1_000_000, UTC).replace(microsecond=completed_us % 1_000_000)
    return {
        "submitted_at": completed - timedelta(hours=2),
        "started_at": completed - timedelta(hours=1),
        "completed_at": completed,
    }


def _families(count: int, rng: random.Random) -> list[_Family]:
    models = [f"model-{word}" for word in _words(max(4, count // 25))]
    stems = [f"{first}-{second}" for first, second in product(_words(100), repeat=2)]
    return [
        _Family(
            model_type=rng.choice(models),
            stem=stem,
            given=rng.random() < 0.5,
            hardware=tuple(rng.sample(HARDWARE, 3)),
            trainers=tuple(rng.sample((1, 2, 4, 8, 16, 64, 512), 3)),
            # Some families nearly always fail: with more than 16 failures in a row their number saturates.
            fails=0.95 if rng.random() < 0.05 else 0.1,
        )
        for stem in rng.sample(stems, count)
    ]


def _words(count: int) -> Iterator[str]:
    """Different made-up words, of letters alone: nothing in them looks like an id or a counter."""
    syllables = [consonant + vowel for consonant, vowel in product("bdfklmprz", "aeiou")]
    for number in range(count):
        yield syllables[number % 45] + syllables[number * 7 // 45 % 45] + syllables[(number // 45 + 3) % 45] + "n"

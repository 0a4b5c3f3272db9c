"""Whether everything came out as the oracle says, once the deployment has come to the end of the topic."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
import pytest
import redis

from chaos.deployment import DEAD_LETTER_TOPIC, PROJECT, TOPIC, Deployment
from chaos.events import NUMBER_HEADER, Record
from chaos.oracle import LEVELS, UNIT, Expected, Key, Place, Stored, dead_letters_of, rows_of
from leap_features import archive, layout
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_streams.dead_letter import HEADER_PREFIX
from stream_process import read_topic

LIMIT_S: Final = 900.0
"""After this a backlog is no backlog any more, however busy the machine."""
SHOWN: Final = 5
AT_ONCE: Final = 1_000


class Findings:
    """What was compared, and every difference."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[str] = []

    def compare(self, what: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
        """Count what is equal, and note what is not."""
        equal = 0
        for key in found.keys() | expected.keys():
            if found.get(key) == expected.get(key):
                equal += 1
            else:
                self.differ(f"{what}, {key}: found {found.get(key)}, expected {expected.get(key)}")
        self.counts[f"{what} equal"] = equal

    def differ(self, difference: str) -> None:
        """Note a difference."""
        self.differences.append(difference)


def wait_for_the_end(deployment: Deployment, stored: Sequence[Stored]) -> None:
    """Return once worker and archive app have everything that the topic has.

    Raises:
        TimeoutError: they come to no end; with the ends of all logs.
    """
    ends: dict[int, int] = {}
    for one in stored:
        ends[one.partition] = max(ends.get(one.partition, 0), one.offset + 1)

    def done() -> bool:
        meta = deployment.meta()
        return meta is not None and meta.checkpoints == ends == deployment.archived()

    deployment.wait_until(done, LIMIT_S, f"worker and archive at the end of the topic, {ends}")


def read_back(deployment: Deployment, records: Sequence[Record], findings: Findings) -> list[Stored]:
    """The topic's records, each known again by its number."""
    times: Counter[int] = Counter()
    stored = []
    for delivery in read_topic(deployment.settings, TOPIC):
        number = int(dict(delivery.headers)[NUMBER_HEADER] or b"")
        record = records[number]
        times[number] += 1
        if (delivery.key, delivery.value, delivery.headers) != (record.key, record.value, record.headers):
            findings.differ(f"record {number} came back as {delivery}")
        stored.append(Stored(delivery.partition, delivery.offset, delivery.recorded_at_us, record))
    findings.compare("records in the topic", times, {record.number: 1 for record in records})
    return stored


def check_online(deployment: Deployment, stored: Sequence[Stored], findings: Findings) -> None:
    """Compare the rows of the online store with the oracle's."""
    expected = {key: _shown(row) for key, row in rows_of(stored, FIRST_LIVE_EPOCH).items()}
    findings.compare("rows online", dict(_online(deployment)), expected)


def check(deployment: Deployment, stored: Sequence[Stored], findings: Findings) -> None:
    """Compare everything else with the oracle; the processes have been stopped."""
    expected = {key: _shown(row) for key, row in rows_of(stored, FIRST_LIVE_EPOCH).items()}
    _check_dead_letters(deployment, stored, findings)
    _check_archive(deployment, stored, findings)
    for command in (["audit"], ["history", "build"]):
        with deployment.command(*command) as process:
            if process.wait(LIMIT_S) != 0:
                findings.differ(f"leap {' '.join(command)}: {process.log.read_text()[-2000:]}")
    findings.compare("rows built", dict(_built(Path(deployment.settings.history))), expected)


class _Row(NamedTuple):
    """What a row says: its state as parsed JSON, and the features that it serves."""

    state: list[Any]
    version: str
    recorded_at_us: int
    features: dict[str, Any]


def _shown(row: Expected) -> _Row:
    n, sum_x, sum_xx, sum_log_trainers, n_batch, sum_log_batch, latest, failures = row.state
    completed_us, _, x, hardware, trainers, batch = latest or [None] * 6
    variance = Fraction(int(sum_xx), n) - Fraction(sum_x, n) ** 2 if n else None
    return _Row(
        row.state,
        row.version,
        row.recorded_at_us,
        {
            "count": n,
            "last": None if x is None else x / UNIT,
            "last_seen": completed_us,
            "failures_since_success": len(failures),
            "last_hardware_type": hardware,
            "last_trainer_count": trainers,
            "last_batch_size": batch,
            "mean": _near(Fraction(sum_x, n * UNIT)) if n else None,
            "std": None if variance is None else _near(math.sqrt(variance) / UNIT),
            "mean_log_trainers": _near(Fraction(sum_log_trainers, n * UNIT)) if n else None,
            "mean_log_batch": _near(Fraction(sum_log_batch, n_batch * UNIT)) if n_batch else None,
        },
    )


def _near(value: Fraction | float) -> Any:
    """Equal to every float that is near `value`: means are rounded, the sums that they come from are not."""
    return pytest.approx(float(value), rel=1e-12, abs=0)


FEATURES: Final = (
    "count",
    "last",
    "last_seen",
    "failures_since_success",
    "last_hardware_type",
    "last_trainer_count",
    "last_batch_size",
    "mean",
    "std",
    "mean_log_trainers",
    "mean_log_batch",
)


def _online(deployment: Deployment) -> Iterator[tuple[Key, _Row]]:
    """Every history row of the online store."""
    views = {tuple(sorted(names)): (view, names) for view, names in LEVELS.items()}
    with redis.Redis.from_url(deployment.redis.master.url) as client:
        keys = set(client.scan_iter(match=b"*" + PROJECT.encode(), count=AT_ONCE))
        for some in _batches(keys):
            pipeline = client.pipeline(transaction=False)
            for raw in some:
                pipeline.hgetall(raw)
            for raw, fields in zip(some, pipeline.execute(), strict=True):
                names, values = layout.decode_entity_key(raw, PROJECT)
                if names not in views:
                    continue  # Feast keeps rows of other views there too
                view, in_order = views[names]
                by_name = dict(zip(names, values, strict=True))
                served = {
                    name: layout.decode_value(fields.get(layout.field(view, name)))
                    for name in (*FEATURES, "state", "version")
                }
                stamp = layout.decode_timestamp(fields[layout.timestamp_field(view)])
                yield (view, tuple(by_name[name] for name in in_order)), _row_of(served, stamp)


def _built(history: Path) -> Iterator[tuple[Key, _Row]]:
    """The latest history row of every key, as `leap history build` wrote it."""
    for view, names in LEVELS.items():
        table = pq.read_table(history / view).sort_by("event_timestamp")
        stamps = table["event_timestamp"].cast("timestamp[us]").cast("int64").to_pylist()
        # A later row of a key takes the place of an earlier one.
        for row, stamp in zip(table.to_pylist(), stamps, strict=True):
            yield (view, tuple(row[name] for name in names)), _row_of(row, stamp)


def _row_of(served: Mapping[str, Any], stamp: int) -> _Row:
    return _Row(json.loads(served["state"]), served["version"], stamp, {name: served[name] for name in FEATURES})


def _check_dead_letters(deployment: Deployment, stored: Sequence[Stored], findings: Findings) -> None:
    """The dead-letter topic has the invalid records, whole, and nothing else; a letter may be there twice."""
    sent = {(one.partition, one.offset): one.record for one in stored}
    letters: dict[Place, str] = {}
    for letter in read_topic(deployment.settings, DEAD_LETTER_TOPIC):
        own = {n.removeprefix(HEADER_PREFIX): v or b"" for n, v in letter.headers if n.startswith(HEADER_PREFIX)}
        place = int(own["partition"]), int(own["offset"])
        letters[place] = own["rule"].decode()
        record = sent[place]
        headers = tuple(pair for pair in letter.headers if not pair[0].startswith(HEADER_PREFIX))
        if (letter.key, letter.value, headers) != (record.key, record.value, record.headers):
            findings.differ(f"the dead letter of {place} is not the record: {letter}")
        findings.counts["dead letters written"] += 1
    findings.compare("dead letters", letters, dead_letters_of(stored))


def _check_archive(deployment: Deployment, stored: Sequence[Stored], findings: Findings) -> None:
    """The archive has every record that is an event, once and at its place, and covers every offset."""
    root = deployment.settings.archive
    segments = archive.check_complete(root)
    findings.counts["segments"] = len(segments)
    names = ("partition", "offset", "recorded_at", "attempt_id", "status")
    with archive.connect() as connection:
        rows = connection.execute(
            f'SELECT partition, "offset", epoch_us(recorded_at), attempt_id, status '
            f"FROM ({archive.relation(segments, names)})"
        ).fetchall()
    expected = {}
    for one in stored:
        # What breaks a rule that needs the broker's time, or other events, is an event all the same.
        if one.record.attempt or one.record.rule in ("too_late", "from_the_future", "conflicting_attempt"):
            document = json.loads(one.record.value or b"")
            expected[one.partition, one.offset, one.recorded_at_us, document["attempt_id"], document["status"]] = 1
    findings.compare("archived events", Counter(rows), expected)


def _batches(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    remaining = iter(items)
    while batch := list(islice(remaining, AT_ONCE)):
        yield batch

"""`leap history show` on a Redis that the writer filled and an archive of the same events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from click.testing import CliRunner, Result

from archived_events import MINUTE_US, event
from events_strategies import BASE
from leap_features import archive, layout
from leap_features.command import leap
from leap_features.events import CompletionEvent, encode, from_us, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.family_archive import FamilyArchive
from leap_features.history import Position
from leap_features.history_show import Question, UnknownFamily, show
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.store import Store, session_of
from oracle import stored_rows
from services import RedisServer
from stored_history import store_meta

FAMILY = "ranker/ranker-prod"
NOW_US = to_us(BASE) + 120 * MINUTE_US


@pytest.fixture
def settings(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Settings:
    store_meta(redis_client, project)
    return Settings(redis_url=redis_server.url, project=project, archive=str(tmp_path / "archive"))


@pytest.fixture
def history(settings: Settings) -> Callable[..., Result]:
    """`leap history ARGUMENTS…`."""
    env = {
        "LEAP_REDIS_URL": settings.redis_url,
        "LEAP_PROJECT": settings.project,
        "LEAP_ARCHIVE": settings.archive,
    }
    return lambda *arguments, **more: CliRunner().invoke(leap, ["history", *arguments], env=env | more)


def take_in(
    settings: Settings,
    events: Sequence[CompletionEvent],
    *,
    first: int = 0,
    archived: bool = True,
    lag_us: int = MINUTE_US,
) -> None:
    """What worker and archive app do with `events`, each recorded a minute after it completed unless told otherwise."""
    deliveries = [
        Delivery(0, first + at, to_us(event.completed_at) + lag_us, encode(event)) for at, event in enumerate(events)
    ]
    store = Store(settings)
    meta = store.read_meta()
    assert meta is not None
    HistoryWriter(settings, store, None).write(deliveries, session_of(meta), FIRST_LIVE_EPOCH)
    store.close()
    if archived:
        archive.create(settings.archive)
        records = [
            archive.to_record(event, Position(FIRST_LIVE_EPOCH, 0, d.offset), d.recorded_at_us, d.replay)
            for event, d in zip(events, deliveries, strict=True)
        ]
        last = first + len(events) - 1
        archive.write_segment(settings.archive, FIRST_LIVE_EPOCH, 0, first, last, records)


RUNS = [
    event("a", 0, throughput=1000.0),
    event("b", 1, throughput=4000.0),
    event("c", 2, throughput=500.0, trainer_count=16),
    event("d", 3, status="failed", throughput=None),
    event("e", 4, throughput=800.0, hardware_type="A100-SXM-80"),
    event("o", 5, throughput=9000.0, job_name="ranker-other"),
    event("b", 1, throughput=4000.0),
    event("b", 1, throughput=4001.0),
    event("x", 6, status="cancelled", throughput=None),
]


def test_every_row_of_the_family_is_shown_in_samples_per_second(
    settings: Settings, redis_client: redis.Redis, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS)
    shown = history("show", FAMILY, "--json")
    assert shown.exit_code == 0, shown.output
    answer = json.loads(shown.output)
    assert (answer["state"], answer["notes"]) == ("ready", [])
    rows = {(row["view"], tuple(row["key"].values())): row for row in answer["rows"]}
    stored = stored_rows(redis_client, settings.project)
    scales = [("A100-SXM-80", 8), ("H100-SXM-80", 8), ("H100-SXM-80", 16)]
    assert list(rows) == [
        ("family_history", (FAMILY,)),
        ("family_hardware_history", (FAMILY, "A100-SXM-80")),
        ("family_hardware_history", (FAMILY, "H100-SXM-80")),
        *(("family_scale_history", (FAMILY, *scale)) for scale in scales),
        *(("model_scale_history", ("ranker", *scale)) for scale in scales),
    ]
    for key, row in rows.items():
        assert row["count"] == stored[key]["count"]
        assert row["version"] == stored[key]["version"]
        assert row["std"] == stored[key]["std"]
    family = rows["family_history", (FAMILY,)]
    assert family["count"] == 4
    assert family["last"] == pytest.approx(800)
    assert family["mean"] == pytest.approx((1000 * 4000 * 500 * 800) ** 0.25)
    assert family["last_seen"] == (BASE + timedelta(minutes=4)).isoformat()
    assert rows["family_hardware_history", (FAMILY, "H100-SXM-80")]["failures_since_success"] == 1
    assert rows["model_scale_history", ("ranker", "H100-SXM-80", 8)]["last"] == pytest.approx(9000)


def test_each_event_is_shown_with_what_the_row_became_or_that_it_changed_nothing(
    settings: Settings, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS)
    take_in(settings, [event("late", -1, throughput=3.0)], first=9, lag_us=9 * 24 * 60 * MINUTE_US)
    changes = json.loads(history("show", FAMILY, "--json").output)["changes"]
    found = [(c["position"].rpartition(":")[2], c["effect"], c["count"], round(c["last"])) for c in changes]
    assert found == [
        ("0", "counted", 1, 1000),
        ("1", "counted", 2, 4000),
        ("2", "counted", 3, 500),
        ("3", "counted", 3, 500),
        ("4", "counted", 4, 800),
        ("6", "duplicate", 4, 800),
        ("7", "conflict", 4, 800),
        ("8", "cancelled", 4, 800),
        ("9", "too_late", 4, 800),
    ]
    lines = history("show", FAMILY).output.splitlines()
    assert sum("without effect" in line for line in lines) == 4


def test_hardware_trainers_days_and_limit_narrow_what_is_shown(settings: Settings) -> None:
    take_in(settings, RUNS)

    def asked(**question: Any) -> tuple[list[str], list[tuple[str, int]]]:
        with redis.Redis.from_url(settings.redis_url) as client:
            answer = show(client, settings, Question(FAMILY, **question), rules=DEFAULT_RULES, now_us=NOW_US)
        assert answer.notes == []
        keys = [":".join(str(part) for part in list(row.key.values())[1:]) for row in answer.rows]
        return keys, [(change.attempt_id, change.count) for change in answer.changes or []]

    assert asked(hardware_type="A100-SXM-80") == (["", "A100-SXM-80", *2 * ["A100-SXM-80:8"]], [("e", 1)])
    assert asked(hardware_type="H100-SXM-80", trainer_count=16) == (
        ["", "H100-SXM-80", *2 * ["H100-SXM-80:16"]],
        [("c", 1)],
    )
    assert asked(trainer_count=16) == (["", "H100-SXM-80", *2 * ["H100-SXM-80:16"]], [("c", 3)])
    assert asked(limit=2)[1] == [("b", 4), ("x", 4)]
    assert asked(days=116.5 / 1440)[1] == [("d", 3), ("e", 4), ("x", 4)]
    assert asked(days=1e-6)[1] == []


def test_a_family_that_the_archive_has_not_yet_is_shown_at_its_latest_scale(
    settings: Settings, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS[:2])
    take_in(settings, [event("new", 9, trainer_count=64)], first=2, archived=False)
    answer = json.loads(history("show", FAMILY, "--json").output)
    assert ["events that the archive has not yet" in note for note in answer["notes"]] == [True]
    assert [row["key"]["trainer_count"] for row in answer["rows"] if row["view"] == "family_scale_history"] == [8, 64]


def test_a_row_that_lacks_what_is_archived_is_noted(settings: Settings, redis_client: redis.Redis) -> None:
    take_in(settings, RUNS)
    redis_client.flushall()
    store_meta(redis_client, settings.project)
    answer = show(redis_client, settings, Question(FAMILY), rules=DEFAULT_RULES)
    assert ["the worker is behind" in note for note in answer.notes] == [True]
    assert answer.rows == []
    assert answer.changes


def test_without_an_archive_every_key_is_looked_at(
    settings: Settings, redis_client: redis.Redis, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS)
    with_archive = show(redis_client, settings, Question(FAMILY), rules=DEFAULT_RULES, now_us=NOW_US)
    nowhere = msgspec.structs.replace(settings, archive="/nowhere")
    without = show(redis_client, nowhere, Question(FAMILY), rules=DEFAULT_RULES, now_us=NOW_US)
    assert without.rows == with_archive.rows
    assert without.changes is None
    assert ["every key of the online store was looked at" in note for note in without.notes] == [True]
    assert "/nowhere is no archive" in history("show", FAMILY, LEAP_ARCHIVE="/nowhere").output


@pytest.mark.parametrize("root", ["", "/nowhere"])
def test_an_unknown_family_is_refused_with_those_that_it_may_be(
    settings: Settings, history: Callable[..., Result], root: str
) -> None:
    take_in(settings, RUNS)
    unknown = history("show", "ranker/ranker-prd", LEAP_ARCHIVE=root or settings.archive)
    assert unknown.exit_code == 1
    assert (
        "no history of family 'ranker/ranker-prd'; did you mean ranker/ranker-prod or ranker/ranker-o" in unknown.output
    )
    far = history("show", "zzz", LEAP_ARCHIVE=root or settings.archive)
    assert "nor any like it" in far.output


@pytest.mark.parametrize(
    ("meta", "says"),
    [({"state": "rebuilding"}, "is rebuilding: rows may be missing"), ({"family_rule": "9"}, "rule '9'")],
)
def test_what_the_store_says_about_itself_is_noted(
    settings: Settings, redis_client: redis.Redis, history: Callable[..., Result], meta: dict[str, str], says: str
) -> None:
    take_in(settings, RUNS)
    store_meta(redis_client, settings.project, **meta)
    assert says in history("show", FAMILY).output


def test_a_store_without_meta_or_of_another_schema_is_named(
    settings: Settings, redis_client: redis.Redis, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS)
    redis_client.delete(f"leap:{settings.project}:meta")
    absent = history("show", FAMILY)
    assert absent.exit_code == 0
    assert "online store absent" in absent.output
    store_meta(redis_client, settings.project, schema="99")
    other = history("show", FAMILY)
    assert other.exit_code == 1
    assert "schema version '99'" in other.output
    down = history("show", FAMILY, LEAP_REDIS_URL="redis://:secret@127.0.0.1:1/0")
    assert down.exit_code == 1
    assert "Redis at redis://:***@127.0.0.1:1/0" in down.output


def test_a_row_that_no_fold_wrote_is_named(
    settings: Settings, redis_client: redis.Redis, history: Callable[..., Result]
) -> None:
    take_in(settings, RUNS)
    key = layout.entity_key(settings.project, ("job_family",), (FAMILY,))
    redis_client.hset(key, layout.field("family_history", "version"), layout.encode_value("1:2"))
    damaged = history("show", FAMILY)
    assert damaged.exit_code == 1
    assert damaged.output.startswith("Error: not a position vector: '1:2'; run")
    redis_client.hset(key, layout.field("family_history", "last"), b"\xff")
    assert "not a Feast value" in history("show", FAMILY).output


def test_names_that_a_terminal_would_obey_are_shown_escaped(settings: Settings, history: Callable[..., Result]) -> None:
    take_in(settings, [event("\x1b[2J", 0, hardware_type="odd\ntype")])
    lines = history("show", FAMILY).output.splitlines()
    assert all(line.isprintable() for line in lines)
    assert any("\\x1b[2J" in line for line in lines)


def test_a_family_is_found_under_the_rules_of_today(settings: Settings) -> None:
    archive.create(settings.archive)
    record = archive.to_record(RUNS[0], Position(FIRST_LIVE_EPOCH, 0, 0), to_us(BASE), replay=False)
    archive.write_segment(
        settings.archive, FIRST_LIVE_EPOCH, 0, 0, 0, [record | {"job_family": "ranker/otherwise", "family_rule": "old"}]
    )
    with FamilyArchive(settings.archive, FAMILY, horizon_us=settings.horizon_us, rules=DEFAULT_RULES) as family:
        changes, _ = family.changes(None, None, since_us=None, limit=5)
    assert [change.attempt_id for change in changes] == ["a"]
    with FamilyArchive(
        settings.archive, "ranker/otherwise", horizon_us=settings.horizon_us, rules=DEFAULT_RULES
    ) as family:
        assert family.changes(None, None, since_us=None, limit=5)[0] == []


def test_an_attempt_that_another_family_had_first_is_a_conflict(settings: Settings, redis_client: redis.Redis) -> None:
    take_in(settings, [event("a", 0, job_name="ranker-other"), event("a", 1), event("b", 2)])
    answer = show(redis_client, settings, Question(FAMILY), rules=DEFAULT_RULES)
    assert [(c.attempt_id, c.effect) for c in answer.changes or []] == [("a", "conflict"), ("b", "counted")]
    with pytest.raises(UnknownFamily):
        show(redis_client, settings, Question("nobody/nothing"), rules=DEFAULT_RULES)


def test_the_age_is_counted_from_the_latest_success(settings: Settings, redis_client: redis.Redis) -> None:
    take_in(settings, RUNS[:1])
    answer = show(
        redis_client, settings, Question(FAMILY), rules=DEFAULT_RULES, now_us=to_us(BASE) + 36 * 60 * MINUTE_US
    )
    assert [row.age_days for row in answer.rows] == [1.5] * 4
    assert answer.rows[0].recorded_at == from_us(to_us(BASE) + MINUTE_US).isoformat()

"""The audit says how many rows are equal, and tells a difference from a delay."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import redis
from click.testing import CliRunner

from archived_events import event, write_events
from leap_features import layout
from leap_features.events import encode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.levels import FAMILY
from leap_features.meta import checkpoint_field, meta_key
from leap_features.settings import Settings
from leap_streams.audit import Audit, audit, report
from leap_streams.cli import audit_command
from leap_streams.faults import Halt
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.rebuild import Rebuilt
from leap_streams.store import Store, session_of

Rebuild = Callable[..., Rebuilt]


@pytest.fixture
def rebuilt(deployment: Settings, rebuild_store: Rebuild) -> Settings:
    """A store that equals an archive with three families on partition 0 up to offset 4."""
    families = ["x", "x", "y", "z", "z"]
    write_events(deployment.archive, [event(f"a{at}", at, job_family=name) for at, name in enumerate(families)])
    rebuild_store()
    return deployment


def audited(settings: Settings) -> Audit:
    return audit(settings, rules=DEFAULT_RULES)


def row_key(settings: Settings, family: str) -> bytes:
    return layout.entity_key(settings.project, FAMILY.join_keys, (f"ranker/{family}",))


def take_in(settings: Settings, *deliveries: Delivery) -> None:
    """What a worker does with `deliveries`."""
    store = Store(settings)
    meta = store.read_meta()
    assert meta is not None
    batch = HistoryWriter(settings, store, None).write(deliveries, session_of(meta), meta.epoch)
    store.move_checkpoints(session_of(meta), batch.checkpoints)
    store.close()


def raw(attempt_id: str, minute: int, offset: int) -> Delivery:
    sent = event(attempt_id, minute, job_family="x")
    return Delivery(0, offset, to_us(sent.completed_at), encode(sent))


def test_a_rebuilt_store_is_equal(rebuilt: Settings) -> None:
    result = audited(rebuilt)
    # One model, hardware type and scale: three families at three levels, and one row at each of the model type's three.
    assert (result.equal, result.total, result.first) == (12, 12, [])
    assert list(report(result)) == ["12 of 12 rows are equal"]


@pytest.mark.parametrize(
    ("feature", "value"), [("count", 7), ("last", 1.0), ("mean", None), ("last_hardware_type", "x"), ("state", "[]")]
)
def test_one_wrong_feature_is_found(
    rebuilt: Settings, redis_client: redis.Redis, feature: str, value: float | str | None
) -> None:
    redis_client.hset(row_key(rebuilt, "x"), layout.field(FAMILY.view, feature), layout.encode_value(value))
    result = audited(rebuilt)
    assert (result.equal, result.total, result.different) == (11, 12, 1)
    (difference,) = result.first
    assert (difference.view, difference.key, list(difference.fields)) == (FAMILY.view, ("ranker/x",), [feature])
    assert difference.fields[feature][0] == value
    assert any(
        f"family_history ('ranker/x',): different; {feature} {value!r} online" in line for line in report(result)
    )


def test_a_float_that_differs_in_its_last_bit_is_found(rebuilt: Settings, redis_client: redis.Redis) -> None:
    field = layout.field(FAMILY.view, "mean")
    raw_value = bytearray(redis_client.hget(row_key(rebuilt, "x"), field))
    raw_value[1] ^= 1
    redis_client.hset(row_key(rebuilt, "x"), field, bytes(raw_value))
    assert audited(rebuilt).different == 1


def test_a_wrong_timestamp_is_found(rebuilt: Settings, redis_client: redis.Redis) -> None:
    field = layout.timestamp_field(FAMILY.view)
    redis_client.hset(row_key(rebuilt, "x"), field, layout.encode_timestamp(1))
    (difference,) = audited(rebuilt).first
    assert list(difference.fields) == ["event_timestamp"]


def test_bytes_that_are_no_value_are_a_difference(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(row_key(rebuilt, "x"), layout.field(FAMILY.view, "version"), b"\xff\xff")
    redis_client.hset(row_key(rebuilt, "y"), layout.field(FAMILY.view, "version"), layout.encode_value("a:b"))
    assert audited(rebuilt).different == 2


def test_a_row_of_one_side_only_is_not_equal(rebuilt: Settings, redis_client: redis.Redis) -> None:
    row = redis_client.hgetall(row_key(rebuilt, "x"))
    redis_client.delete(row_key(rebuilt, "y"))
    redis_client.hset(row_key(rebuilt, "stray"), mapping=row)
    redis_client.hset(layout.entity_key("not_" + rebuilt.project, FAMILY.join_keys, ("ranker/x",)), mapping=row)
    result = audited(rebuilt)
    assert (result.equal, result.total, result.only_archive, result.only_online) == (11, 13, 1, 1)
    lines = list(report(result))
    assert any("only archive; count None online, 1 from the archive" in line for line in lines)
    assert lines[-1] == "11 of 13 rows are equal"


def test_a_key_that_holds_another_view_alone_is_no_history_row(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(row_key(rebuilt, "own"), "_ts:a_view_of_ones_own", b"x")
    assert audited(rebuilt).total == 12


def test_rows_ahead_of_the_archive_are_shown_apart(rebuilt: Settings) -> None:
    take_in(rebuilt, raw("new", 10, 5))
    result = audited(rebuilt)
    assert (result.equal, result.ahead, result.different, result.total) == (6, 6, 0, 12)
    assert any("let `leap archive` catch up" in line for line in report(result))
    write_events(rebuilt.archive, [event("new", 10, job_family="x")], first=5)
    assert audited(rebuilt).equal == 12


def test_rows_that_the_worker_has_not_come_to_are_shown_apart(rebuilt: Settings, redis_client: redis.Redis) -> None:
    write_events(rebuilt.archive, [event("new", 10, job_family="x"), event("n", 11, job_family="n")], first=5)
    result = audited(rebuilt)
    assert (result.behind, result.only_archive, result.different) == (9, 0, 0)
    assert result.total == result.equal + result.behind == 15
    redis_client.hset(meta_key(rebuilt.project), checkpoint_field(0), b"7")
    result = audited(rebuilt)
    assert (result.behind, result.only_archive, result.different) == (0, 3, 6)


def test_what_an_event_leaves_out_is_the_same_on_both_sides(rebuilt: Settings) -> None:
    bare = event("bare", 10, batch_size=..., reader_count=..., device_hours=..., config=..., eligible_hardware=...)
    take_in(rebuilt, Delivery(0, 5, to_us(bare.completed_at), encode(bare)))
    write_events(rebuilt.archive, [bare], first=5)
    result = audited(rebuilt)
    assert (result.equal, result.total) == (15, 15), result.first


def test_without_meta_there_is_nothing_to_compare(deployment: Settings) -> None:
    write_events(deployment.archive, [event("a")])
    with pytest.raises(Halt, match="`leap init` makes it"):
        audited(deployment)


def test_a_store_of_other_family_rules_is_not_compared(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(meta_key(rebuilt.project), "family_rule", "another")
    with pytest.raises(Halt, match="under family rule 'another'"):
        audited(rebuilt)


def test_a_store_that_is_being_rebuilt_is_named(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(meta_key(rebuilt.project), "state", "rebuilding")
    assert next(report(audited(rebuilt))) == "the online store is rebuilding: rows may be missing"


def test_the_command_fails_unless_all_rows_are_equal(rebuilt: Settings, redis_client: redis.Redis) -> None:
    env = {
        "LEAP_ARCHIVE": rebuilt.archive,
        "LEAP_HISTORY": rebuilt.history,
        "LEAP_REDIS_URL": rebuilt.redis_url,
        "LEAP_PROJECT": rebuilt.project,
    }
    result = CliRunner().invoke(audit_command, ["--json"], env=env)
    assert result.exit_code == 0, result.output
    printed = msgspec.json.decode(result.stdout)
    assert (printed["equal"], printed["total"]) == (12, 12)
    redis_client.delete(row_key(rebuilt, "x"))
    result = CliRunner().invoke(audit_command, [], env=env)
    assert result.exit_code == 1
    assert "11 of 12 rows are equal" in result.stdout

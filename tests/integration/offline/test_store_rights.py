"""Users of Redis with the rights that docs/operations.md gives them can do their work, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import redis
from click.testing import CliRunner

from archived_events import event, write_events
from events_strategies import BASE, raw_event
from leap_features.events import to_us
from leap_features.family import DEFAULT_RULES
from leap_features.feature_store import open_feature_store
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.history.snapshot_command import snapshot_command
from leap_predictor.history.snapshot_file import SnapshotFile
from leap_predictor.manifest import history_views
from leap_streams.audit import audit
from leap_streams.doctor_sources import redis_server
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.rebuild import rebuild
from leap_streams.store import Store, session_of
from stored_history import Subject

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
RULES = dict(re.findall(r"^ACL SETUSER (leap-\w+) (.*)$", OPERATIONS.read_text(), re.MULTILINE))

As = Callable[[str], Settings]


@pytest.fixture
def as_user(deployment: Settings, redis_client: redis.Redis) -> Iterator[As]:
    """The deployment, which has an archive, as one of the users of the docs; the project is theirs too."""
    write_events(deployment.archive, [event("archived")])
    for user, rules in RULES.items():
        redis_client.execute_command("ACL", "SETUSER", user, "reset", *rules.replace("PASSWORD", "hunter2").split())

    def settings(user: str) -> Settings:
        url = deployment.redis_url.replace("://", f"://{user}:hunter2@")
        return msgspec.structs.replace(deployment, redis_url=url, project="leap")

    yield settings
    redis_client.acl_deluser(*RULES)


def rebuilt(settings: Settings) -> None:
    rebuild(settings, rules=DEFAULT_RULES, bounds_of=lambda _settings: None)


def test_the_operator_may_make_fill_compare_and_examine_the_store(as_user: As, tmp_path: Path) -> None:
    settings = as_user("leap-operator")
    with closing(Store(settings)) as store:
        assert store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
    rebuilt(settings)
    rebuilt(settings)
    compared = audit(settings, rules=DEFAULT_RULES)
    assert compared.equal == compared.total > 0
    assert redis_server(settings).appendfsync == "everysec"
    feast = open_feature_store(settings, tmp_path / "registry.db")
    feast.teardown()


def test_the_worker_may_write_history(as_user: As) -> None:
    rebuilt(as_user("leap-operator"))
    settings = as_user("leap-worker")
    with closing(Store(settings)) as store:
        meta = store.read_meta()
        assert meta is not None
        session = session_of(meta)
        deliveries = [Delivery(1, offset, to_us(BASE), raw_event(attempt_id=f"a{offset // 2}")) for offset in range(4)]
        batch = HistoryWriter(settings, store, None).write(deliveries, session, meta.epoch)
        assert batch.counts["folded"] == batch.counts["duplicate"] == 2
        store.move_checkpoints(session, batch.checkpoints)


def test_the_archive_app_may_see_which_epoch_it_is(as_user: As) -> None:
    rebuilt(as_user("leap-operator"))
    with closing(Store(as_user("leap-archive"))) as store:
        meta = store.read_meta()
    assert meta is not None
    assert meta.epoch == FIRST_LIVE_EPOCH


def test_the_launcher_may_read_history(as_user: As) -> None:
    rebuilt(as_user("leap-operator"))
    settings = as_user("leap-launcher")
    reader = HistoryReader(settings.redis_url, settings.project)
    subject = Subject("ranker/ranker-prod", "ranker", "H100-SXM-80", 8)
    reading = reader.read(history_views(), [subject], within_s=30)
    reader.close()
    assert reading.meta is not None
    assert reading.rows[0]["family_history"] is not None


def test_the_user_for_snapshots_may_copy_history(as_user: As, tmp_path: Path) -> None:
    rebuilt(as_user("leap-operator"))
    settings = as_user("leap-snapshot")
    out = tmp_path / "history.snapshot"
    environment = {"LEAP_REDIS_URL": settings.redis_url, "LEAP_PROJECT": settings.project}
    done = CliRunner().invoke(snapshot_command, [str(out)], env=environment)
    assert done.exit_code == 0, done.output
    assert set(SnapshotFile(out).footer.rows.values()) == {1}


@pytest.mark.parametrize("right", ["+hmget", "+scan", "+dbsize", "%R~leap:leap:meta", "%R~*leap"])
def test_the_user_for_snapshots_needs_each_of_its_rights(
    as_user: As, redis_client: redis.Redis, tmp_path: Path, right: str
) -> None:
    rebuilt(as_user("leap-operator"))
    settings = as_user("leap-snapshot")
    rules = [rule for rule in RULES["leap-snapshot"].replace("PASSWORD", "hunter2").split() if rule != right]
    assert len(rules) == len(RULES["leap-snapshot"].split()) - 1
    redis_client.execute_command("ACL", "SETUSER", "leap-snapshot", "reset", *rules)
    environment = {"LEAP_REDIS_URL": settings.redis_url, "LEAP_PROJECT": settings.project}
    done = CliRunner().invoke(snapshot_command, [str(tmp_path / "history.snapshot")], env=environment)
    assert done.exit_code == 1
    assert "permissions" in done.output


@pytest.mark.parametrize("user", RULES)
def test_nobody_may_touch_another_projects_keys_or_the_server(as_user: As, user: str) -> None:
    with redis.Redis.from_url(as_user(user).redis_url) as client:
        for command in ("GET other", "SET other 1", "FLUSHALL", "CONFIG SET maxmemory 1", "SHUTDOWN", "KEYS *"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import redis
from click.testing import CliRunner, Result

from leap_features.history import features
from leap_features.layout import encode_value, entity_key, field
from leap_features.levels import LEVELS
from leap_predictor.errors import StoreError
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.history.snapshot_command import snapshot_command
from leap_predictor.history.snapshot_file import SnapshotFile
from leap_predictor.history.snapshot_rows import KEYS_AT_ONCE, OnlineRows
from leap_predictor.manifest import history_views
from services import RedisServer
from stored_history import Subject, store_meta, store_row, store_runs

VIEWS = history_views()
SUBJECTS = [Subject(f"bert/train-{number}", "bert", f"H{number % 5}", 8) for number in range(50)]
ROWS = 3 * 50 + 2 * 5 + 1
"""Of these subjects, each of which ran on one type of five."""


def run(url: str, project: str, *arguments: str) -> Result:
    return CliRunner().invoke(snapshot_command, arguments, env={"LEAP_REDIS_URL": url, "LEAP_PROJECT": project})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "history.snapshot"


def test_snapshot_has_every_row_of_the_project_and_no_other(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path
) -> None:
    store_meta(redis_client, project)
    for number, subject in enumerate(SUBJECTS):
        store_runs(redis_client, project, subject, [100.0, None, 100.0 + number, None])
    store_runs(redis_client, project + "x", SUBJECTS[0], [1.0])
    store_runs(redis_client, "x" + project, Subject("bert/else", "bert", "H9", 8), [1.0])
    redis_client.set(f"leap:{project}:attempt:s:a1", "1000000:0:1:digest")
    redis_client.set("something else", "1")
    before = datetime.now(UTC)
    done = run(redis_server.url, project, str(out), "--json")
    assert done.exit_code == 0, done.output
    said = msgspec.json.decode(done.stdout)
    # The rows of the model type are shared.
    assert said["rows"] == {
        "family_history": 50,
        "family_hardware_history": 50,
        "family_scale_history": 50,
        "model_scale_history": 5,
        "model_hardware_history": 5,
        "model_history": 1,
    }
    assert said["generation"] == "g1"
    assert said["bytes"] == out.stat().st_size
    opened = SnapshotFile(out)
    assert before <= opened.footer.as_of <= datetime.now(UTC)
    asked = [*SUBJECTS, Subject("bert/else", "bert", "H9", 8)]
    reader = HistoryReader(redis_server.url, project)
    live = reader.read(VIEWS, asked, within_s=30)
    reader.close()
    assert opened.read(VIEWS, asked, until=math.inf) == live
    assert all(row is not None for row in live.rows[0].values())
    assert live.rows[-1]["family_history"] is None


def test_command_says_in_a_line_what_it_wrote_and_replaces_what_was_there(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path
) -> None:
    out.write_text("something")
    store_meta(redis_client, project)
    store_runs(redis_client, project, SUBJECTS[0], [1.0])
    done = run(redis_server.url, "other", str(out), "--project", project)
    assert done.exit_code == 0, done.output
    assert f"{out}: 6 rows of 6 views of project {project}" in done.stdout
    assert SnapshotFile(out).footer.project == project
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "rebuilding"}, "is rebuilding, not ready"),
        ({"schema": "1"}, "has schema version '1', this release reads '2': run `leap rebuild`"),
        (None, "has no history of project"),
    ],
)
def test_store_that_cannot_be_used_is_refused_and_nothing_is_written(
    redis_client: redis.Redis,
    redis_server: RedisServer,
    project: str,
    out: Path,
    changes: dict[str, str] | None,
    message: str,
) -> None:
    if changes is not None:
        store_meta(redis_client, project, **changes)
    done = run(redis_server.url, project, str(out))
    assert done.exit_code == 1
    assert message in done.output
    assert list(out.parent.iterdir()) == []


def test_store_that_does_not_answer_is_named_without_its_password(project: str, out: Path) -> None:
    done = run("redis://user:secret@127.0.0.1:1/0", project, str(out))
    assert done.exit_code == 1
    assert "user:***@127.0.0.1:1" in done.output
    assert "secret" not in done.output


def test_directory_that_is_not_there_is_named(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, tmp_path: Path
) -> None:
    store_meta(redis_client, project)
    done = run(redis_server.url, project, str(tmp_path / "absent" / "history.snapshot"))
    assert done.exit_code == 1
    assert f"{tmp_path / 'absent'} is no directory: make it first, or write history.snapshot elsewhere" in done.output


def test_what_is_no_regular_file_is_left_alone(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path
) -> None:
    store_meta(redis_client, project)
    os.mkfifo(out)
    done = run(redis_server.url, project, str(out))
    assert done.exit_code == 1
    assert f"{out} is a pipe, which no file may replace: name a file" in done.output
    assert out.is_fifo()
    assert list(out.parent.iterdir()) == [out]


def test_link_stays_and_the_file_that_it_leads_to_is_replaced(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path, tmp_path: Path
) -> None:
    store_meta(redis_client, project)
    store_runs(redis_client, project, SUBJECTS[0], [1.0])
    target = tmp_path / "of-today.snapshot"
    target.write_text("before")
    out.symlink_to(target)
    assert run(redis_server.url, project, str(out)).exit_code == 0
    assert out.is_symlink()
    assert SnapshotFile(target).footer.project == project


def test_file_that_may_not_grow_is_named_with_the_mend_and_the_one_before_stays(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path
) -> None:
    store_meta(redis_client, project)
    for subject in SUBJECTS:
        store_runs(redis_client, project, subject, [1.0])
    out.write_text("before")
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); "
    command = f"{limited}from leap_predictor.history.snapshot_command import snapshot_command; snapshot_command()"
    done = subprocess.run(
        [sys.executable, "-c", command, str(out)],
        env={**os.environ, "LEAP_REDIS_URL": redis_server.url, "LEAP_PROJECT": project},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{out} cannot be written (File too large): mend that, or write it elsewhere" in done.stderr
    assert out.read_text() == "before"
    assert list(out.parent.iterdir()) == [out]


@pytest.fixture
def rows(redis_client: redis.Redis, project: str) -> OnlineRows:
    store_meta(redis_client, project)
    for subject in SUBJECTS:
        store_runs(redis_client, project, subject, [1.0])
    return OnlineRows(redis_client, project, VIEWS)


def test_store_that_is_rebuilt_between_two_reads_is_noticed_at_once(
    rows: OnlineRows, redis_client: redis.Redis, project: str
) -> None:
    given = iter(rows)
    next(given)
    store_meta(redis_client, project, generation="g2")
    with pytest.raises(StoreError, match="rebuilt while it was read"):
        list(itertools.islice(given, ROWS - 2))  # not to the end


@pytest.mark.parametrize("change", [{"generation": "g2"}, {"state": "rebuilding"}])
def test_store_that_is_rebuilt_after_the_last_read_is_noticed_at_the_end(
    rows: OnlineRows, redis_client: redis.Redis, project: str, change: dict[str, str]
) -> None:
    given = iter(rows)
    assert len(list(itertools.islice(given, ROWS))) == ROWS
    store_meta(redis_client, project, **change)
    with pytest.raises(StoreError, match=r"rebuilt while it was read|not ready"):
        next(given)


def test_key_that_holds_rows_of_another_view_alone_is_no_row(
    rows: OnlineRows, redis_client: redis.Redis, project: str
) -> None:
    key = entity_key(project, ("job_family",), ("bert/of-another-view",))
    redis_client.hset(key, field("views_of_ones_own", "price"), encode_value(1.0))
    assert len(list(rows)) == ROWS


def test_rows_are_whole_and_none_is_missing_though_a_worker_goes_on_writing(
    redis_client: redis.Redis, redis_server: RedisServer, project: str, out: Path
) -> None:
    store_meta(redis_client, project)
    many = [Subject(f"bert/train-{number}", "bert", "H1", 8) for number in range(KEYS_AT_ONCE)]
    versions = [store_runs(redis_client, project, many[0], [100.0] * count) for count in (1, 2)]
    level = LEVELS[0]
    for subject in many:
        store_row(redis_client, project, level, subject, versions[0][level.view])
    over = threading.Event()

    def work() -> None:
        with redis.Redis.from_url(redis_server.url) as client:
            for turn in itertools.count(1):
                for subject in many:
                    if over.is_set():
                        return
                    store_row(client, project, level, subject, versions[turn % 2][level.view])

    worker = threading.Thread(target=work)
    worker.start()
    done = run(redis_server.url, project, str(out))
    over.set()
    worker.join()
    assert done.exit_code == 0, done.output
    view = next(view for view in VIEWS if view.view == level.view)
    names = [feature.name for feature in view.features]
    allowed = [{name: features(version[level.view])[name] for name in names} for version in versions]
    for rows in SnapshotFile(out).read((view,), many, until=math.inf).rows:
        row = rows[view.view]
        assert row is not None
        assert row.features in allowed

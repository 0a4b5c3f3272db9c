"""Whole nights on the archive of a small fleet, through the command."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from leap_predictor.bundle import current_id, load
from leap_training.nightly.commands import BUSY, REFUSED, nightly_command
from leap_training.nightly.lock import alone
from nightly_fleet import NIGHT, environment, write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    write_archive(root)
    return root


class Deployment:
    """`leap nightly` in a deployment of its own."""

    def __init__(self, archive: Path, state: Path) -> None:
        self.bundles, self.state = state / "bundles", state / "nightly"
        self.env = environment(archive, state)

    def run(self, *arguments: object, night: object = NIGHT) -> Result:
        """The command for `night`."""
        return CliRunner().invoke(nightly_command, ["--night", str(night), *map(str, arguments)], env=self.env)

    def show(self, *arguments: str) -> Result:
        """`leap nightly --list`."""
        return CliRunner().invoke(nightly_command, ["--list", *arguments], env=self.env)


@pytest.fixture
def deployment(archive: Path, tmp_path: Path) -> Deployment:
    return Deployment(archive, tmp_path)


def test_nights_follow_one_another_and_each_publishes(deployment: Deployment) -> None:
    before = deployment.run("--json", night=NIGHT - timedelta(days=1))
    assert before.exit_code == 0, before.output
    first = json.loads(before.stdout)
    assert first["not_compared"].endswith("holds no published bundle")
    after = deployment.run("--json")
    assert after.exit_code == 0, after.output
    second = json.loads(after.stdout)
    assert second["compared_with"] == first["bundle_id"]
    # Fitted on the same rows, so they cannot differ; what is published knows a day more.
    assert second["within20"]["published"] == second["within20"]["candidate"]
    published = load(deployment.bundles)
    assert published.bundle_id == second["bundle_id"] != first["bundle_id"]
    assert published.manifest.training.before == datetime(2026, 1, 9, tzinfo=UTC)
    shown = deployment.show().stdout.splitlines()
    assert [line.split()[0] for line in shown[2:]] == ["2026-01-08", "2026-01-09"]
    assert [night["night"] for night in json.loads(deployment.show("--json").stdout)] == ["2026-01-08", "2026-01-09"]
    figures = pq.read_table(deployment.state / "nights").to_pylist()
    assert {(row["night"].isoformat(), row["model"]) for row in figures} == {
        ("2026-01-08", "candidate"),
        ("2026-01-08", "backoff_last"),
        ("2026-01-09", "candidate"),
        ("2026-01-09", "backoff_last"),
        ("2026-01-09", "published"),
    }


def test_a_night_that_is_done_says_so_and_is_done_again_on_demand(deployment: Deployment) -> None:
    first = deployment.run()
    assert first.exit_code == 0, first.output
    bundle_id = current_id(deployment.bundles)
    again = deployment.run()
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert "is done; --again does it from its beginning" in again.stderr
    assert current_id(deployment.bundles) == bundle_id
    anew = deployment.run("--again", "--keep-bundles", 1)
    assert anew.exit_code == 0, anew.output
    assert "it has seen the judged days" in anew.stdout
    assert current_id(deployment.bundles) in anew.stdout
    assert sorted(path.name for path in deployment.bundles.iterdir()) == [current_id(deployment.bundles), "current"]


def test_a_refusal_names_its_reasons_and_keeps_what_is_published(deployment: Deployment) -> None:
    assert deployment.run(night=NIGHT - timedelta(days=1)).exit_code == 0
    published = current_id(deployment.bundles)
    result = deployment.run("--train-days", 1)
    assert result.exit_code == REFUSED
    assert "not published:\n  few_training_rows: " in result.stdout
    assert current_id(deployment.bundles) == published
    again = deployment.run("--train-days", 1)
    assert (again.exit_code, again.stdout) == (REFUSED, result.stdout)
    assert "not published: few_training_rows" in deployment.show().stdout


def test_a_second_run_at_the_same_time_says_who_is_at_work(deployment: Deployment) -> None:
    deployment.state.mkdir()
    with alone(deployment.state, datetime(2026, 1, 9, 3, tzinfo=UTC)):
        result = deployment.run()
    assert result.exit_code == BUSY
    assert "another nightly run is at work" in result.stderr
    assert "started 2026-01-09 03:00:00 UTC" in result.stderr
    assert not deployment.bundles.exists()


def test_a_night_that_was_begun_goes_on_with_the_same_days_alone(deployment: Deployment) -> None:
    published = deployment.run(night=NIGHT - timedelta(days=1))
    assert published.exit_code == 0, published.output
    (deployment.state / "nights" / "2026-01-08.parquet").unlink()  # killed before it was written
    other = deployment.run("--train-days", 3, night=NIGHT - timedelta(days=1))
    assert other.exit_code == 1
    assert "train_days 30, now it is 3" in other.stderr
    assert deployment.run(night=NIGHT - timedelta(days=1)).stdout == published.stdout


def test_a_night_to_come_is_refused(deployment: Deployment) -> None:
    result = deployment.run(night=datetime.now(UTC).date() + timedelta(days=2))
    assert result.exit_code == 2
    assert "must not be after today" in result.stderr


def test_without_an_archive_the_error_says_what_to_do(tmp_path: Path) -> None:
    result = Deployment(tmp_path, tmp_path).run()
    assert result.exit_code == 1
    assert "is no archive" in result.stderr


def test_days_without_attempts_are_an_error_that_counts_them(deployment: Deployment) -> None:
    result = deployment.run(night="2025-06-01")
    assert result.exit_code == 1
    assert "no attempt is left" in result.stderr
    assert deployment.show().stderr.startswith("no night is done")

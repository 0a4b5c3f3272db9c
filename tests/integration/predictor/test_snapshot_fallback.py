"""A snapshot stands in for an online store that is down, where the policy says so, and only for that time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from leap_predictor import Choice, Explanation, Job, Predictor, Reason
from leap_predictor.history.circuit_breaker import FAILURES
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.history.request import MetaReading
from leap_predictor.history.snapshot_rows import OnlineRows
from leap_predictor.history.snapshot_writer import write_snapshot
from leap_predictor.manifest import history_views
from services import RedisServer
from small_bundle import publish_small_bundle
from stored_history import Subject, store_meta, store_runs
from stream_process import wait_until

JOB = Job("train-bert-2026-03-01-run7", "bert", trainer_count=8, batch_size=32, reader_count=4)
FAST, SLOW = "H100-SXM-80", "A100-SXM-80"
PATIENT_S = 30.0
VIEWS = history_views()


class Deployment:
    """A Redis with history, a bundle, a policy and a predictor that may use a snapshot."""

    def __init__(self, directory: Path, server: RedisServer, project: str) -> None:
        self.server = server
        self.project = project
        self.policy = directory / "policy.toml"
        self.snapshot = directory / "history.snapshot"
        self.now = [0.0]
        self.allow("snapshot = true")
        publish_small_bundle(directory / "bundles", project=project)
        self.reader = HistoryReader(server.url, project, clock=lambda: self.now[0])
        self.predictor = Predictor.open(
            directory / "bundles",
            self.reader,
            deadline_s=PATIENT_S,
            policy=self.policy,
            project=project,
            snapshot=self.snapshot,
        )

    def allow(self, rule: str) -> None:
        new = self.policy.with_name("new.toml")
        new.write_text(f"[history]\n{rule}\n", encoding="utf-8")
        new.rename(self.policy)

    def fill(self) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            store_meta(client, self.project)
            store_runs(client, self.project, Subject("bert/train-bert", "bert", SLOW, 8), [800.0])

    def copy(self, *, as_of: datetime | None = None, meta: MetaReading | None = None) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            rows = OnlineRows(client, self.project, VIEWS)
            made_at = as_of or datetime.now(UTC)
            write_snapshot(
                self.snapshot, rows, views=VIEWS, project=self.project, meta=meta or rows.meta, as_of=made_at
            )

    def explain(self) -> Explanation:
        self.predictor.refresh()
        return self.predictor.explain(JOB, [SLOW, FAST])

    def from_snapshot(self) -> Explanation:
        """The explanation once the snapshot has been checked."""
        wait_until(lambda: self.explain().history == "snapshot", timeout_s=PATIENT_S, what="an answer by the snapshot")
        return self.explain()


@pytest.fixture
def deployment(tmp_path: Path, project: str) -> Iterator[Deployment]:
    with RedisServer() as server:
        made = Deployment(tmp_path, server, project)
        made.fill()
        yield made
        made.predictor.close()


def throughputs(choices: tuple[Choice, ...]) -> dict[str, float]:
    return {choice.hardware_type: choice.throughput for choice in choices}


def test_snapshot_answers_while_the_store_is_down_and_the_store_again_when_it_is_back(deployment: Deployment) -> None:
    deployment.copy()
    live = deployment.explain()
    assert live.history == "live"
    deployment.server.kill()
    standing_in = deployment.from_snapshot()
    assert standing_in.reason is None
    assert throughputs(standing_in.choices) == pytest.approx(throughputs(live.choices))
    assert [choice.level for choice in standing_in.choices] == [choice.level for choice in live.choices]
    assert any("snapshot" in warning for warning in standing_in.warnings)
    for _ in range(FAILURES):  # the store is left alone by now, which changes nothing
        again = deployment.predictor.rank(JOB, [SLOW, FAST])
        assert throughputs(tuple(again)) == pytest.approx(throughputs(live.choices))
    deployment.server.start()
    deployment.fill()
    deployment.now[0] += 60
    assert deployment.explain().history == "live"


def test_store_that_is_down_answers_nobody_where_the_policy_does_not_allow_a_snapshot(deployment: Deployment) -> None:
    deployment.copy()
    deployment.server.kill()
    deployment.from_snapshot()
    deployment.allow("snapshot = false")
    answer = deployment.explain()
    assert (answer.reason, answer.choices) == (Reason.STORE_UNAVAILABLE, ())


def test_snapshot_that_is_older_than_the_policy_allows_answers_nobody(deployment: Deployment) -> None:
    deployment.copy(as_of=datetime.now(UTC) - timedelta(hours=49))
    deployment.server.kill()
    deployment.from_snapshot()
    deployment.allow("snapshot = true\nmax_snapshot_hours = 48")
    answer = deployment.explain()
    assert answer.reason == Reason.STORE_UNAVAILABLE
    assert "older than the policy allows" in answer.message
    deployment.allow("snapshot = true\nmax_snapshot_hours = 50")
    assert deployment.explain().history == "snapshot"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"family_rule": "another"}, Reason.FAMILY_RULE_DIFFERS),
        ({"schema": "1"}, Reason.HISTORY_OF_OTHER_SCHEMA),
    ],
)
def test_snapshot_of_other_history_than_the_bundles_answers_nobody(
    deployment: Deployment, changes: dict[str, str], reason: Reason
) -> None:
    with redis.Redis.from_url(deployment.server.url) as client:
        meta = OnlineRows(client, deployment.project, VIEWS).meta
    fields = {name: getattr(meta, name) for name in ("schema", "family_rule", "generation", "state")}
    deployment.copy(meta=MetaReading(**(fields | changes)))
    deployment.server.kill()
    wait_until(
        lambda: deployment.explain().reason is not Reason.STORE_UNAVAILABLE,
        timeout_s=PATIENT_S,
        what="a snapshot that has been checked",
    )
    answer = deployment.explain()
    assert (answer.reason, answer.choices) == (reason, ())


def test_damaged_snapshot_is_named_beside_the_stores_own_error(deployment: Deployment) -> None:
    deployment.snapshot.write_bytes(b"no snapshot" * 100)
    deployment.server.kill()
    wait_until(lambda: "damaged" in deployment.explain().message, timeout_s=PATIENT_S, what="a refused snapshot")
    answer = deployment.explain()
    assert answer.reason == Reason.STORE_UNAVAILABLE
    assert deployment.predictor.rank(JOB, [SLOW, FAST]) == []

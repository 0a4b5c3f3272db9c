"""What the predictor tells its decision log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from leap_predictor import AsyncPredictor, Job, JsonLinesLog, Predictor
from leap_predictor.decisions.decision import Decision, decode
from services import RedisServer

JOB = Job("train-bert-2026-03-01-run7", "bert", trainer_count=8, batch_size=32, attempt_id="attempt-7")
FAST, SLOW = "H100-SXM-80", "A100-SXM-80"


@pytest.fixture
def opened(
    redis_server: RedisServer, bundles: Path, tmp_path: Path, project: str
) -> Iterator[Callable[..., Predictor]]:
    with ExitStack() as stack:

        def open_(policy: str = "", url: str = redis_server.url, **options: Any) -> Predictor:
            (tmp_path / "policy.toml").write_text(policy)
            return stack.enter_context(
                Predictor.open(
                    bundles,
                    url,
                    deadline_s=30.0,
                    project=project,
                    policy=tmp_path / "policy.toml",
                    **options,
                )
            )

        yield open_


def decisions(log: JsonLinesLog, path: Path) -> list[Decision]:
    log.close(within_s=30.0)
    return [decode(line) for line in path.read_bytes().splitlines()]


def test_decision_is_what_was_answered(opened: Callable[..., Predictor], store: redis.Redis, tmp_path: Path) -> None:
    log = JsonLinesLog(tmp_path / "decisions.jsonl")
    predictor = opened(decisions=log)
    before = datetime.now(UTC)
    choices = predictor.rank(JOB, [SLOW, FAST, "Warp9", SLOW])
    predictor.explain(JOB, [SLOW])
    (decision,) = decisions(log, tmp_path / "decisions.jsonl")
    assert list(decision.choices) == choices
    assert decision.candidates == (SLOW, FAST, "Warp9")
    assert (decision.job_name, decision.attempt_id, decision.model_type) == (JOB.job_name, "attempt-7", "bert")
    assert (decision.job_family, decision.trainer_count) == ("bert/train-bert", 8)
    assert before <= decision.decided_at <= datetime.now(UTC)
    assert (decision.reason, decision.control, decision.history) == (None, False, "live")
    assert decision.bundle_id == predictor.counters()["bundle_id"]
    assert 0 < decision.took_ms < 30_000
    assert predictor.counters()["decisions"] == {"written": 1, "dropped": 0, "failed": 0}


def test_control_group_is_logged_with_what_it_would_have_been_answered(
    opened: Callable[..., Predictor], store: redis.Redis, tmp_path: Path
) -> None:
    log = JsonLinesLog(tmp_path / "decisions.jsonl")
    predictor = opened("[models]\nshare = 0.0", decisions=log)
    assert predictor.rank(JOB, [SLOW, FAST]) == []
    (decision,) = decisions(log, tmp_path / "decisions.jsonl")
    assert (decision.reason, decision.control) == ("control_group", True)
    assert [choice.hardware_type for choice in decision.choices] == [
        choice.hardware_type for choice in opened().rank(JOB, [SLOW, FAST])
    ]


def test_empty_answer_is_logged_with_its_reason_unless_the_job_breaks_a_rule(
    opened: Callable[..., Predictor], store: redis.Redis, tmp_path: Path
) -> None:
    log = JsonLinesLog(tmp_path / "decisions.jsonl")
    predictor = opened('[models]\nenabled = ["dlrm"]', decisions=log)
    predictor.rank(JOB, [SLOW])
    predictor.rank({"job_name": ""}, [SLOW])
    (decision,) = decisions(log, tmp_path / "decisions.jsonl")
    assert (decision.reason, decision.choices, decision.control) == ("model_type_not_enabled", (), False)
    assert decision.history is None


def test_log_that_is_broken_costs_no_answer(
    opened: Callable[..., Predictor], store: redis.Redis, tmp_path: Path
) -> None:
    class Broken:
        @property
        def counts(self) -> dict[str, int]:
            return {"written": 0, "dropped": 0, "failed": 1}

        def record(self, decision: Decision) -> None:
            raise RuntimeError(decision.job_name)

        def close(self, within_s: float = 1.0) -> None:
            raise AssertionError("the log is the caller's")

    predictor = opened(decisions=Broken())
    assert len(predictor.rank(JOB, [SLOW])) == 1
    assert predictor.counters()["ranked"] == 1


def test_twin_for_asyncio_logs_as_well(opened: Callable[..., Predictor], store: redis.Redis, tmp_path: Path) -> None:
    log = JsonLinesLog(tmp_path / "decisions.jsonl")

    async def main() -> None:
        async with AsyncPredictor(opened(decisions=log)) as predictor:
            await asyncio.gather(*(predictor.rank(replace(JOB, attempt_id=f"a{n}"), [SLOW]) for n in range(20)))

    asyncio.run(main())
    found = decisions(log, tmp_path / "decisions.jsonl")
    assert {decision.attempt_id for decision in found} == {f"a{n}" for n in range(20)}

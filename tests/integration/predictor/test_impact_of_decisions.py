"""From the launcher's call to `leap impact`: what the predictor logs is what the command reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import redis
from click.testing import CliRunner

from events_strategies import event_fields
from leap_predictor import Job, Predictor
from leap_predictor.decisions.decision import decode
from leap_predictor.decisions.log import JsonLinesLog
from leap_training.impact.commands import impact_command
from services import RedisServer
from small_bundle import publish_small_bundle
from stored_history import store_meta

TYPES = ["H100-SXM-80", "A100-SXM-80"]
FAMILIES, RUNS = 10, 12
PATIENT_S = 30.0


def test_ranked_jobs_are_compared_with_those_that_the_policy_keeps(
    redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path
) -> None:
    publish_small_bundle(tmp_path / "bundles", project=project)
    store_meta(redis_client, project)
    policy = tmp_path / "policy.toml"
    policy.write_text("[models]\nshare = 0.5\n")
    jobs = [
        Job(
            f"family-{family}-{run}",
            "bert",
            8,
            attempt_id=f"{family}-{run}",
            job_family=f"family-{family}",
        )
        for family in range(FAMILIES)
        for run in range(RUNS)
    ]
    completed = datetime.now(UTC) + timedelta(hours=2)
    log = JsonLinesLog(tmp_path / "decisions.jsonl")
    with Predictor.open(
        tmp_path / "bundles", redis_server.url, deadline_s=PATIENT_S, policy=policy, project=project, decisions=log
    ) as predictor:
        answers = {str(job.attempt_id): predictor.rank(job, TYPES) for job in jobs}
    log.close(PATIENT_S)
    assert log.counts == {"written": len(jobs), "dropped": 0, "failed": 0}

    lines = (tmp_path / "decisions.jsonl").read_bytes().splitlines()
    decided = {each.attempt_id: each for each in map(decode, lines)}
    assert all(each.control == (not answers[str(name)]) for name, each in decided.items())
    by_type = {choice.hardware_type: choice for choice in decided["0-0"].choices}
    first, last = (each.hardware_type for each in decided["0-0"].choices)

    # What got a ranking follows it, what did not takes the other type; both run as predicted.
    ran_on = {name: first if answer else last for name, answer in answers.items()}
    events = [
        event_fields(
            completed=completed,
            attempt_id=job.attempt_id,
            job_name=job.job_name,
            job_family=job.job_family,
            model_type="bert",
            hardware_type=ran_on[str(job.attempt_id)],
            throughput=by_type[ran_on[str(job.attempt_id)]].throughput,
            eligible_hardware=TYPES,
        )
        for job in jobs
    ]
    completions = tmp_path / "completions.jsonl"
    completions.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    done = CliRunner().invoke(
        impact_command, [str(tmp_path / "decisions.jsonl"), "--completions", str(completions), "--json"]
    )
    assert done.exit_code == 0, done.output
    total = json.loads(done.stdout)["total"]
    ranked = sum(bool(answer) for answer in answers.values())
    assert 0 < ranked < len(jobs)
    assert (total["ranked"]["attempts"], total["ranked"]["top_attempts"]) == (ranked, ranked)
    assert (total["control"]["attempts"], total["control"]["top_attempts"]) == (len(jobs) - ranked, 0)
    wanted = 1 - by_type[last].score / by_type[first].score
    assert total["saving"]["value"] == pytest.approx(wanted)

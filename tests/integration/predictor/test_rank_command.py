from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from leap_predictor.cli import rank_command
from services import RedisServer
from small_bundle import publish_small_bundle
from stored_history import Subject, store_meta, store_runs

JOB = {"job_name": "train-bert-7", "model_type": "bert", "trainer_count": 8}


@pytest.fixture
def run(tmp_path: Path, redis_server: RedisServer, redis_client: redis.Redis, project: str) -> Any:
    publish_small_bundle(tmp_path / "bundles", project=project)
    store_meta(redis_client, project)

    def run_(*arguments: str, job: Any = JOB, **environment: str) -> Result:
        path = tmp_path / "job.json"
        path.write_text(job if isinstance(job, str) else json.dumps(job))
        given = {
            "LEAP_BUNDLES": str(tmp_path / "bundles"),
            "LEAP_REDIS_URL": redis_server.url,
            "LEAP_PROJECT": project,
        }
        return CliRunner().invoke(
            rank_command, ["--job", str(path), "--deadline", "30", *arguments], env=given | environment
        )

    return run_


def test_table_lists_the_best_first_and_the_dropped_below(run: Any, redis_client: redis.Redis, project: str) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0])
    result = run("--candidates", "A100, H100,Warp9")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["hardware", "samples/s", "80", "%", "of", "runs", "cost/h", "score", "history"]
    assert [line.split()[1] for line in lines[1:3]] == ["A100", "H100"]
    assert "family_scale_history" in lines[1]
    assert "Warp9: unknown hardware" in lines[3]


def test_json_is_one_object_of_choices_and_candidates(run: Any) -> None:
    answer = json.loads(run("--candidates", "A100,H100", "--json").output)
    assert {choice["hardware_type"] for choice in answer["choices"]} == {"A100", "H100"}
    assert all(one["throughput_low"] < one["throughput"] < one["throughput_high"] for one in answer["choices"])
    assert answer["reason"] is None
    assert len(answer["candidates"]) == 2


def test_explain_shows_history_as_a_person_reads_it(run: Any, redis_client: redis.Redis, project: str) -> None:
    store_runs(redis_client, project, Subject("bert/train-bert", "bert", "A100", 8), [9000.0, 9000.0])
    output = run("--candidates", "A100", "--explain").output
    assert "family_scale_history      2 runs; last 9,000 samples/s on 8 × A100" in output
    assert "typically 9,000 ×/÷ 1.00" in output
    assert "corrected by" in output
    assert "from family_scale_history" in output


def test_a_model_type_that_nobody_has_seen_is_warned_about(run: Any) -> None:
    result = run("--candidates", "A100", job={"job_name": "new", "model_type": "unheard-of", "trainer_count": 8})
    assert "'unheard-of' was not in the training data and has no history" in result.stderr
    assert "A100" in result.stdout


def test_explain_shows_features_and_history(run: Any) -> None:
    output = run("--candidates", "A100", "--explain").output
    assert "and no history to correct it" in output
    assert "job family bert/train-bert" in output
    assert "nothing recorded" in output
    assert "hardware_specs__dense_bf16_or_fp16_tflops 312" in output


def test_empty_ranking_exits_0_and_says_why(run: Any) -> None:
    result = run("--candidates", "Warp9")
    assert result.exit_code == 0
    assert "no ranking (no_candidate_left)" in result.output


def test_job_with_missing_fields_is_an_empty_ranking_too(run: Any) -> None:
    result = run("--candidates", "A100", job={"job_name": "x"})
    assert result.exit_code == 0
    assert "no ranking (job_invalid)" in result.output
    assert "model_type" in result.output


def test_store_that_is_down_is_an_empty_ranking(run: Any) -> None:
    result = run("--candidates", "A100", "--redis-url", "redis://127.0.0.1:1/0")
    assert result.exit_code == 0
    assert "no ranking (store_unavailable)" in result.output


@pytest.mark.parametrize(
    ("job", "arguments", "environment", "message"),
    [
        ("[", (), {}, "the job must be one JSON object"),
        ("[]", (), {}, "the job must be one JSON object"),
        ('{"config":' + "[" * 100_000, (), {}, "the job must be one JSON object"),
        (JOB, ("--redis-url", "redis+x://u:secret@host"), {}, "redis+x://u:***@host"),
        (JOB, (), {"LEAP_PROJECT": "No!"}, "LEAP_PROJECT"),
    ],
)
def test_wrong_usage_exits_1_with_one_line(
    run: Any, job: Any, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    result = run("--candidates", "A100", *arguments, job=job, **environment)
    assert result.exit_code == 1
    assert message in result.output
    assert "secret" not in result.output

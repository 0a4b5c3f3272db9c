from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from kubernetes_types import problems
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


POD = {"kind": "Pod", "spec": {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}}
LABELS = """
[slurm.features]
H100 = "h100"
A100 = "a100"
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, Any], str]:
    def file_(name: str, content: Any) -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return file_


def test_format_json_is_the_ranking_alone(run: Any) -> None:
    result = run("--candidates", "A100,H100", "--format", "json")
    answer = json.loads(result.stdout)
    assert answer.keys() == {"choices", "reason"}
    assert answer["choices"] == json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"]
    assert json.loads(run("--candidates", "Warp9", "--format", "json").stdout) == {
        "choices": [],
        "reason": "no_candidate_left",
    }


def test_format_kubernetes_puts_the_ranking_into_the_manifest(run: Any, file: Any) -> None:
    manifest = file("pod.json", POD)
    arguments = ("--candidates", "H100,A100,MI300X", "--format", "kubernetes", "--job-manifest", manifest)
    result = run(*arguments)
    assert result.exit_code == 0
    pod = json.loads(result.stdout)
    affinity = pod["spec"].pop("affinity")
    assert pod == POD
    assert list(problems(affinity)) == []
    ranked = json.loads(run("--candidates", "H100,A100,MI300X", "--json").stdout)["choices"]
    labelled = [choice for choice in ranked if choice["hardware_type"] != "MI300X"]
    terms = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["weight"] for term in terms] == [
        round(100 * choice["score"] / labelled[0]["score"]) for choice in labelled
    ]
    assert "warning: 'MI300X' has no node label and is left out" in result.stderr


def test_format_slurm_is_one_option_a_line(run: Any, file: Any) -> None:
    labels, script = file("labels.toml", LABELS), file("job.sh", "#!/bin/sh\n#SBATCH --constraint=ib\nsrun train\n")
    arguments = ("--candidates", "A100,H100", "--format", "slurm", "--labels", labels)
    best = json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"][0]["hardware_type"].lower()
    assert run(*arguments).stdout == f"--prefer={best}\n"
    assert run(*arguments, "--job-manifest", script).stdout == f"--prefer=ib&{best}\n"


def test_format_skypilot_puts_the_accelerators_of_the_task_in_order(run: Any, file: Any) -> None:
    task = file("task.json", {"run": "train", "resources": {"accelerators": {"T4": 8, "H100": 8, "A100-80GB": 8}}})
    result = run("--candidates", "A100,H100", "--format", "skypilot", "--job-manifest", task)
    ranked = [one["hardware_type"] for one in json.loads(run("--candidates", "A100,H100", "--json").stdout)["choices"]]
    names = {"A100": "A100-80GB:8", "H100": "H100:8"}
    ordered = [names[hardware_type] for hardware_type in ranked] + ["T4:8"]
    assert json.loads(result.stdout) == {
        "run": "train",
        "resources": {"ordered": [{"accelerators": a} for a in ordered]},
    }
    assert "left" not in result.stderr


@pytest.mark.parametrize(
    ("scheduler", "job"),
    [("kubernetes", POD), ("slurm", "#!/bin/sh\n"), ("skypilot", {"resources": {"accelerators": {"T4": 1, "L4": 1}}})],
)
def test_without_a_ranking_a_scheduler_gets_the_job_as_it_was(run: Any, file: Any, scheduler: str, job: Any) -> None:
    arguments = ("--candidates", "A100", "--format", scheduler, "--job-manifest", file("job", job))
    result = run(*arguments, "--redis-url", "redis://127.0.0.1:1/0")
    assert result.exit_code == 0
    assert (json.loads(result.stdout) if result.stdout else "#!/bin/sh\n") == job
    assert "no ranking (store_unavailable)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--format", "kubernetes", "--json"), 2, "--json and --explain go with the table"),
        (("--format", "json", "--explain"), 2, "--json and --explain go with the table"),
        (("--accelerators-per-node", "8"), 2, "are for schedulers: give --format kubernetes, slurm, skypilot"),
        (("--format", "slurm", "--labels", "absent.toml"), 1, "labels absent.toml cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Any, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run("--candidates", "A100", *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


def test_manifest_that_is_none_is_refused(run: Any, file: Any) -> None:
    arguments = ("--candidates", "A100", "--format", "kubernetes", "--job-manifest", file("pod.json", "[]"))
    result = run(*arguments)
    assert result.exit_code == 1
    assert "must hold one object, got list" in result.stderr
